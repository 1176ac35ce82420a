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
from llamita.inference.params import SAMPLERS
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


FLAG_VALUES = {
    "max_tokens": (20, 3),
    "temperature": (1.3, 0.2),
    "top_k": (50, 1),
    "typical_p": (0.95, 0.01),
    "top_p": (0.9, 0.01),
    "min_p": (0.01, 1),
    "repetition_penalty": (1.2, 50),
    "frequency_penalty": (0.1, 2),
    "presence_penalty": (0.2, 2),
    "no_repeat_ngram_size": (4, 1),
    "seed": (5, 6),
}


def as_flags(settings):
    return [
        part
        for name, value in settings.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]


def test_every_flag_reaches_the_sampler(model_directory, lm, capsys):
    settings = {name: value for name, (value, _) in FLAG_VALUES.items()}
    assert run(["generate", model_directory, "the cat", *as_flags(settings), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    expected = lm.generate("the cat", **settings)
    assert result["token_ids"] == expected.token_ids


@pytest.mark.parametrize("name", FLAG_VALUES)
def test_a_flag_overrides_the_preset_and_what_is_not_given_does_not(
    model_directory, lm, capsys, name
):
    settings = {"seed": 1, "max_tokens": 20, name: FLAG_VALUES[name][1]}
    flags = ["--sampler", "armgpt", *as_flags(settings), "--json"]
    assert run(["generate", model_directory, "the cat", *flags]) == 0
    result = json.loads(capsys.readouterr().out)
    expected = lm.generate("the cat", **{**SAMPLERS["armgpt"], **settings})
    assert result["token_ids"] == expected.token_ids


def test_tokens_are_banned_biased_and_made_ends(model_directory, lm, capsys):
    [c] = lm.tokenizer.encode("c")
    flags = ["--logit-bias", f"{c}=100", "--json", *FLAGS]
    assert run(["generate", model_directory, "the", *flags]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["token_ids"] == [c] * 12
    assert run(["generate", model_directory, "the", *flags, "--stop-token-id", str(c)]) == 0
    stopped = json.loads(capsys.readouterr().out)
    assert (stopped["token_ids"], stopped["stop_reason"]) == ([], c)
    bans = ["--ban", str(c), "--ban", "3"]
    assert run(["generate", model_directory, "the", *flags, *bans]) == 0
    banned = json.loads(capsys.readouterr().out)
    assert not {c, 3} & set(banned["token_ids"])


def test_text_may_be_bound_to_choices_and_regular_expressions(model_directory, capsys):
    for flags, allowed in (
        (["--choice", "the mat", "--choice", "é"], {"the mat", "é"}),
        (["--regex", "(on|cat) the"], {"on the", "cat the"}),
    ):
        assert run(["generate", model_directory, "sat", *flags, *FLAGS]) == 0
        assert capsys.readouterr().out.rstrip("\n") in allowed


def test_a_schema_or_grammar_is_a_file_or_the_text_itself(model_directory, tmp_path, capsys):
    schema = '{"enum": [{"a": 1}]}'
    grammar = 'start: "c" start | "d"'
    (tmp_path / "schema.json").write_text(schema)
    (tmp_path / "grammar: it").write_text(grammar)
    flags = ["--temperature", "0"]
    for text in (schema, str(tmp_path / "schema.json")):
        assert run(["generate", model_directory, "a", "--schema", text, *flags]) == 0
        assert json.loads(capsys.readouterr().out) == {"a": 1}
    for text in (grammar, str(tmp_path / "grammar: it")):
        assert run(["generate", model_directory, "a", "--grammar", text, *flags]) == 0
        assert set(capsys.readouterr().out) <= set("cd\n")


def test_a_long_grammar_is_no_file_name(model_directory, capsys):
    for grammar in ('start: "c"  // ' + "x" * 300, "start: A\nA: " + '"c" | ' * 100 + '"d"'):
        assert run(["generate", model_directory, "a", "--grammar", grammar, *FLAGS]) == 0
        assert capsys.readouterr().out in ("c\n", "d\n")


def test_any_object_is_the_schema_true(model_directory, capsys):
    # With the braces alone it ends soon.
    flags = ["--schema", "true", "--logit-bias", "99=1", *FLAGS]
    assert run(["generate", model_directory, "a", *flags]) == 0
    assert capsys.readouterr().out.lstrip().startswith("{")


def test_a_wrong_file_is_named(model_directory, tmp_path, capsys):
    path = tmp_path / "broken.json"
    for content, words in (('{"type": ', "schema is not JSON"), ("", "schema is not JSON")):
        path.write_text(content)
        assert run(["generate", model_directory, "a", "--schema", str(path)]) == 2
        error = capsys.readouterr().err
        assert f"{path}: {words}" in error
        assert len(error.splitlines()) == 2


def test_a_text_cut_off_before_it_has_its_form_is_told(model_directory, capsys):
    flags = ["--regex", "[a-z]{40}", *FLAGS, "--max-tokens", "2"]
    assert run(["generate", model_directory, "a", *flags]) == 0
    assert "cut off: it is not yet what regex asks for" in capsys.readouterr().err


def test_stop_tokens_may_be_shown_and_left_out(model_directory, lm, capsys):
    end = lm.tokenizer.eos_token_id
    flags = ["--logit-bias", f"{end}=100", "--json", *FLAGS]
    for more, token_ids in (
        ([], []),
        (["--include-stop-token"], [end]),
        (["--no-stop-tokens"], [end] * 12),
        (["--sampler", "armgpt"], [end]),
        (["--sampler", "armgpt", "--drop-stop-token"], []),
    ):
        assert run(["generate", model_directory, "the", *flags, *more]) == 0
        assert json.loads(capsys.readouterr().out)["token_ids"] == token_ids


def test_logprobs_are_in_the_json_and_nowhere_else(model_directory, lm, capsys):
    flags = ["--logprobs", "2", *FLAGS]
    assert run(["generate", model_directory, "the cat", *flags, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [each["token_id"] for each in result["logprobs"]] == result["token_ids"]
    assert all(len(each["top"]) == 2 and each["logprob"] < 0 for each in result["logprobs"])
    assert run(["generate", model_directory, "the cat", *flags]) == 2
    assert "Add --json" in capsys.readouterr().err


def test_drafts_and_the_precision_of_the_cache_leave_the_text(model_directory, capsys):
    for flags in ([], ["--speculative", "4"], ["--kv-cache-dtype", "float32"]):
        assert run(["generate", model_directory, "the cat", *FLAGS, *flags]) == 0
    first, *others = capsys.readouterr().out.removesuffix("\n").rsplit("\n", 2)
    assert len(set(others)) == 1
    assert first.endswith(others[0])


def test_what_a_sliding_context_dropped_is_told(model_directory, lm, capsys):
    flags = ["--overflow", "slide", "--seed", "3", "--ban", str(lm.tokenizer.eos_token_id)]
    assert run(["generate", model_directory, "xyz", *flags, "--max-tokens", "60"]) == 0
    told = "context of 32 tokens was full: its oldest 34 tokens were dropped on the way.\n"
    assert told in capsys.readouterr().err
    assert run(["generate", model_directory, "xyz" * 40, *flags, "--max-tokens", "1"]) == 0
    assert "were dropped on the way" in capsys.readouterr().err


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
        (["--sampler", "gpt"], "sampler is 'gpt'"),
        (["--typical-p", "2"], "typical_p is 2.0"),
        (["--logit-bias", "5"], "--logit-bias is '5'"),
        (["--logit-bias", "a=1"], "--logit-bias is 'a=1'"),
        (["--logit-bias", "5=x"], "--logit-bias is '5=x'"),
        (["--logit-bias", "5=1", "--logit-bias", "5=2"], "token 5 twice"),
        (["--ban", "-1"], "banned_token_ids is [-1]"),
        (["--schema", "nowhere.json"], "--schema is 'nowhere.json'"),
        (["--schema", "{"], "schema is not JSON"),
        (["--schema", "[1, 2]"], "schema is [1, 2]"),
        (["--schema", "null"], "schema is None"),
        (["--schema", ""], "--schema is empty"),
        (["--grammar", " "], "--grammar is empty"),
        (["--schema", "x" * 300], "a file that cannot be read"),
        (["--stop-token-id", "3", "--no-stop-tokens"], "--no-stop-tokens are given together"),
        (["--logprobs", "1001", "--json"], "logprobs is 1001"),
        (["--overflow", "drop-oldest-turn"], "must be one of: stop, error, slide."),
        (["--grammar", "nowhere.lark"], "--grammar is 'nowhere.lark'"),
        (["--regex", "a", "--choice", "b"], "regex and choices"),
        (["--overflow", "wrap"], "overflow is 'wrap'"),
        (["--speculative", "65"], "speculative is 65"),
        (["--kv-cache-dtype", "int4"], "kv_cache_dtype is 'int4'"),
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
    text = " ".join(done.stdout.split())
    assert "always the likeliest token; 1: the model as it is. [default: 0.8]" in text
    assert "as many as the context holds. [default: 256]" in text
