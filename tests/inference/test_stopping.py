"""Where a text ends, and what is shown of it, however it was cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamita.errors import GenerationError
from llamita.inference.params import SamplingParams
from llamita.inference.stopping import StopStrings, token_limit


def plain_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(
    pieces=st.lists(st.text("ab\n", max_size=4), max_size=12),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=5),
)
@settings(max_examples=500)
def test_text_is_cut_at_the_first_stop_however_it_comes_in_pieces(pieces, stops):
    matcher = StopStrings(stops)
    shown = ""
    text = ""
    final, matched = plain_stop("".join(pieces), stops)
    for piece in pieces:
        text += piece
        shown += matcher.push(piece)
        assert final.startswith(shown)
        assert not any(stop in shown for stop in stops)
        if matcher.matched is None:
            held = text[len(shown) :]
            assert not held or any(stop.startswith(held) and stop != held for stop in stops)
    shown += matcher.finish()
    assert (shown, matcher.matched) == (final, matched)


@given(data=st.data())
@settings(max_examples=100)
def test_of_many_stops_as_of_one(data):
    """Stops that begin, end and hold each other."""
    stops = data.draw(st.lists(st.text("ab", min_size=1, max_size=12), min_size=20, max_size=60))
    text = data.draw(st.text("abc", max_size=60))
    matcher = StopStrings(stops)
    shown = "".join(map(matcher.push, text)) + matcher.finish()
    assert (shown, matcher.matched) == plain_stop(text, stops)


def test_many_long_stops_cost_no_more_by_character_than_one():
    """Looked for one after the other at every token these would take minutes."""
    stops = ["ab" * 250 + str(number) for number in range(2000)]
    matcher = StopStrings(stops)
    text = ("ab" * 240 + "c") * 100
    shown = "".join(map(matcher.push, text))
    assert shown == text
    assert matcher.push("ab" * 251) == "ab"
    assert (matcher.push("1999"), matcher.matched) == ("", "ab" * 250 + "1")


def test_what_may_begin_a_stop_string_is_held_back_and_shown_when_it_does_not():
    matcher = StopStrings(["\nUser:"])
    assert matcher.push("Hi\nUs") == "Hi"
    assert matcher.push("ing it") == "\nUsing it"
    assert matcher.push("\nUser") == ""
    assert matcher.finish() == "\nUser"


def test_the_stop_string_and_what_follows_are_not_shown():
    matcher = StopStrings(["END"])
    assert matcher.push("one EN") == "one "
    assert matcher.push("D two") == ""
    assert matcher.matched == "END"
    assert matcher.push("three") == ""
    assert matcher.finish() == ""


def test_prompt_and_output_share_the_context():
    assert token_limit(3, SamplingParams(max_tokens=10), 8) == 5
    assert token_limit(3, SamplingParams(max_tokens=2), 8) == 2
    assert token_limit(3, SamplingParams(max_tokens=None), 8) == 5
    assert token_limit(8, SamplingParams(max_tokens=10), 8) == 0
    assert token_limit(3, SamplingParams(max_tokens=0), 8) == 0


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers():
    with pytest.raises(GenerationError, match=r"9 tokens.*8"):
        token_limit(9, SamplingParams(max_tokens=1), 8)
