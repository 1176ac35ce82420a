"""`llamita eval --text`: the figure, its JSON, and that every byte of the file is paid for."""

from __future__ import annotations

import gzip
import json

import pytest

import llamita
from llamita.cli.eval import first_bytes
from llamita.cli.main import run
from llamita.config import ModelConfig
from llamita.evaluation.bits_per_byte import bits_per_byte
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.tokenizer import train_tokenizer

TEXT = "  The cat sat.\r\n\r\n\n“é” 🦙\t on the mat  \n\n" * 8


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory):
    tokenizer = train_tokenizer([TEXT], "bpe:270")
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    directory = tmp_path_factory.mktemp("model") / "tiny"
    save_model_directory(Transformer(config).initialize(0), directory, tokenizer)
    return str(directory)


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "held-out.txt"
    path.write_bytes(TEXT.encode())
    return path


def evaluate(capsys, *arguments: str):
    assert run(["eval", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_holds_the_keys_and_every_byte_of_the_file(model_directory, text_file, capsys):
    result = evaluate(capsys, model_directory, "--text", str(text_file))
    lm = llamita.load(model_directory)
    expected = bits_per_byte(lm.model, lm.tokenizer, [TEXT])
    assert result == {
        "bits_per_byte": expected.bits_per_byte,
        "bits_per_byte_stderr": expected.bits_per_byte_stderr,
        "perplexity": expected.perplexity,
        "bytes": text_file.stat().st_size,
        "tokens": len(lm.tokenizer.encode(TEXT)),
    }


def test_the_line_for_people_shows_the_standard_error(model_directory, text_file, capsys):
    result = evaluate(capsys, model_directory, "--text", str(text_file))
    assert run(["eval", model_directory, "--text", str(text_file)]) == 0
    printed = capsys.readouterr().out
    figure, error = result["bits_per_byte"], result["bits_per_byte_stderr"]
    assert printed.startswith(f"{figure:.4f} ± {error:.4f} bits per byte")
    assert printed.count("\n") == 1


def test_several_files_jsonl_and_gzip_are_read_as_documents(model_directory, tmp_path, capsys):
    lines = [{"text": "one é"}, {"text": "two\n"}]
    jsonl = tmp_path / "docs.jsonl"
    jsonl.write_text("\n".join(json.dumps(line) for line in lines))
    packed = tmp_path / "more.txt.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    result = evaluate(capsys, model_directory, "--text", str(jsonl), "--text", str(packed))
    assert result["bytes"] == len("one étwo\n".encode() + TEXT.encode())
    lm = llamita.load(model_directory)
    expected = bits_per_byte(lm.model, lm.tokenizer, ["one é", "two\n", TEXT])
    assert result["bits_per_byte"] == pytest.approx(expected.bits_per_byte, rel=1e-6)


def test_limit_bytes_scores_the_beginning_alone(model_directory, text_file, capsys):
    result = evaluate(capsys, model_directory, "--text", str(text_file), "--limit-bytes", "30")
    assert result["bytes"] == len(TEXT.encode()[:30].decode(errors="ignore").encode())


@pytest.mark.parametrize("limit", range(1, 12))
def test_the_first_bytes_end_between_characters(limit):
    texts = ["aé", "🦙b", "cde"]
    whole = "".join(texts).encode()
    cut = "".join(first_bytes(texts, limit))
    assert cut == whole[:limit].decode(errors="ignore")


def test_a_shorter_context_costs_more_windows(model_directory, text_file, capsys):
    short = evaluate(capsys, model_directory, "--text", str(text_file), "--context-length", "4")
    full = evaluate(capsys, model_directory, "--text", str(text_file))
    assert short["bytes"] == full["bytes"]
    assert short["bits_per_byte"] != full["bits_per_byte"]


def test_the_error_of_a_single_token_is_null(model_directory, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("a")
    result = evaluate(capsys, model_directory, "--text", str(tmp_path / "a.txt"))
    assert result["bits_per_byte_stderr"] is None
    assert run(["eval", model_directory, "--text", str(tmp_path / "a.txt")]) == 0
    assert capsys.readouterr().out.startswith(f"{result['bits_per_byte']:.4f} bits per byte")


def test_text_in_another_encoding_is_scored_as_the_same_text(model_directory, tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes("the café".encode("utf-16"))
    result = evaluate(capsys, model_directory, "--text", str(path), "--encoding", "utf-16")
    path.write_bytes("the café".encode())
    assert result == evaluate(capsys, model_directory, "--text", str(path))
    assert run(["eval", model_directory, "--text", str(path), "--encoding", "klingon"]) == 2
    assert "klingon" in capsys.readouterr().err


def test_a_missing_file_and_an_empty_file_are_errors(model_directory, tmp_path, capsys):
    assert run(["eval", model_directory, "--text", str(tmp_path / "no.txt")]) == 2
    assert "no.txt" in capsys.readouterr().err
    (tmp_path / "empty.txt").write_text("")
    assert run(["eval", model_directory, "--text", str(tmp_path / "empty.txt")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "empty.txt" in printed.err


def test_a_model_without_a_tokenizer_is_an_error(tmp_path, text_file, capsys):
    config = ModelConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
    )
    save_model_directory(Transformer(config).initialize(0), tmp_path / "bare")
    assert run(["eval", str(tmp_path / "bare"), "--text", str(text_file)]) == 2
    assert "no tokenizer" in capsys.readouterr().err
