"""The chat template travels with the tokenizer, and is found in every place where it may lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from llamita.errors import TokenizerError
from llamita.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from tests.tokenizer.tokenizer_texts import MIXED

TEMPLATE = "{% for message in messages %}<{{ message['content'] }}>é{% endfor %}\n"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([MIXED], "char")


def with_config(directory: Path, **entries: Any) -> None:
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, **entries}), encoding="utf-8")


def test_a_tokenizer_without_a_template_has_none(tokenizer: Tokenizer) -> None:
    assert tokenizer.chat_template is None
    assert tokenizer.chat_templates == {}


def test_a_given_template_is_saved_and_read_by_autotokenizer(
    tokenizer: Tokenizer, llama_model: bytes, tmp_path: Path
) -> None:
    for number, plain in enumerate((tokenizer, SentencePieceTokenizer(llama_model))):
        own = plain.with_chat_template(TEMPLATE)
        assert plain.chat_template is None
        assert own.fingerprint == plain.fingerprint
        assert own.encode(MIXED) == plain.encode(MIXED)
        own.save(tmp_path / str(number))
        assert load_tokenizer(tmp_path / str(number)).chat_template == TEMPLATE
        assert AutoTokenizer.from_pretrained(tmp_path / str(number)).chat_template == TEMPLATE


def test_a_new_template_takes_the_place_of_all_others(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    with_config(tmp_path, chat_template=[{"name": "default", "template": "old"}])
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    loaded = load_tokenizer(tmp_path)
    assert loaded.chat_templates == {"default": "old", "tool_use": "tools"}
    loaded.with_chat_template(TEMPLATE).save(tmp_path)
    assert load_tokenizer(tmp_path).chat_templates == {"default": TEMPLATE}
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template == TEMPLATE


def test_a_sentencepiece_tokenizer_drops_the_template_of_its_config(llama_model: bytes) -> None:
    config = json.dumps({"chat_template": "old", "model_max_length": 9}).encode()
    tokenizer = SentencePieceTokenizer(llama_model, {"tokenizer_config.json": config})
    assert tokenizer.chat_template == "old"
    files = tokenizer.with_chat_template(TEMPLATE).files()
    saved = json.loads(files["tokenizer_config.json"])
    assert "chat_template" not in saved
    assert saved["model_max_length"] == 9


@pytest.mark.parametrize(
    "entry",
    ["one", [{"name": "default", "template": "one"}, {"name": "rag", "template": "two"}]],
)
def test_templates_of_the_config_are_found(
    tokenizer: Tokenizer, tmp_path: Path, entry: Any
) -> None:
    tokenizer.save(tmp_path)
    with_config(tmp_path, chat_template=entry)
    loaded = load_tokenizer(tmp_path)
    assert loaded.chat_template == "one"
    assert loaded.chat_templates.get("rag") == ("two" if isinstance(entry, list) else None)


def test_the_newer_place_counts(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    (tmp_path / "chat_template.json").write_text('{"chat_template": "legacy"}')
    assert load_tokenizer(tmp_path).chat_template == "legacy"
    with_config(tmp_path, chat_template="config")
    assert load_tokenizer(tmp_path).chat_template == "config"
    (tmp_path / "chat_template.jinja").write_text("jinja")
    assert load_tokenizer(tmp_path).chat_template == "jinja"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("chat_template.json", b'{"chat_template": 3}'),
        ("chat_template.json", b'{"chat_template": [{"name": "default"}]}'),
        ("chat_template.json", b"[" * 100_000),
        ("chat_template.jinja", b"\xff"),
        ("additional_chat_templates/tool_use.jinja", b"\xff"),
    ],
)
def test_a_damaged_template_file_is_named(tokenizer: Tokenizer, name: str, data: bytes) -> None:
    tokenizer = tokenizer.with_chat_template(TEMPLATE)
    tokenizer._set_files({**tokenizer.side_files, name: data})
    with pytest.raises(TokenizerError, match=name):
        _ = tokenizer.chat_template
