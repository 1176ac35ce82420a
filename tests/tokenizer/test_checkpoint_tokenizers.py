"""The tokenizer of a checkpoint: found beside it, fitting its vocabulary, with a template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamita.config import ModelConfig
from llamita.errors import TokenizerError
from llamita.formats.checkpoint import Checkpoint
from llamita.tokenizer import train_tokenizer
from llamita.tokenizer.chat_templates import BUILT_IN
from llamita.tokenizer.gguf_vocabulary import to_vocabulary
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.load import checkpoint_tokenizer, find_tokenizer_beside
from tests.tokenizer.foreign import ranks_of, tiktoken_file

ARMGPT = ["<|user|>", "<|assistant|>", "<|end|>", *"\n abc"]


def checkpoint(path: Path, vocab_size: int, **fields: object) -> Checkpoint:
    config = ModelConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        vocab_size=vocab_size,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix:
        path.touch()
    return Checkpoint(config, {}, path, **{"tokenizer": path.parent, **fields})  # type: ignore[arg-type]


def write_armgpt(path: Path, tokens: list[str] = ARMGPT) -> None:
    content = {"type": "char", "itos": tokens, "special_tokens": tokens[:3]}
    path.write_text(json.dumps(content))


def test_without_any_there_is_none(tmp_path: Path) -> None:
    assert checkpoint_tokenizer(checkpoint(tmp_path / "model.pt", 9, tokenizer=None)) is None
    assert checkpoint_tokenizer(checkpoint(tmp_path / "model.pt", 9)) is None
    (tmp_path / "config.json").write_text('{"type": "llama"}')
    (tmp_path / "notes.json").write_text("[1, 2]")
    assert checkpoint_tokenizer(checkpoint(tmp_path / "model.pt", 9)) is None


@pytest.mark.parametrize("name", ["tokenizer.json", "bpe_tokenizer.json", "armenian.json"])
def test_armgpts_json_is_found_beside_under_any_name(name: str, tmp_path: Path) -> None:
    write_armgpt(tmp_path / name)
    (tmp_path / "train_log.json").write_text('{"type": "run"}')
    tokenizer = checkpoint_tokenizer(checkpoint(tmp_path / "model.pt", 8, chat_format="armgpt"))
    assert tokenizer is not None
    assert tokenizer.kind == "char"
    assert tokenizer.chat_template == BUILT_IN["armgpt"].template


def test_a_sentencepiece_model_is_found_beside(llama_model: bytes, tmp_path: Path) -> None:
    (tmp_path / "hermes.model").write_bytes(llama_model)
    assert find_tokenizer_beside(tmp_path / "model.pt", 500) == tmp_path / "hermes.model"


def test_the_files_beside_a_tokenizer_json_count(corpus: list[str], tmp_path: Path) -> None:
    train_tokenizer(corpus, "bpe:300").with_chat_template("{{ mine }}").save(tmp_path)
    tokenizer = checkpoint_tokenizer(checkpoint(tmp_path / "model.pt", 300, chat_format="llama2"))
    assert tokenizer is not None
    assert tokenizer.chat_template == "{{ mine }}"
    assert tokenizer.eos_token_id == 0


def test_of_several_the_one_that_fits_counts(tmp_path: Path) -> None:
    write_armgpt(tmp_path / "small.json")
    write_armgpt(tmp_path / "large.json", [*ARMGPT, *"defg"])
    assert find_tokenizer_beside(tmp_path / "model.pt", 8) == tmp_path / "small.json"
    assert find_tokenizer_beside(tmp_path / "model.pt", 9) == tmp_path / "small.json"
    assert find_tokenizer_beside(tmp_path / "model.pt", 12) == tmp_path / "large.json"


def test_several_that_fit_are_named(tmp_path: Path) -> None:
    write_armgpt(tmp_path / "one.json")
    write_armgpt(tmp_path / "two.json")
    with pytest.raises(
        TokenizerError, match=r"several.*one\.json \(8 tokens\), two\.json"
    ) as caught:
        find_tokenizer_beside(tmp_path / "model.pt", 8)
    assert "--tokenizer PATH" in (caught.value.hint or "")
    with pytest.raises(TokenizerError, match=r"no tokenizers that fit the 5 embeddings"):
        find_tokenizer_beside(tmp_path / "model.pt", 5)


def test_two_forms_of_one_tokenizer_are_one(corpus: list[str], tmp_path: Path) -> None:
    train_tokenizer(corpus, "spm:600").save(tmp_path)
    assert find_tokenizer_beside(tmp_path / "model.pt", 600) == tmp_path


@pytest.mark.parametrize("kind", ["directory", "file", "tables", "beside"])
def test_more_tokens_than_embeddings_are_an_error(
    kind: str, corpus: list[str], tmp_path: Path
) -> None:
    made = train_tokenizer(corpus, "bpe:300")
    made.save(tmp_path / "made")
    path, source = {
        "directory": (tmp_path / "made", tmp_path / "made"),
        "file": (tmp_path / "model.pt", tmp_path / "made" / "tokenizer.json"),
        "tables": (tmp_path / "model.gguf", to_vocabulary(made)),
        "beside": (tmp_path / "made" / "model.pt", tmp_path / "made"),
    }[kind]
    with pytest.raises(TokenizerError, match=r"300 tokens; the model in .* has 299 \(vocab_size\)"):
        checkpoint_tokenizer(checkpoint(path, 299, tokenizer=source))
    tokenizer = checkpoint_tokenizer(checkpoint(path, 320, tokenizer=source))
    assert tokenizer is not None
    assert tokenizer.fingerprint or tokenizer.vocab_size == 300


def test_a_meta_folder_brings_llama_3s_template(corpus: list[str], tmp_path: Path) -> None:
    trained = train_tokenizer(corpus, "bpe:400")
    assert isinstance(trained, HFTokenizer)
    (tmp_path / "tokenizer.model").write_bytes(tiktoken_file(ranks_of(trained, 3)))
    found = checkpoint_tokenizer(
        checkpoint(tmp_path, 397 + 256, tokenizer=tmp_path, chat_format="llama3")
    )
    assert found is not None
    assert found.chat_template == BUILT_IN["llama3"].template


def test_a_template_without_its_control_tokens_is_left_out(
    corpus: list[str], tmp_path: Path
) -> None:
    train_tokenizer(corpus, "bpe:300").save(tmp_path)
    found = checkpoint_tokenizer(checkpoint(tmp_path / "model.pt", 300, chat_format="armgpt"))
    assert found is not None
    assert found.chat_template is None
