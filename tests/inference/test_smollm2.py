"""A real model, SmolLM2-135M: a ragged batch gives each prompt what it gets alone."""

from __future__ import annotations

import json

import pytest

import llamita
from llamita.inference.lm import LM

pytestmark = pytest.mark.slow

PROMPTS = [
    "The",
    "Once upon a time there was a small llama who",
    "def fibonacci(n):\n    if n <",
    "Լեռներից իջնող գետը 🦙",
    "The capital of France is Paris. The capital of Germany is Berlin. The capital of Italy is "
    "Rome. The capital of Spain is",
    "Water boils at 100 degrees, and it freezes at",
]
SETTINGS = [
    {"temperature": 0},
    {"temperature": 0.9, "seed": 7, "top_p": 0.95},
    {"temperature": 1.0, "seed": 8, "top_k": 40, "repetition_penalty": 1.1, "min_p": 0.02},
    {"temperature": 0.7, "seed": 9, "typical_p": 0.9, "presence_penalty": 0.5},
    {"temperature": 0, "no_repeat_ngram_size": 2, "speculative": 8},
    {"temperature": 0.8, "seed": 10, "regex": r" (-?[0-9]+ degrees[,.]? ?){1,4}"},
]
LENGTH = {"max_tokens": 24, "stop_token_ids": []}


@pytest.fixture(scope="module")
def lm(smollm2) -> LM:
    return llamita.load(smollm2, device="cpu")


@pytest.mark.parametrize("settings", [SETTINGS[0], SETTINGS[2]], ids=["greedy", "seeded"])
def test_a_ragged_batch_equals_single_runs(lm, settings):
    batch = lm.generate(PROMPTS, **settings, **LENGTH)
    assert batch == [lm.generate(prompt, **settings, **LENGTH) for prompt in PROMPTS]
    assert len({tuple(result.token_ids) for result in batch}) == len(PROMPTS)


def test_requests_with_settings_of_their_own_equal_single_runs(lm):
    """They join the engine one after the other, while others are under way."""
    length = {**LENGTH, "max_tokens": 8}
    streams = []
    tokens: list[list[int]] = [[] for _ in PROMPTS]
    for prompt, settings in zip(PROMPTS, SETTINGS, strict=True):
        streams.append(lm.stream_events(prompt, **settings, **length))
        for _ in range(2):
            for row, stream in enumerate(streams):
                tokens[row] += [e.token_id for e in [next(stream, None)] if e is not None]
    for row, stream in enumerate(streams):
        tokens[row] += [event.token_id for event in stream]
    for row, (prompt, settings) in enumerate(zip(PROMPTS, SETTINGS, strict=True)):
        assert tokens[row] == lm.generate(prompt, **settings, **length).token_ids


def test_text_of_a_real_tokenizer_is_streamed_in_whole_characters(lm):
    prompt, settings = PROMPTS[3], {"temperature": 1.3, "seed": 1, **LENGTH}
    whole = lm.generate(prompt, **settings)
    pieces = list(lm.stream(prompt, **settings))
    assert "".join(pieces) == whole.text == lm.tokenizer.decode(whole.token_ids)
    assert all("\ufffd" not in piece for piece in pieces[:-1])


def test_a_long_chat_keeps_its_system_message_and_last_turn(lm):
    chat = [{"role": "system", "content": "You answer in one word."}]
    for number in range(400):
        chat.append({"role": "user", "content": f"What is {number} plus {number}? " * 3})
        chat.append({"role": "assistant", "content": str(2 * number)})
    chat.append({"role": "user", "content": "What is the capital of France?"})
    prompt, dropped = lm.fit_chat(chat, max_tokens=1000)
    text = lm.tokenizer.decode(prompt)
    assert dropped > 0
    assert dropped % 2 == 0
    assert "one word" in text
    assert "capital of France" in text
    assert "What is 0 plus" not in text
    assert 8192 - 1100 < len(prompt) <= 8192 - 1000


def test_an_answer_fits_its_schema(lm):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "known": {"type": "boolean"}},
        "required": ["city", "known"],
        "additionalProperties": False,
    }
    question = [{"role": "user", "content": "What is the capital of France? Answer in JSON."}]
    answer = lm.chat(question, schema=schema, temperature=0, max_tokens=60)
    assert set(json.loads(answer.text)) == {"city", "known"}
    assert answer.finish_reason == "stop"
    assert answer.message["content"] == answer.text
