"""Chats are compared: what templates write, in which ids, and what ends a turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import llamita
from llamita.formats.armgpt import feed_forward_width
from llamita.formats.huggingface import save_model_directory
from llamita.inference.lm import LM
from llamita.shipping.verify import compare
from llamita.shipping.verify_chat import compare_chats, first_rendered
from llamita.tokenizer.armgpt import read_armgpt
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import BUILT_IN
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.load import load_tokenizer
from llamita.tokenizer.train import train_tokenizer
from tests.shipping.conftest import SENTENCES, run_conversion, small_model

TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def found(a: Tokenizer, b: Tokenizer) -> tuple[bool | None, list[str], list[str]]:
    differences: list[str] = []
    notes: list[str] = []
    return compare_chats(a, b, differences, notes), differences, notes


def with_templates(tokenizer: Tokenizer, folder: Path, **templates: str) -> Tokenizer:
    """The tokenizer with named templates as `transformers` writes them."""
    tokenizer.save(folder)
    (folder / "additional_chat_templates").mkdir()
    for name, template in templates.items():
        (folder / "additional_chat_templates" / f"{name}.jinja").write_text(template)
    (folder / "chat_template.jinja").write_text(TURNS)
    return load_tokenizer(folder)


CHANGES = {
    "another line": TURNS.replace("\n{{ m.content", " {{ m.content"),
    "a word where there is no system message": (
        TURNS + "{% if messages[0].role != 'system' %}x{% endif %}"
    ),
    "a word for a system message": TURNS + "{% if messages[0].role == 'system' %}x{% endif %}",
    "a place for tools": "{% if tools %}{{ tools | tojson }}{% endif %}" + TURNS,
    "another prompt": TURNS.replace("assistant\n", "assistant"),
    "an end of the conversation": TURNS + "{% if not add_generation_prompt %}.{% endif %}",
    "another end of a turn": TURNS.replace("<|im_end|>", "<|endoftext|>"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_chat_template_is_another_model(change: str, bpe_tokenizer: Tokenizer) -> None:
    a, b = (bpe_tokenizer.with_chat_template(text) for text in (TURNS, CHANGES[change]))
    for pair in ((a, b), (b, a)):
        equal, differences, _ = found(*pair)
        assert equal is False
        assert "the chat template writes something else" in differences[0]
    assert found(a, a) == (True, [], [])
    model = small_model(bpe_tokenizer)
    comparison = compare(LM(model, a), LM(model, b))
    assert (comparison.same, comparison.chat_equal) == (False, False)
    assert compare(LM(model, a), LM(model, a)).chat_equal is True


def test_a_lost_template_is_a_difference_a_new_one_a_note(bpe_tokenizer: Tokenizer) -> None:
    chatty = bpe_tokenizer.with_chat_template(TURNS)
    assert found(chatty, bpe_tokenizer) == (
        False,
        ["the chat template is lost: only A has it."],
        [],
    )
    assert found(bpe_tokenizer, chatty) == (None, [], ["only B has the chat template."])


def test_other_words_for_the_same_template_are_a_note(bpe_tokenizer: Tokenizer) -> None:
    other = "{# the same #}" + TURNS
    a, b = (bpe_tokenizer.with_chat_template(text) for text in (TURNS, other))
    equal, differences, notes = found(a, b)
    assert (equal, differences) == (True, [])
    assert "written differently" in notes[0]


def test_a_named_template_that_is_lost_or_another_is_a_difference(
    bpe_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    tools = TURNS + "{{ tools }}"
    full = with_templates(bpe_tokenizer, tmp_path / "a", tool_use=tools, rag=TURNS)
    other = with_templates(bpe_tokenizer, tmp_path / "b", tool_use=tools + ".", rag=TURNS)
    plain = bpe_tokenizer.with_chat_template(TURNS)
    equal, differences, _ = found(full, plain)
    assert equal is False
    assert any("'rag' is lost" in sentence for sentence in differences)
    assert any("'tool_use' is lost" in sentence for sentence in differences)
    assert found(full, other)[0] is False
    assert found(full, full) == (True, [], [])


def rewritten(tokenizer: Tokenizer, folder: Path, **config: object) -> Tokenizer:
    """The tokenizer with entries of its tokenizer_config.json changed."""
    tokenizer.save(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return load_tokenizer(folder)


def test_equal_templates_that_end_turns_elsewhere_differ(
    bpe_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    a = bpe_tokenizer.with_chat_template(plain)
    b = rewritten(a, tmp_path, eos_token="<|im_end|>")
    assert b.eos_token_id != a.eos_token_id
    equal, differences, _ = found(a, b)
    assert equal is False
    assert "a turn of a chat ends at" in differences[0]


def with_bos(tokenizer: Tokenizer, adds: bool) -> Tokenizer:
    """A tokenizer.json that puts `<|im_start|>` in front of texts, or does not."""
    assert isinstance(tokenizer, HFTokenizer)
    name = "<|im_start|>"
    entry = {"id": name, "ids": [tokenizer.special_tokens[name]], "tokens": [name]}
    text = [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    processor = {
        "type": "TemplateProcessing",
        "single": text,
        "pair": [*text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: entry},
    }
    definition = {**tokenizer.definition(), "post_processor": processor if adds else None}
    config = json.loads(tokenizer.side_files["tokenizer_config.json"])
    files = {"tokenizer_config.json": json.dumps({**config, "bos_token": name}).encode()}
    return HFTokenizer(definition, files)


def test_a_bos_that_is_lost_or_doubled_is_a_difference(bpe_tokenizer: Tokenizer) -> None:
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    a, b = (with_bos(bpe_tokenizer, adds).with_chat_template(plain) for adds in (True, False))
    for pair in ((a, b), (b, a)):
        equal, differences, _ = found(*pair)
        assert equal is False
        assert "gives other token ids for the same text" in differences[0]


REFUSES = "{% if messages | length > 1 %}{{ raise_exception('one at a time') }}{% endif %}"


def test_a_template_that_takes_no_long_chat_is_judged_by_a_short_one(
    bpe_tokenizer: Tokenizer,
) -> None:
    a, b = (bpe_tokenizer.with_chat_template(REFUSES + text) for text in (TURNS, TURNS + "."))
    assert found(a, a) == (True, [], [])
    assert found(a, b)[0] is False
    short = first_rendered(a)
    assert short is not None
    assert len(short[0]) == 1


def test_a_template_that_takes_nothing_is_not_judged_and_that_is_said(
    bpe_tokenizer: Tokenizer,
) -> None:
    never = "{{ raise_exception('never') }}"
    a, b = (bpe_tokenizer.with_chat_template(never + text) for text in ("", "."))
    equal, differences, notes = found(a, a)
    assert (equal, differences) == (None, [])
    assert "nothing was judged" in notes[0]
    assert found(a, b)[0] is False
    assert first_rendered(a) is None


def characters() -> Tokenizer:
    """ArmGPT's kind of tokenizer."""
    names = [*dict.fromkeys("".join(SENTENCES)), "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    table = {name: token_id for token_id, name in enumerate(names)}
    special = {name: table[name] for name in names[-3:-1]}
    content = {"type": "char", "stoi": table, "special_tokens": special}
    return read_armgpt(content, {}, Path("tokenizer.json"))


@pytest.mark.parametrize("target", ["hf", "gguf", "meta", "hermes", "armgpt"])
def test_named_templates_go_along(target: str, tmp_path: Path, no_runtime: None) -> None:
    fields = {}
    tokenizer = train_tokenizer(SENTENCES, "spm:480")
    if target == "armgpt":
        tokenizer = characters()
        fields = {"intermediate_size": feed_forward_width(32), "num_key_value_heads": 4}
    full = with_templates(tokenizer, tmp_path / "t", tool_use=TURNS + "{{ tools }}")
    save_model_directory(small_model(full, **fields), tmp_path / "in", full)
    report = run_conversion(tmp_path / "in", tmp_path / "out", target=target)
    assert report["differences"] == []
    assert report["chat_equal"] is True
    back = llamita.load(tmp_path / "out").tokenizer
    assert back is not None
    assert back.chat_templates == full.chat_templates
    said = [note for note in report["notes"] if "tool_use" in note]
    assert len(said) == (target in ("meta", "hermes", "armgpt"))


def test_named_templates_beside_a_built_in_one_go_along(tmp_path: Path, no_runtime: None) -> None:
    """Where no default lies beside a model of Hermes, its built-in format is the only one."""
    spm = train_tokenizer(SENTENCES, "spm:480")
    full = with_templates(spm, tmp_path / "t", tool_use=TURNS + "{{ tools }}")
    default = BUILT_IN["chatml-tools"].template
    (tmp_path / "t" / "chat_template.jinja").write_text(default)
    full = load_tokenizer(tmp_path / "t")
    save_model_directory(small_model(full), tmp_path / "in", full)
    report = run_conversion(tmp_path / "in", tmp_path / "out", target="hermes")
    assert report["differences"] == []
    back = llamita.load(tmp_path / "out").tokenizer
    assert back is not None
    assert back.chat_templates == full.chat_templates
