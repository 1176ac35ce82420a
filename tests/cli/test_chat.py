"""`llamita chat`: turns from a pipe and from a terminal, tools that are asked about, Ctrl-C."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import llamita
from llamita.cli.chat_tools import shown_call
from llamita.cli.main import run
from llamita.config import ModelConfig
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from tests.inference.test_tool_loop import MULTIPLY, PLAIN, saying
from tests.inference.tool_cases import TEMPLATES, byte_tokenizer

FILE = '''
def touch(file: str) -> str:
    """Touch it."""
    from pathlib import Path
    Path(file).write_text("touched")
    return "done"
'''


def call(name: str, **arguments: Any) -> str:
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{body}</tool_call>"


class Terminal(io.StringIO):
    """Lines that a person types; `KeyboardInterrupt` among them is Ctrl-C."""

    def __init__(self, *lines: str | type[BaseException]) -> None:
        super().__init__()
        self.lines = list(lines)

    def isatty(self) -> bool:
        return True

    def readline(self, *_: Any) -> str:  # type: ignore[override]
        if not self.lines:
            return ""
        line = self.lines.pop(0)
        if isinstance(line, str):
            return line + "\n"
        raise line


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


class Chat:
    """Runs `llamita chat` on an LM that says these turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        self._patch, self._capsys = monkeypatch, capsys
        self.lm: Any = None
        self.err = ""

    def __call__(
        self, turns: list[str], said: bytes | Terminal, *arguments: str
    ) -> tuple[int, str, str]:
        self.lm = saying(*turns)
        self._patch.setattr(llamita, "load", lambda *args, **kwargs: self.lm)
        screen = Screen()
        if isinstance(said, bytes):
            self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said)))
        else:
            self._patch.setattr(sys, "stdin", said)
            self._patch.setattr(sys, "stderr", screen)
        code = run(["chat", "MODEL", "--temperature", "0", *arguments])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err + screen.getvalue()

    def prompts(self) -> list[str]:
        decode = self.lm.tokenizer.decode
        return [decode(ids, skip_special_tokens=False) for ids in self.lm.engine.backend.prompts]


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Chat:
    return Chat(monkeypatch, capsys)


def test_each_line_is_a_turn_and_answers_go_to_stdout(chat: Chat) -> None:
    code, out, err = chat(["Hi.", "Fine <b>."], "Hello é\n\n/reset\n".encode())
    assert (code, out, err) == (0, "Hi.\nFine <b>.\n", "")
    first, second = chat.prompts()
    assert first == "<|im_start|>user\nHello é<|im_end|>\n<|im_start|>assistant\n"
    assert second == first + (
        "Hi.<|im_end|>\n<|im_start|>user\n/reset<|im_end|>\n<|im_start|>assistant\n"
    )


def test_built_in_tools_run_unasked(chat: Chat) -> None:
    code, out, err = chat([MULTIPLY, "108."], b"12*9?\n", "--tools", "builtin:calculator")
    assert (code, out) == (0, "108.\n")
    assert err == '  calculator({"expression": "12*9"})\n  -> 108\n'


def test_json_is_the_conversation_and_nothing_else(chat: Chat) -> None:
    code, out, _ = chat(
        [MULTIPLY, "108."], b"12*9?", "--tools", "builtin", "--json", "--system", "Be brief."
    )
    printed = json.loads(out)
    assert code == 0
    assert [message["role"] for message in printed["messages"]] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]
    assert printed["messages"][-1]["content"] == "108."
    assert printed["finish_reason"] == "stop"


def test_without_a_terminal_a_files_tools_need_yes(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(FILE)
    turns = [call("touch", file=str(tmp_path / "x")), "Well."] * 2
    tools = ["--tools", str(tmp_path / "my_tools.py")]
    code, out, err = chat(turns, b"go\ngo\n", *tools)
    assert (code, out) == (0, "Well.\nWell.\n")
    assert err.count("touch was not run: there is no terminal to ask at. --yes runs it") == 1
    assert not (tmp_path / "x").exists()
    assert "did not allow" in chat.prompts()[1]
    code, _, err = chat(turns, b"go\n", *tools, "--yes")
    assert (tmp_path / "x").read_text() == "touched"
    assert '-> "done"' in err


@pytest.mark.parametrize(
    ("typed", "touched"),
    [
        (["go", "y", "go", "n"], "x"),
        (["go", "n", "go", "Yes"], "y"),
        (["go", "a", "go"], "xy"),
        (["go", "what", "y", "go", "no"], "x"),
        (["go"], ""),
    ],
)
def test_on_a_terminal_the_user_is_asked(
    chat: Chat, tmp_path: Path, typed: list[str], touched: str
) -> None:
    (tmp_path / "my_tools.py").write_text(FILE)
    turns = [said for name in "xy" for said in (call("touch", file=str(tmp_path / name)), "Well.")]
    code, _, err = chat(turns, Terminal(*typed), "--tools", str(tmp_path / "my_tools.py"))
    assert code == 0
    assert [name for name in "xy" if (tmp_path / name).exists()] == list(touched)
    assert "Run touch(" in err


def test_commands_of_the_terminal(chat: Chat) -> None:
    said = Terminal("One", "/help", "/reset", "/nothing", "", "Two /help")
    code, out, err = chat(["A.", "B."], said, "--system", "S")
    assert (code, out) == (0, "A.\nB.\n")
    assert "Ctrl-D" in err
    assert "there is no command /nothing" in err
    second = chat.prompts()[1]
    assert "One" not in second
    assert "system\nS<|im_end|>" in second
    assert "Two /help" in second


def test_ctrl_c_ends_an_answer_and_what_was_said_stays(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llamita.cli import chat_session

    shown = chat_session.for_terminal
    count = [0]

    def stop_at_the_fourth(text: str) -> str:
        count[0] += 1
        if count[0] == 4:
            raise KeyboardInterrupt
        return shown(text)

    monkeypatch.setattr(chat_session, "for_terminal", stop_at_the_fourth)
    code, out, err = chat(["Hello there", "Yes."], Terminal("One", "Two"))
    assert code == 0
    assert "(stopped)" in err
    assert out.startswith("Hel")
    assert "assistant\nHell<|im_end|>\n<|im_start|>user\nTwo" in chat.prompts()[1]


def test_ctrl_c_in_a_tool_leaves_no_call_without_a_result(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text("def wait() -> None:\n    raise KeyboardInterrupt\n")
    tools = ["--tools", str(tmp_path / "my_tools.py"), "--yes"]
    code, _, err = chat([call("wait") + call("wait"), "Well."], Terminal("One", "Two"), *tools)
    assert code == 0
    assert "(stopped)" in err
    assert chat.prompts()[1].count("stopped by the user") == 2


def test_ctrl_c_at_the_prompt_ends_the_chat(chat: Chat) -> None:
    code, _, err = chat(["A."], Terminal("One", KeyboardInterrupt))
    assert code == 130
    assert err.endswith("stopped.\n")


def test_steps_are_limited(chat: Chat) -> None:
    code, _, err = chat(
        [MULTIPLY], b"?", "--tools", "builtin", "--max-steps", "2", "--max-tokens", "100"
    )
    assert code == 0
    assert err.count("-> 108") == 2
    assert "2 steps of calls are over" in err


def test_an_answer_that_is_cut_off_is_said_to_be(chat: Chat) -> None:
    code, out, err = chat(["Hello there."], b"?", "--max-tokens", "5")
    assert (code, out) == (0, "Hello\n")
    assert "the answer is cut off" in err


def test_a_turn_that_does_not_fit_is_forgotten_on_a_terminal(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "x" * 5000
    code, out, err = chat(["A."], Terminal(long, "Two"))
    assert (code, out) == (0, "A.\n")
    assert "context" in err
    assert "xxx" not in chat.prompts()[0]
    assert chat(["A."], f"{long}\n".encode())[0] == 2


def test_the_oldest_turns_go_when_the_context_is_full(chat: Chat) -> None:
    said = "".join(f"{number}{'x' * 1200}\n" for number in range(4)).encode()
    code, out, err = chat(["A."] * 4, said)
    assert (code, out) == (0, "A.\n" * 4)
    assert "no longer fit the context" in err
    assert "0xxx" not in chat.prompts()[-1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tools", "nothing.py"], "there is no file nothing.py"),
        (["--tools", "builtin:clock"], "there is no built-in tool 'clock'"),
        (["--tools", "builtin", "--tools", "builtin:notes"], "two tools named add_note"),
        (["--tools", "builtin", "--schema", "true"], "--schema and --tools"),
        (["--max-steps", "-1"], "--max-steps is -1"),
        (["--overflow", "x"], "overflow is 'x'"),
        (["--temperature", "-1"], "temperature is -1"),
    ],
)
def test_wrong_use_is_told_in_two_lines(chat: Chat, arguments: list[str], complaint: str) -> None:
    code, out, err = chat(["A."], b"hello", *arguments)
    assert (code, out) == (2, "")
    assert complaint in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2


def test_lines_that_are_no_utf_8_are_named(chat: Chat) -> None:
    code, _, err = chat(["A."], b"a\n\xff\n")
    assert code == 2
    assert "line 2 of stdin is not UTF-8" in err


def test_a_call_is_shown_without_control_characters() -> None:
    assert shown_call("f", {"a": "\x1b[2J"}) == 'f({"a": "\\u001b[2J"})'
    assert shown_call("f\u202e", "\x9b") == 'f\ufffd("\ufffd")'


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    for name, template in (("taught", TEMPLATES["hermes"]), ("toolless", "{{ messages }}")):
        tokenizer = byte_tokenizer(PLAIN).with_chat_template(template)
        config = ModelConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=2000,
            eos_token_id=tokenizer.eos_token_id,
        )
        save_model_directory(Transformer(config).initialize(0), folder / name, tokenizer)
    return folder


def test_a_model_without_a_place_for_tools_says_so_first(
    model_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))
    assert run(["chat", str(model_directory / "toolless"), "--tools", "builtin"]) == 2
    assert "no place for them" in capsys.readouterr().err


def test_on_a_real_terminal_ctrl_d_ends_it(model_directory: Path) -> None:
    pytest.importorskip("pty", reason="pseudo-terminals are a matter of Unix")
    from tests.cli.test_progress import on_terminal

    program = (
        "from llamita.cli.main import main\n"
        f"main(['chat', {str(model_directory / 'taught')!r}, '--max-tokens', '5', '--seed', '1'])"
    )
    code, shown = on_terminal(program, b"> ", b"hello\n\x04")
    assert code == 0
    assert b"/help tells" in shown
    assert shown.count(b"> ") == 2
