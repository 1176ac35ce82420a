"""Tokenizers learn from chats as a chat format writes them, without its control tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llamita.cli.main import run
from llamita.data.folder import DataFolder
from llamita.data.prepare import prepare
from llamita.data.tokenizer_texts import tokenizer_texts
from llamita.errors import DataError, TokenizerError
from llamita.text.documents import Document, read_files
from llamita.text.sources import find_text_files
from llamita.tokenizer import load_tokenizer
from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.chat_templates import BuiltInFormat
from llamita.tokenizer.train import train_tokenizer

TOOL = {
    "name": "calculator",
    "description": "Calculate.",
    "parameters": {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
    },
}
CALL = {"function": {"name": "calculator", "arguments": {"expression": "2+2"}}}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": "What is <|im_end|> 2 and 2?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "It is 4."},
    ],
    "tools": [TOOL],
}
PLAIN = {"messages": [CHAT["messages"][0], CHAT["messages"][3]]}
WRITTEN_CALL = '{"name": "calculator", "arguments": {"expression": "2+2"}}'
PLAYS = "To be, or not to be, that is the question: whether it is nobler. 0123456789 " * 30


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def read(path: Path) -> list[Document]:
    return list(read_files(find_text_files([path]).files, chats=True))


def many(count: int) -> list[dict[str, Any]]:
    """Chats of which each calls with other numbers."""
    text = json.dumps(CHAT)
    return [json.loads(text.replace("2+2", f"{n}+{n + 1}")) for n in range(count)]


def test_a_chat_is_what_stands_between_control_tokens(tmp_path: Path) -> None:
    path = write(tmp_path / "chats.jsonl", {"text": "A text."}, CHAT)
    assert list(tokenizer_texts(read(path), "chatml-signatures")) == [
        "A text.",
        "system\nTools:\ncalculator(expression: string): Calculate.",
        "user\nWhat is <|im_end|> 2 and 2?",
        "assistant\n",
        WRITTEN_CALL,
        "tool\n",
        "\n4\n",
        "assistant\nIt is 4.",
    ]
    assert f"\n{json.dumps(TOOL)}" in list(tokenizer_texts(read(path)))[1]


@pytest.mark.parametrize("entry", BUILT_IN.values(), ids=list(BUILT_IN))
def test_no_format_leaves_its_control_tokens_in(entry: BuiltInFormat, tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "Who?"}, PLAIN["messages"][1]]}
    texts = list(tokenizer_texts(read(write(tmp_path / "chats.jsonl", chat)), entry.name))
    assert any("It is 4." in text for text in texts)
    names = ("<|endoftext|>", *entry.control_tokens, *entry.tool_tokens)
    assert not [name for name in names for text in texts if name in text]


def test_other_forms_of_chats_are_read_too(tmp_path: Path) -> None:
    turns = [
        {"from": "human", "value": "What is <|im_end|> 2 and 2?"},
        {"from": "gpt", "value": "It is 4."},
    ]
    share_gpt = write(tmp_path / "share.jsonl", {"conversations": turns})
    plain = write(tmp_path / "plain.jsonl", PLAIN)
    assert list(tokenizer_texts(read(share_gpt))) == list(tokenizer_texts(read(plain)))


def test_what_a_format_cannot_write_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "chats.jsonl", PLAIN, CHAT)
    with pytest.raises(DataError, match=r"chats\.jsonl:2: tools are given"):
        list(tokenizer_texts(read(path), "armgpt"))
    with pytest.raises(TokenizerError, match="no chat format 'alpaca'"):
        tokenizer_texts([], "alpaca")


def test_the_command_and_prepare_make_the_same_tokenizer(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.jsonl", {"text": PLAYS}), write(tmp_path / "b.jsonl", *many(30))]
    made = {}
    for name in ("chatml-tools", "chatml-signatures"):
        out, data = tmp_path / name, tmp_path / f"data-{name}"
        settings = ["--tokenizer", "bpe:320", "--chat-format", name]
        assert run(["tokenizer", "train", *map(str, paths), "-o", str(out), *settings]) == 0
        prepare(paths, data, tokenizer="bpe:320", val_fraction=0, chat_format=name)
        made[name] = load_tokenizer(out).fingerprint
        assert load_tokenizer(data).fingerprint == made[name]
    assert len(set(made.values())) == 2
    default = ["tokenizer", "train", *map(str, paths), "-o", str(tmp_path / "default")]
    assert run([*default, "--tokenizer", "bpe:320"]) == 0
    assert load_tokenizer(tmp_path / "default").fingerprint == made["chatml-tools"]


@pytest.mark.parametrize("kind", ["bpe:290", "spm:320", "unigram:300", "char"])
@pytest.mark.parametrize("entry", BUILT_IN.values(), ids=list(BUILT_IN))
def test_a_tokenizer_that_is_trained_can_write_every_format(
    entry: BuiltInFormat, kind: str, tmp_path: Path
) -> None:
    said = f"{PLAYS}Whether the rest is to be better or not, another question is there to hear. "
    asked = [{"role": "user", "content": said * 2}, PLAIN["messages"][1]]
    chats = [{"messages": [{**asked[0], "content": f"{said * 2} {n}"}, asked[1]]} for n in range(9)]
    path, out = write(tmp_path / "chats.jsonl", *chats), tmp_path / "tokenizer"
    options: dict[str, Any] = {"tokenizer": kind, "val_fraction": 0, "chat_format": entry.name}
    manifest = prepare([path], tmp_path / "data", loss="assistant", **options)
    assert manifest.chats == 9
    made = load_tokenizer(tmp_path / "data")
    assert made.chat_template == entry.template
    assert set(entry.control_tokens) <= set(made.special_tokens)
    ids = ChatFormat.of(made).encode(asked)
    named = {name for name, token_id in made.special_tokens.items() if token_id in ids}
    assert set(entry.control_tokens) <= named
    settings = ["--tokenizer", kind, "--chat-format", entry.name]
    assert run(["tokenizer", "train", str(path), "-o", str(out), *settings]) == 0
    assert load_tokenizer(out).fingerprint == made.fingerprint


def test_without_chats_as_well_it_has_the_control_tokens_behind_its_size(tmp_path: Path) -> None:
    text = write(tmp_path / "a.jsonl", {"text": PLAYS})
    options: dict[str, Any] = {"tokenizer": "bpe:290", "val_fraction": 0}
    prepare([text], tmp_path / "plain", **options)
    prepare([text], tmp_path / "llama3", chat_format="llama3", **options)
    plain, able = load_tokenizer(tmp_path / "plain"), load_tokenizer(tmp_path / "llama3")
    assert plain.vocab_size == 290
    added = list(BUILT_IN["llama3"].control_tokens)
    assert [able.special_tokens[name] for name in added] == [290, 291, 292, 293]
    assert able.encode(PLAYS) == plain.encode(PLAYS)


def test_calls_take_fewer_tokens(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", {"text": PLAYS})
    write(tmp_path / "b.jsonl", *many(30))
    prepare([tmp_path / "a.jsonl"], tmp_path / "alone", tokenizer="bpe:290", val_fraction=0)
    prepare(
        [tmp_path / "a.jsonl"],
        tmp_path / "both",
        tokenizer="bpe:290",
        val_fraction=0,
        tokenizer_also=[tmp_path / "b.jsonl"],
    )
    alone, both = (load_tokenizer(tmp_path / name) for name in ("alone", "both"))
    assert len(both.encode(WRITTEN_CALL)) < 0.6 * len(alone.encode(WRITTEN_CALL))


def test_what_a_tokenizer_also_learns_from_is_no_data(tmp_path: Path) -> None:
    text = write(tmp_path / "a.jsonl", *({"text": f"{PLAYS} {n}"} for n in range(20)))
    also = write(tmp_path / "b.jsonl", *many(30))
    options: dict[str, Any] = {"tokenizer": "bpe:320", "chat_format": "chatml-signatures"}
    manifest = prepare([text], tmp_path / "data", tokenizer_also=[also], **options)
    assert manifest.chats == 0
    assert [source.path for source in manifest.sources] == [str(text)]
    assert manifest.train.documents + manifest.val.documents == 20
    folder = DataFolder.open(tmp_path / "data")
    assert folder.tokenizer.chat_template is None
    # The same again is there already; what it learned from is a setting.
    assert prepare([text], tmp_path / "data", tokenizer_also=[also], **options) == manifest
    write(also, *many(29))
    with pytest.raises(DataError, match="other settings"):
        prepare([text], tmp_path / "data", tokenizer_also=[also], **options)


def test_it_learns_from_chats_in_utf_8_whatever_the_text_is(tmp_path: Path) -> None:
    text = tmp_path / "a.jsonl"
    lines = (json.dumps({"body": f"{PLAYS} é"}, ensure_ascii=False) for _ in range(2))
    text.write_bytes("\n".join(lines).encode("latin-1"))
    also = tmp_path / "b.jsonl"
    said = json.dumps({"text": "ջուր " * 50, "body": "no"}, ensure_ascii=False)
    also.write_text(f"{said}\n{json.dumps(CHAT)}\n", encoding="utf-8")
    prepare(
        [text],
        tmp_path / "data",
        tokenizer="char",
        val_fraction=0,
        field="body",
        encoding="latin-1",
        tokenizer_also=[also],
    )
    made = load_tokenizer(tmp_path / "data")
    assert len(made.encode("ջուրé")) == len(made.encode("")) + 5


def test_a_finished_tokenizer_learns_from_nothing(tmp_path: Path) -> None:
    text = write(tmp_path / "a.jsonl", {"text": PLAYS})
    also = write(tmp_path / "b.jsonl", CHAT)
    finished = train_tokenizer([PLAYS], "char")
    with pytest.raises(DataError, match="tokenizer is finished") as error:
        prepare([text], tmp_path / "data", tokenizer=finished, tokenizer_also=[also])
    assert "Leave tokenizer_also out" in (error.value.hint or "")
