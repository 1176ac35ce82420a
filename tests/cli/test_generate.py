"""`llamita generate`: what is on stdout, what is an error, and that nothing else is printed."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

import llamita
from llamita.cli.main import run
from llamita.config import ModelConfig
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.tokenizer import train_tokenizer

FLAGS = ["--max-tokens", "12", "--seed", "3"]


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory):
    tokenizer = train_tokenizer(["the cat sat on the mat, é 🦙 " * 20], "bpe:270")
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
        eos_token_id=tokenizer.eos_token_id,
    )
    directory = tmp_path_factory.mktemp("model") / "tiny"
    save_model_directory(Transformer(config).initialize(0), directory, tokenizer)
    return str(directory)


@pytest.fixture(scope="module")
def lm(model_directory):
    return llamita.load(model_directory)


def test_the_new_text_is_printed_and_nothing_else(model_directory, lm, capsys):
    assert run(["generate", model_directory, "the cat", *FLAGS]) == 0
    printed = capsys.readouterr()
    assert printed.out == lm.generate("the cat", max_tokens=12, seed=3).text + "\n"
    assert printed.err == ""


def test_every_flag_reaches_the_sampler(model_directory, lm, capsys):
    settings = {
        "temperature": 1.3,
        "top_k": 50,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "seed": 5,
        "max_tokens": 20,
    }
    flags = [
        part
        for name, value in settings.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    assert run(["generate", model_directory, "the cat", *flags, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    expected = lm.generate("the cat", **settings)
    assert result["token_ids"] == expected.token_ids
    others = {"temperature": 0, "top_k": 1, "top_p": 0.01, "min_p": 1, "seed": 6, "max_tokens": 3}
    for name, other in {**others, "repetition_penalty": 50}.items():
        flag = f"--{name.replace('_', '-')}"
        assert (
            run(["generate", model_directory, "the cat", *flags, "--json", flag, str(other)]) == 0
        )
        assert json.loads(capsys.readouterr().out)["token_ids"] != expected.token_ids


def test_json_is_one_object_and_nothing_else(model_directory, lm, capsys):
    assert run(["generate", model_directory, "the cat", *FLAGS, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == {
        "text": lm.generate("the cat", max_tokens=12, seed=3).text,
        "token_ids": lm.generate("the cat", max_tokens=12, seed=3).token_ids,
        "finish_reason": "length",
        "stop_reason": None,
        "prompt_token_ids": [lm.tokenizer.bos_token_id, *lm.tokenizer.encode("the cat")],
        "message": None,
        "logprobs": None,
        "dropped_tokens": 0,
        "dropped_messages": 0,
    }


def test_stop_strings_end_the_text(model_directory, lm, capsys):
    text = lm.generate("the cat", max_tokens=12, seed=3).text
    stops = ["--stop", text[3:5], "--stop", "never there"]
    assert run(["generate", model_directory, "the cat", *FLAGS, *stops]) == 0
    assert capsys.readouterr().out == text[: text.index(text[3:5])] + "\n"


def test_a_dash_reads_the_prompt_from_stdin_as_it_is(model_directory, lm, capsys, monkeypatch):
    prompt = "the mat\n🦙\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(prompt.encode())))
    assert run(["generate", model_directory, "-", *FLAGS, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["prompt_token_ids"][1:] == lm.tokenizer.encode(prompt)


def test_stdin_that_is_no_text_is_an_error(model_directory, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff")))
    assert run(["generate", model_directory, "-"]) == 2
    assert "byte 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--top-p", "1.5"], "top_p is 1.5"),
        (["--top-k", "-3"], "top_k is -3"),
        (["--max-tokens", "-1"], "max_tokens is -1"),
        (["--repetition-penalty", "0"], "repetition_penalty is 0.0"),
        (["--stop", ""], "stop is"),
    ],
)
def test_a_wrong_value_is_told_before_the_model_is_looked_for(tmp_path, capsys, flags, message):
    assert run(["generate", str(tmp_path / "none"), "a", *flags]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_a_prompt_longer_than_the_context_is_an_error(model_directory, capsys):
    assert run(["generate", model_directory, "xyz" * 40]) == 2
    assert "context holds 32" in capsys.readouterr().err


def test_a_full_context_is_told(model_directory, lm, capsys):
    flags = ["--max-tokens", "500", "--seed", "3", "--ban", str(lm.tokenizer.eos_token_id)]
    assert run(["generate", model_directory, "xyz", *flags]) == 0
    printed = capsys.readouterr()
    assert printed.err == "the model's context of 32 tokens is full.\n"
    assert printed.out.endswith("\n")


def test_an_override_reaches_the_model(model_directory, capsys):
    flags = ["--override", "max_position_embeddings=16", "--max-tokens", "99", "--json"]
    assert run(["generate", model_directory, "the", *flags, "--seed", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["prompt_token_ids"]) + len(result["token_ids"]) <= 16


def test_help_shows_the_defaults_without_loading_torch():
    code = (
        "import sys\nfrom llamita.cli.main import run\n"
        "assert run(['generate', '--help']) == 0\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "0.8" in done.stdout
    assert "256" in done.stdout
