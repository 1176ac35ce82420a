"""Chats prepared for continued training: written as the chat format says, one document each."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamita.data.dataset import TokenDataset
from llamita.data.folder import DataFolder
from llamita.data.loader import sequential_batches
from llamita.data.manifest import Manifest
from llamita.data.prepare import Reporter, prepare
from llamita.data.rows import IGNORED, DocumentRows
from llamita.errors import DataError, TokenizerError
from llamita.text.documents import read_documents
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.load import load_tokenizer
from llamita.tokenizer.train import train_tokenizer

TOOL = {"name": "weather", "description": "of a place", "parameters": {"type": "object"}}


def _chats(count: int = 12) -> list[dict[str, Any]]:
    chats: list[dict[str, Any]] = [
        {
            "messages": [
                {"role": "user", "content": f"What is {number} and <|im_end|> one?"},
                {"role": "assistant", "content": f"It is {number + 1}."},
            ]
        }
        for number in range(count)
    ]
    call = {"function": {"name": "weather", "arguments": {"place": "Gyumri"}}, "type": "function"}
    chats[0] = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Is it raining?"}]},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "No."},
            {"role": "assistant", "content": "It is dry."},
        ],
        "tools": [TOOL],
    }
    return chats


def _write(path: Path, chats: list[Any]) -> Path:
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    text = "user assistant: what is it and is it raining? It is dry, 123456789. " * 20
    train_tokenizer(iter([text]), "bpe:290", seed=0, log=lambda line: None).save(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(tokenizer_path: Path) -> Tokenizer:
    return load_tokenizer(tokenizer_path)


def _documents(data: Path, split: Any = "train") -> list[list[int]]:
    dataset = TokenDataset.open(data, split)
    ids = dataset.read(0, dataset.tokens)
    ends = np.flatnonzero(ids == dataset.separator_id)
    return [ids[a + 1 : b].tolist() for a, b in pairwise(ends.tolist())]


def test_each_chat_is_a_document_as_the_chat_format_writes_it(
    tokenizer: Tokenizer, tokenizer_path: Path, tmp_path: Path
) -> None:
    chats = _write(tmp_path / "chats.jsonl", _chats())
    options: dict[str, Any] = {"tokenizer": str(tokenizer_path), "val_fraction": 0}
    manifest = prepare([chats], tmp_path / "data", **options)
    assert manifest.chats == manifest.train.documents == 12
    assert all(shard.mask is None for shard in manifest.shards)
    written = load_tokenizer(tmp_path / "data")
    assert written.chat_template is not None
    assert written.fingerprint == tokenizer.fingerprint
    chat_format = ChatFormat.of(written)
    expected = [chat_format.encode(c["messages"], c.get("tools")) for c in _chats()]
    separator = written.separator_id
    found = _documents(tmp_path / "data")
    # The separator is the BOS here: it stands before each chat once, not twice.
    assert [[separator, *ids] for ids in found] == expected
    assert all(ids[0] == written.special_tokens["<|im_start|>"] for ids in found)
    assert all(ids.count(written.special_tokens["<|im_end|>"]) == 2 for ids in found[1:])


def test_with_the_loss_on_the_assistant_a_mask_leaves_out_the_rest(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    chats = _write(tmp_path / "chats.jsonl", _chats())
    (tmp_path / "plain.txt").write_text("It is a text.")
    paths = [chats, tmp_path / "plain.txt"]
    manifest = prepare(
        paths,
        tmp_path / "data",
        tokenizer=str(tokenizer_path),
        val_fraction=0,
        loss="assistant",
        shard_tokens=100,
    )
    assert len(manifest.shards) > 3
    assert all(
        shard.mask and (tmp_path / "data" / shard.mask).is_file() for shard in manifest.shards
    )
    dataset = TokenDataset.open(tmp_path / "data", "train")
    mask = dataset.read_mask(0, dataset.tokens)
    assert mask is not None
    ids = dataset.read(0, dataset.tokens)
    tokenizer = load_tokenizer(tmp_path / "data")
    learned = tokenizer.decode(ids[mask].tolist(), skip_special_tokens=False)
    said = "".join(f"It is {number + 1}.<|im_end|>" for number in range(1, 12))
    assert learned.endswith(f"It is dry.<|im_end|>{said}It is a text.<|endoftext|>")
    assert "raining" not in learned
    assert manifest.train.learned_tokens == int(mask.sum())
    text = len(tokenizer.decode(ids[mask].tolist()).encode())
    assert manifest.train.learned_bytes == text
    assert manifest.train.bytes == len(tokenizer.decode(ids.tolist()).encode())
    rows = DocumentRows(dataset, 64)
    labels = np.concatenate([b.labels.numpy().ravel() for b in sequential_batches(rows, 8)])
    assert int((labels != IGNORED).sum()) == int(mask.sum())


def test_a_mask_is_part_of_what_the_data_is(tokenizer_path: Path, tmp_path: Path) -> None:
    chats = _write(tmp_path / "chats.jsonl", _chats())
    options: dict[str, Any] = {"tokenizer": str(tokenizer_path), "val_fraction": 0}
    whole = prepare([chats], tmp_path / "whole", **options)
    masked = prepare([chats], tmp_path / "masked", loss="assistant", **options)
    assert [s.sha256 for s in whole.shards] == [s.sha256 for s in masked.shards]
    assert whole.fingerprint != masked.fingerprint
    with pytest.raises(DataError, match="other settings"):
        prepare([chats], tmp_path / "whole", loss="assistant", **options)
    mask = tmp_path / "masked" / str(masked.shards[0].mask)
    mask.write_bytes(mask.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"mask-00000\.bin has [\d,]+ bytes, but there are"):
        DataFolder.open(tmp_path / "masked").dataset("train")


def test_held_out_chats_stay_chats(tokenizer_path: Path, tmp_path: Path) -> None:
    chats = _write(tmp_path / "chats.jsonl", _chats(40))
    prepare([chats], tmp_path / "data", tokenizer=str(tokenizer_path), val_fraction=0.3)
    assert not (tmp_path / "data" / "validation.jsonl").exists()
    held_out = (tmp_path / "data" / "validation_chats.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in held_out]
    assert 0 < len(lines) == Manifest.load(tmp_path / "data").val.documents < 40
    assert all(line["messages"] in [chat["messages"] for chat in _chats(40)] for line in lines)
    again = prepare(
        [tmp_path / "data" / "validation_chats.jsonl"],
        tmp_path / "again",
        tokenizer=str(tokenizer_path),
        val_fraction=0,
    )
    assert again.chats == len(lines)
    assert _documents(tmp_path / "again") == _documents(tmp_path / "data", "val")


def test_a_tokenizer_is_trained_on_what_is_said(tmp_path: Path) -> None:
    chats = _write(tmp_path / "chats.jsonl", _chats(80))
    prepare([chats], tmp_path / "data", tokenizer="char", val_fraction=0)
    tokenizer = load_tokenizer(tmp_path / "data")
    ids = tokenizer.encode("What is 1 and one? It is dry.")
    assert len(ids) == len("What is 1 and one? It is dry.")


def test_the_chat_format_that_is_named_is_written_where_there_is_none(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    chats = _write(tmp_path / "chats.jsonl", _chats())
    options: dict[str, Any] = {"tokenizer": str(tokenizer_path), "val_fraction": 0}
    prepare([chats], tmp_path / "data", chat_format="chatml-signatures", **options)
    written = load_tokenizer(tmp_path / "data")
    assert written.chat_template == BUILT_IN["chatml-signatures"].template
    texts = [written.decode(ids) for ids in _documents(tmp_path / "data")]
    assert any("weather(): of a place" in text for text in texts)
    # With the same it is the same data; with another it is other data.
    again = prepare([chats], tmp_path / "data", chat_format="chatml-signatures", **options)
    assert again == Manifest.load(tmp_path / "data")
    with pytest.raises(DataError, match="with other settings"):
        prepare([chats], tmp_path / "data", **options)
    with pytest.raises(TokenizerError, match="no chat format 'alpaca'"):
        prepare([chats], tmp_path / "other", chat_format="alpaca", **options)
    options["tokenizer"] = written
    with pytest.raises(TokenizerError, match="not that of chatml-tools"):
        prepare([chats], tmp_path / "other", chat_format="chatml-tools", **options)
    prepare([chats], tmp_path / "other", chat_format="chatml-signatures", **options)


def test_a_chat_format_is_a_setting_only_where_it_changes_something(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    chats = _write(tmp_path / "chats.jsonl", _chats(40))
    for name, source in (("trained", "bpe:290"), ("finished", str(tokenizer_path))):
        options: dict[str, Any] = {"tokenizer": source, "val_fraction": 0}
        made = prepare([chats], tmp_path / name, **options)
        assert prepare([chats], tmp_path / name, chat_format="chatml-tools", **options) == made
        with pytest.raises(DataError, match="with other settings"):
            prepare([chats], tmp_path / name, chat_format="chatml-signatures", **options)
    # A template of the tokenizer's decides by itself.
    template = BUILT_IN["chatml-signatures"].template
    load_tokenizer(tokenizer_path).with_chat_template(template).save(tmp_path / "able")
    options = {"tokenizer": str(tmp_path / "able"), "val_fraction": 0}
    made = prepare([chats], tmp_path / "able-data", **options)
    again = prepare([chats], tmp_path / "able-data", chat_format="chatml-signatures", **options)
    assert again == made


@pytest.mark.parametrize(
    ("template", "name", "message"),
    [
        ("chatml-tools", "chatml-signatures", "not that of chatml-signatures"),
        (None, "llama3", "the chat format llama3 needs the control tokens"),
        (None, "alpaca", "no chat format 'alpaca'"),
    ],
)
def test_a_chat_format_that_is_not_the_tokenizers_is_refused_before_anything_is_read(
    template: str | None, name: str, message: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (tmp_path / "plain.txt").write_text("It is a text without chats.")
    own = (
        tokenizer if template is None else tokenizer.with_chat_template(BUILT_IN[template].template)
    )
    heard = _Phases()
    with pytest.raises(TokenizerError, match=message):
        prepare(
            [tmp_path / "plain.txt"],
            tmp_path / "data",
            tokenizer=own,
            val_fraction=0,
            chat_format=name,
            reporter=heard,
        )
    assert heard.phases == []


class _Phases(Reporter):
    def __init__(self) -> None:
        self.phases: list[str] = []

    def progress(self, phase: str, bytes_done: int, bytes_total: int) -> None:
        self.phases.append(phase)


def test_chats_are_brought_into_one_form_as_text_is(tokenizer_path: Path, tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "cafe\u0301\r\n\ud83d"},
        {"role": "assistant", "content": "é"},
    ]
    chats = _write(tmp_path / "chats.jsonl", [{"messages": messages}])
    manifest = prepare([chats], tmp_path / "data", tokenizer=str(tokenizer_path), val_fraction=0)
    [ids] = _documents(tmp_path / "data")
    assert "café\n\ufffd" in load_tokenizer(tmp_path / "data").decode(ids)
    assert manifest.replaced_surrogates == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"messages": []}, r"chats\.jsonl:2: the list of messages is empty"),
        ({"messages": [{"role": "robot", "content": "x"}]}, r'chats\.jsonl:2: .*"robot"'),
        ({"messages": ["hello"]}, r"chats\.jsonl:2: message 0 is"),
        ({"messages": "hello"}, r'chats\.jsonl:2: messages is "hello", which is no list'),
        ({"messages": [{"role": "user"}]}, r"chats\.jsonl:2: message 0 \(user\) has no content"),
    ],
)
def test_a_wrong_chat_is_named_with_its_line(
    tokenizer_path: Path, tmp_path: Path, line: dict[str, Any], message: str
) -> None:
    chats = _write(tmp_path / "chats.jsonl", [_chats()[1], line])
    with pytest.raises(DataError, match=message):
        prepare([chats], tmp_path / "data", tokenizer=str(tokenizer_path), val_fraction=0)
    assert not (tmp_path / "data").exists()


def test_chats_are_no_text_to_measure(tmp_path: Path) -> None:
    chats = _write(tmp_path / "chats.jsonl", _chats())
    with pytest.raises(DataError, match=r"chats\.jsonl:1 is a chat .*where text is wanted"):
        list(read_documents([chats]))


def test_a_text_field_counts_before_messages(tokenizer_path: Path, tmp_path: Path) -> None:
    both = _write(tmp_path / "both.jsonl", [{"text": "It is dry.", **_chats()[1]}])
    options: dict[str, Any] = {"tokenizer": str(tokenizer_path), "val_fraction": 0}
    assert prepare([both], tmp_path / "texts", **options).chats == 0
    assert prepare([both], tmp_path / "chats", field="messages", **options).chats == 1
