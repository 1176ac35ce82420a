"""The text of one row, from its tokens: whole characters, stops, what is held back and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.inference.params import SamplingParams
from llamita.inference.request import Reply, Request, TokenEvent
from tests.inference.conftest import EOS, ByteTokenizer
from tests.inference.test_stopping import plain_stop

TEXTS = st.text("aé🦙\n", max_size=12)
STOPS = st.lists(st.text("aé🦙\n", min_size=1, max_size=3), max_size=3)


def answer(ids, prompt=b"?", limit=None, **settings) -> list[TokenEvent]:
    """The events of a row whose model says `ids`, to the one that ends it."""
    params = SamplingParams(**settings)
    reply = Reply(Request(list(prompt), params, frozenset([EOS])), limit, ByteTokenizer())
    events = []
    for token_id in ids:
        events.append(reply.accept(token_id))
        if events[-1].is_last:
            break
    return events


@given(text=TEXTS, stops=STOPS, keeps=st.booleans())
def test_the_events_of_any_text_join_to_what_stands_before_the_first_stop(text, stops, keeps):
    events = answer([*text.encode(), EOS], stop=stops, include_stop_token=keeps)
    shown, matched = plain_stop(text, stops)
    assert "".join(event.text for event in events) == shown
    assert events[-1].finish_reason == "stop"
    assert events[-1].stop_reason == (EOS if matched is None else matched)
    given_ids = [event.token_id for event in events if event.token_id is not None]
    read = text[: len(shown) + len(matched)] if matched else text
    assert given_ids == [*read.encode(), *([EOS] if keeps and not matched else [])]


@given(text=TEXTS, stops=STOPS, limit=st.integers(1, 30))
def test_a_limit_shows_what_was_held_back(text, stops, limit):
    data = (text.encode() * 40 or b"x" * 40)[:limit]
    shown, matched = plain_stop(data.decode(errors="replace"), stops)
    events = answer(data, stop=stops, limit=limit)
    assert "".join(event.text for event in events) == shown
    assert events[-1].finish_reason == ("length" if matched is None else "stop")
    assert events[-1].stop_reason == matched


@given(data=st.binary(max_size=12), cut=st.integers(0, 12))
def test_a_text_goes_on_from_its_prompt_wherever_that_was_cut(data, cut):
    text = "née 🦙 ok".encode()
    prompt, rest = text[:cut], text[cut:]
    shown = "".join(event.text for event in answer([*rest, EOS], prompt=prompt))
    assert prompt.decode(errors="ignore") + shown == text.decode()
    odd = "".join(event.text for event in answer([*data, EOS]))
    assert odd == data.decode(errors="replace")


def test_a_text_that_nothing_may_follow_is_over_with_its_last_token():
    reply = Reply(Request([0], SamplingParams(stop="yz")), 5, ByteTokenizer())
    assert reply.accept(ord("y")).text == ""
    last = reply.accept(ord("!"), is_complete=True)
    assert (last.text, last.finish_reason, last.stop_reason) == ("y!", "stop", None)


def test_a_stop_token_that_is_shown_comes_behind_what_was_held_back():
    params = SamplingParams(stop="yz", include_stop_token=True)
    reply = Reply(Request([0], params, frozenset(b"!")), None, ByteTokenizer())
    assert reply.accept(ord("y")).text == ""
    assert reply.accept(ord("!")).text == "y!"


@pytest.mark.parametrize("keeps", [False, True])
def test_without_a_tokenizer_there_are_ids_alone(keeps):
    params = SamplingParams(include_stop_token=keeps)
    reply = Reply(Request([0], params, frozenset([9])), None, None)
    events = [reply.accept(token_id) for token_id in (3, 9)]
    assert [event.text for event in events] == ["", ""]
    assert [event.token_id for event in events] == [3, 9 if keeps else None]
