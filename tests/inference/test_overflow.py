"""A full context: what each policy does, what it says, and what of a chat is given up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import GenerationError, TokenizerError
from llamita.inference.chats import fit_chat
from llamita.inference.lm import LM
from tests.inference.conftest import BOS, make_model, scripted_lm
from tests.inference.test_chat import END, VOCAB, ChatTokenizer, chatting, prompt_of

ALL: dict[str, Any] = {"stop_token_ids": [], "temperature": 0}


def encode(messages):
    """Each message has as many tokens as its content says; 3 end the prompt."""
    return [0] * (sum(message["content"] for message in messages) + 3)


def plain_fit(messages, max_tokens, context):
    """Turn by turn: the kept messages, or None where not even the last turn fits."""
    kept = list(messages)

    def room():
        return context - len(encode(kept))

    wanted = 1 if max_tokens is None else max_tokens
    while room() < wanted:
        first = next(i for i, m in enumerate(kept) if m["role"] not in ("system", "developer"))
        later = [i for i, m in enumerate(kept) if m["role"] == "user" and i > first]
        if not later:
            break
        kept = [
            m for i, m in enumerate(kept) if i >= later[0] or m["role"] in ("system", "developer")
        ]
    return kept if room() >= min(1, wanted) else None


CHATS = st.lists(
    st.builds(
        lambda role, size: {"role": role, "content": size},
        st.sampled_from(["user", "user", "assistant", "tool", "system"]),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=12,
).filter(lambda chat: any(message["role"] != "system" for message in chat))


@given(chat=CHATS, max_tokens=st.one_of(st.none(), st.integers(0, 20)), context=st.integers(1, 60))
def test_the_oldest_turns_go_until_the_answer_fits(chat, max_tokens, context):
    kept = plain_fit(chat, max_tokens, context)
    if kept is None:
        with pytest.raises(GenerationError, match=f"context holds {context}"):
            fit_chat(encode, chat, max_tokens, context)
    else:
        prompt, dropped = fit_chat(encode, chat, max_tokens, context)
        assert (len(prompt), dropped) == (len(encode(kept)), len(chat) - len(kept))
        assert len(prompt) <= context


def test_a_long_chat_is_encoded_a_few_times_only():
    chat = [{"role": "user", "content": 1}] * 1000
    calls = []
    prompt, dropped = fit_chat(lambda kept: (calls.append(1), encode(kept))[1], chat, 10, 100)
    assert (len(prompt), dropped) == (90, 913)
    assert len(calls) < 15


def conversation(turns: int) -> list[dict[str, str]]:
    chat = [{"role": "system", "content": "Be brief."}]
    for number in range(turns):
        chat += [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": f"answer {number}"},
        ]
    return [*chat, {"role": "user", "content": "the last one"}]


def test_a_chat_loses_its_oldest_turns_and_says_how_many():
    chat = conversation(6)
    kept = [chat[0], *chat[5:]]
    prompt = prompt_of(kept)
    lm = scripted_lm(
        [*b"Yes.", END],
        len(prompt),
        chatting(),
        vocab_size=VOCAB,
        max_position_embeddings=len(prompt) + 10,
    )
    result = lm.chat(chat, temperature=0, max_tokens=10, overflow="drop-oldest-turn")
    assert (result.text, result.dropped_messages, result.dropped_tokens) == ("Yes.", 4, 0)
    assert result.prompt_token_ids == prompt
    assert lm.fit_chat(chat, max_tokens=10) == (prompt, 4)
    assert lm.fit_chat(chat, max_tokens=11)[1] == 6
    both = lm.chat([chat, kept], max_tokens=10, overflow="drop-oldest-turn", **ALL)
    assert [answer.dropped_messages for answer in both] == [4, 0]
    with pytest.raises(GenerationError, match=r"the prompt has \d+ tokens"):
        lm.chat(chat)


def test_a_chat_whose_last_turn_leaves_no_room_is_refused():
    lm = LM(make_model(vocab_size=VOCAB, max_position_embeddings=30), chatting())
    with pytest.raises(GenerationError, match=r"last turn.*tokens.*context holds 30"):
        lm.chat(conversation(3), overflow="drop-oldest-turn")
    with pytest.raises(TokenizerError, match="message 1"):
        lm.chat([{"role": "user", "content": "a"}, {}], overflow="drop-oldest-turn")
    with pytest.raises(TokenizerError, match="empty"):
        lm.chat([], overflow="drop-oldest-turn")


def test_an_answer_may_have_less_room_than_max_tokens_where_the_last_turn_is_long():
    last = [{"role": "user", "content": "x" * 40}]
    context = len(prompt_of(last)) + 3
    lm = LM(make_model(vocab_size=VOCAB, max_position_embeddings=context), chatting())
    result = lm.chat(last, overflow="drop-oldest-turn", max_tokens=50, **ALL)
    assert (len(result.token_ids), result.finish_reason) == (3, "length")


@pytest.mark.parametrize("method", ["generate", "stream", "stream_events", "request"])
def test_a_prompt_has_no_turns_to_drop(lm, method):
    with pytest.raises(GenerationError, match=r"drop-oldest-turn.*no turns\.\n.*'slide'"):
        getattr(lm, method)("a", overflow="drop-oldest-turn")


def test_error_refuses_what_does_not_fit_with_all_numbers(lm):
    assert lm.generate([1] * 40, max_tokens=8, overflow="error", **ALL).finish_reason == "length"
    with pytest.raises(GenerationError, match=r"40 tokens.*max_tokens is 9.*context holds 48"):
        lm.generate([1] * 40, max_tokens=9, overflow="error", **ALL)
    with pytest.raises(GenerationError, match="has filled the model's context of 48"):
        lm.generate([1] * 40, max_tokens=None, overflow="error", **ALL)


@pytest.mark.parametrize("kind", [{}, {"sliding_window": 5}])
def test_slide_drops_the_oldest_half_and_goes_on_as_if_read_anew(kind):
    model = make_model(**kind)
    lm = LM(model)
    result = lm.generate(list(range(40)), max_tokens=60, overflow="slide", **ALL)
    ids = list(range(40))
    dropped = 0
    for token_id in result.token_ids:
        with torch.no_grad():
            assert token_id == int(model(torch.tensor([ids]))[0, -1].argmax())
        ids.append(token_id)
        if len(ids) > 48:
            dropped += len(ids) - 24
            ids = ids[-24:]
    assert (len(result.token_ids), result.finish_reason) == (60, "length")
    assert result.dropped_tokens == dropped > 0


def test_slide_takes_a_prompt_longer_than_the_context():
    tokenizer = ChatTokenizer(bos_prefix=(BOS,))
    lm = LM(make_model(vocab_size=VOCAB), tokenizer)
    prompt = [BOS, *b"abcdefgh" * 20]
    result = lm.generate(prompt, max_tokens=5, overflow="slide", **ALL)
    assert len(result.token_ids) == 5
    assert result.dropped_tokens >= len(prompt) - 47
    assert result.prompt_token_ids == prompt
    first = lm.generate([BOS, *prompt[-46:]], max_tokens=1, **ALL)
    assert result.token_ids[0] == first.token_ids[0]
    *_, last = lm.stream_events(prompt, max_tokens=5, overflow="slide", **ALL)
    assert last.dropped == result.dropped_tokens


def test_slide_without_an_end_is_refused(lm):
    with pytest.raises(GenerationError, match="need not end"):
        lm.generate("a", max_tokens=None, overflow="slide")
