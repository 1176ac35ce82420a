"""Finding a tokenizer on disk: by content, with its own files kept, and clear about damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llamita.errors import TokenizerError
from llamita.tokenizer import load_tokenizer, train_tokenizer
from tests.tokenizer.tokenizer_texts import MIXED


def test_files_are_told_apart_by_content(
    write: Any, llama_model: bytes, corpus: list[str], tmp_path: Path
) -> None:
    trained = train_tokenizer(corpus, "bpe:300")
    trained.save(tmp_path / "made")
    definition = (tmp_path / "made" / "tokenizer.json").read_bytes()
    assert load_tokenizer(write("one.bin", definition)).kind == "bpe"
    assert load_tokenizer(write("two.bin", llama_model)).kind == "spm"


def test_tokenizer_json_counts_where_both_files_are(
    corpus: list[str], llama_model: bytes, tmp_path: Path
) -> None:
    trained = train_tokenizer(corpus, "bpe:300")
    trained.save(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(llama_model)
    assert load_tokenizer(tmp_path).encode(MIXED) == trained.encode(MIXED)


def test_saving_keeps_foreign_files_and_fields(corpus: list[str], tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    train_tokenizer(corpus, "bpe:300").save(source)
    config = json.loads((source / "tokenizer_config.json").read_text())
    config |= {"chat_template": "{{ messages[0] }}", "model_max_length": 77, "unheard_of": [1]}
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    (source / "chat_template.jinja").write_text("{{ bos_token }}")
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "rag.jinja").write_text("{{ documents }}")
    load_tokenizer(source).save(target)
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    assert len(files) == 4
    for file in files:
        assert (target / file).read_bytes() == (source / file).read_bytes()


def test_saving_leaves_nothing_of_an_earlier_tokenizer(corpus: list[str], tmp_path: Path) -> None:
    train_tokenizer(corpus, "spm:600").save(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}")
    (tmp_path / "notes.txt").write_text("mine")
    train_tokenizer(corpus, "bpe:300").save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json", "notes.txt"}


def test_a_truncated_tokenizer_json_names_its_path(
    write: Any, corpus: list[str], tmp_path: Path
) -> None:
    train_tokenizer(corpus, "bpe:300").save(tmp_path / "made")
    data = (tmp_path / "made" / "tokenizer.json").read_bytes()
    for length in (1, 100, len(data) // 2, len(data) - 3):
        path = write("tokenizer.json", data[:length])
        with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
            load_tokenizer(path)


def test_a_truncated_sentencepiece_model_names_its_path(write: Any, llama_model: bytes) -> None:
    for length in range(1, len(llama_model) - 1, 97):
        path = write("tokenizer.model", llama_model[:length])
        with pytest.raises(TokenizerError, match=r"tokenizer\.model"):
            load_tokenizer(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"model": 1}',
        b'{"model": {"type": "BPE", "vocab": []}, "decoder": {"type": "ByteLevel"}}',
        b'{"model": {"type": "BPE", "vocab": {"a": "x"}, "merges": []}, "decoder": {}}',
        b'{"model": {"type": "BPE"}, "added_tokens": [{}], "decoder": {"type": "ByteLevel"}}',
        b'{"type": "char", "itos": {"1": "a"}}',
        b"\x89PNG\r\n\x1a\n",
        b"random text that is no tokenizer\n",
        b"IQ== 0\nIg== 1\n",  # ranks without all bytes
    ],
)
def test_other_content_is_refused_naming_the_path(write: Any, data: bytes) -> None:
    with pytest.raises(TokenizerError, match=r"file\.bin"):
        load_tokenizer(write("file.bin", data))


@pytest.mark.parametrize("data", [b"[]", b"null", b"\x8f\x00\xff\x12", b"{\xff\xfe}", b"abc"])
def test_a_tokenizer_json_without_an_object_is_called_damaged(write: Any, data: bytes) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is a damaged tokenizer\.json"):
        load_tokenizer(write("tokenizer.json", data))


@pytest.mark.parametrize("token_id", [4_000_000_000, -1, "7", 1.5, None])
def test_an_id_that_no_vocabulary_has_names_the_token(
    write: Any, corpus: list[str], llama_model: bytes, tmp_path: Path, token_id: Any
) -> None:
    train_tokenizer(corpus, "bpe:300").save(tmp_path)
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    definition["model"]["vocab"]["faraway"] = token_id
    path = write("tokenizer.json", json.dumps(definition).encode())
    with pytest.raises(TokenizerError, match=r"tokenizer\.json gives the token 'faraway' the id"):
        load_tokenizer(path)
    path.unlink()
    write("tokenizer.model", llama_model)
    write("added_tokens.json", json.dumps({"faraway": token_id}).encode())
    with pytest.raises(TokenizerError, match=r"added_tokens\.json gives the token 'faraway'"):
        load_tokenizer(tmp_path)


def test_missing_files_and_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="nowhere"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(TokenizerError, match="no tokenizer in"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(TokenizerError, match="old form"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json"])
def test_a_damaged_file_beside_it_is_named(name: str, corpus: list[str], tmp_path: Path) -> None:
    train_tokenizer(corpus, "bpe:300").save(tmp_path)
    (tmp_path / name).write_text('{"eos_token": ')
    with pytest.raises(TokenizerError, match=name):
        load_tokenizer(tmp_path)


def test_lone_surrogates_are_refused(corpus: list[str]) -> None:
    for spec in ("bpe:300", "char"):
        with pytest.raises(TokenizerError, match="U\\+D800 at character 2"):
            train_tokenizer(corpus, spec).encode("ab\ud800")


def test_negative_ids_are_refused(corpus: list[str]) -> None:
    with pytest.raises(TokenizerError, match="-100"):
        train_tokenizer(corpus, "char").decode([-100])
