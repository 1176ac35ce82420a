"""Constraints at work in the engine: whole texts, whatever a model would rather say."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import llamita
from llamita.errors import GenerationError
from llamita.inference.lm import LM
from llamita.tokenizer.spm import SentencePieceTokenizer
from tests.inference.constraint_cases import tokenizer_of

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"enum": ["get_weather", "search"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["name", "days"],
    "additionalProperties": False,
}


def test_texts_are_whole_or_cut_off(lm: LM) -> None:
    whole = {
        f'{lead}{{"name":{a}"{name}",{b}"days":{c}{days}}}'
        for name in ("get_weather", "search")
        for days in range(1, 15)
        for lead, a, b, c in product(("", " "), repeat=4)
    }
    prompts = [chr(ord("a") + place) for place in range(12)]
    results = lm.generate(prompts, schema=SCHEMA, max_tokens=32, seed=0)
    assert {result.finish_reason for result in results} == {"stop", "length"}
    for result in results:
        if result.finish_reason == "stop":
            assert result.text in whole
        else:
            assert len(result.token_ids) == 32
            assert any(text.startswith(result.text) for text in whole - {result.text})


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_choice(lm: LM, temperature: float) -> None:
    for seed in range(5):
        result = lm.generate("a", choices=["yes", "no"], temperature=temperature, seed=seed)
        assert (result.text in ("yes", "no"), result.finish_reason) == (True, "stop")


def test_without_stop_tokens_the_text_ends_of_itself(lm: LM) -> None:
    result = lm.generate("a", regex="[0-9]{3}", stop_token_ids=())
    assert re.fullmatch("[0-9]{3}", result.text)
    assert (result.finish_reason, result.stop_reason) == ("stop", None)
    result = lm.generate("a", regex="[0-9]+", stop_token_ids=(), max_tokens=7)
    assert re.fullmatch("[0-9]{7}", result.text)
    assert result.finish_reason == "length"


def test_a_constrained_row_and_a_free_one_in_one_batch_are_those_alone(lm: LM) -> None:
    settings: dict[str, Any] = {"regex": "[a-f]{2,9}", "seed": 3, "max_tokens": 12}
    together = lm.generate(["x", "yy", "zzz"], **settings)
    alone = [lm.generate(prompt, **settings) for prompt in ("x", "yy", "zzz")]
    assert [result.token_ids for result in together] == [result.token_ids for result in alone]


def test_drafts_change_no_token(lm: LM) -> None:
    settings: dict[str, Any] = {"regex": "(ab|cd)+", "seed": 1, "max_tokens": 20}
    plain = lm.generate("abababababab", **settings)
    drafted = lm.generate("abababababab", **settings, speculative=4)
    assert drafted.token_ids == plain.token_ids
    assert re.match("(ab|cd)*[ac]?$", plain.text)


def test_streamed_pieces_join_to_the_text(lm: LM) -> None:
    settings: dict[str, Any] = {"schema": SCHEMA, "seed": 5, "max_tokens": 45}
    assert "".join(lm.stream("a", **settings)) == lm.generate("a", **settings).text


def test_penalties_and_filters_choose_among_what_is_allowed(lm: LM) -> None:
    for settings in (
        {"top_k": 1},
        {"top_p": 0.1},
        {"min_p": 0.9},
        {"repetition_penalty": 1.5, "frequency_penalty": 1.0},
        {"typical_p": 0.2},
        {"logit_bias": {ord("z"): 100.0}},
    ):
        result = lm.generate("a", choices=["abc", "abd"], seed=0, **settings)
        assert result.text in ("abc", "abd"), settings


def test_banning_what_must_come_is_an_error(lm: LM) -> None:
    with pytest.raises(GenerationError):
        lm.generate("a", choices=["abc"], banned_token_ids=[ord("b")])


def test_a_leading_space_that_is_not_shown(new_model: Any) -> None:
    tokenizer = tokenizer_of("llama")
    assert isinstance(tokenizer, SentencePieceTokenizer)
    lm = LM(new_model(vocab_size=tokenizer.vocab_size + 30), tokenizer)
    for prompt in ("", "the", [tokenizer.bos_token_id]):
        for seed in range(4):
            result = lm.generate(prompt, regex=" ?[a-c]{1,3}", seed=seed, max_tokens=9)
            if result.finish_reason == "stop":
                assert re.fullmatch(" ?[a-c]{1,3}", result.text)
            result = lm.generate(prompt, choices=[" yes", "no"], seed=seed, max_tokens=9)
            assert result.text in (" yes", "no")


@pytest.mark.slow
def test_a_real_model(smollm2: Path) -> None:
    lm = llamita.load(smollm2)
    prompt = "What is the weather in Paris for the next three days? Call a function."
    result = lm.chat([{"role": "user", "content": prompt}], schema=SCHEMA, temperature=0)
    assert result.finish_reason == "stop"
    assert set(json.loads(result.text)) == {"name", "days"}
    result = lm.generate("The capital of France is", choices=[" Rome", " Paris"], temperature=0)
    assert result.text == " Paris"
