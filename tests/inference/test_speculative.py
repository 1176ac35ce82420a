"""Drafts come from the text itself, and only where they pay."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.inference.speculative import PromptLookup, StepTimes, plan

few = st.lists(st.integers(0, 3), max_size=60)


def measured(plain: float = 1.0, drafting: float = 1.4, rows: int = 1) -> StepTimes:
    times = StepTimes()
    for _ in range(7):
        times.observe(rows, 0, plain)
        for length in (1, 2, 4, 8, 16):
            times.observe(rows, length, drafting)
    return times


def draft_of(lookup: PromptLookup, limit: int, times: StepTimes | None = None) -> list[int]:
    """What a row alone in its step drafts."""
    [draft] = plan([lookup], [limit], times or StepTimes())
    return draft


def spoken(
    prompt: list[int], output: list[int], max_draft: int = 8, times: StepTimes | None = None
) -> tuple[int, int, list[int]]:
    """Generate `output` as an engine would: steps taken, tokens drafted, steps' yields."""
    lookup = PromptLookup(prompt, max_draft)
    place = drafted = 0
    yields = []
    while place < len(output):
        draft = draft_of(lookup, len(output) - place - 1, times or measured())
        kept = 0
        while kept < len(draft) and draft[kept] == output[place + kept]:
            kept += 1
        for token_id in output[place : place + kept + 1]:
            lookup.append(token_id)
        drafted += len(draft)
        place += kept + 1
        yields.append(kept + 1)
    return len(yields), drafted, yields


@given(prompt=few, output=few, limit=st.integers(0, 12))
def test_a_guess_is_a_continuation_that_stands_in_the_text(
    prompt: list[int], output: list[int], limit: int
) -> None:
    lookup = PromptLookup(prompt, 9)
    for token_id in output:
        lookup.append(token_id)
    text = prompt + output
    guess = lookup.continuation(limit)
    assert len(guess) <= min(limit, 9)
    if not guess:
        pairs = list(itertools.pairwise(text))
        assert limit == 0 or not pairs or pairs[-1] not in pairs[:-1]
        return
    whole = text + guess
    sources = [
        source
        for source in range(2, len(text))
        if whole[source - 2 : source] == text[-2:] and whole[source : source + len(guess)] == guess
    ]
    assert sources, "the last two tokens and the guess stand together nowhere before"


@given(prompt=few, output=few)
def test_the_prompt_and_what_follows_are_read_alike(prompt: list[int], output: list[int]) -> None:
    at_once, one_by_one = PromptLookup(prompt + output, 5), PromptLookup(prompt, 5)
    for token_id in output:
        one_by_one.append(token_id)
    assert bool(at_once.continuation(5)) == bool(one_by_one.continuation(5))
    for lookup in (at_once, one_by_one):
        for token_id in (1, 2, 3, 4, 5, 6, 7, 1, 2, 3):  # from here on both follow one source
            lookup.append(token_id + 10)
        assert lookup.continuation(4) == [14, 15, 16, 17]


@given(prompt=few, output=few, limit=st.integers(0, 12), longest=st.integers(1, 6))
def test_no_draft_is_longer_than_its_limit(
    prompt: list[int], output: list[int], limit: int, longest: int
) -> None:
    lookup = PromptLookup(prompt, longest)
    for token_id in output:
        lookup.append(token_id)
        chances = lookup.chances(limit)
        assert len(draft_of(lookup, limit)) <= len(chances) <= min(limit, longest)
        assert len(draft_of(lookup, limit, measured(drafting=0.1))) == len(chances)
        assert chances == sorted(chances, reverse=True)
        assert all(0 <= chance < 1 for chance in chances)


def test_the_longest_match_is_followed_and_the_latest_of_equals() -> None:
    assert PromptLookup([1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3], 4).continuation(1) == [7]
    assert PromptLookup([2, 3, 7, 0, 2, 3, 8, 5, 2, 3], 4).continuation(1) == [8]


def test_a_text_that_goes_round_is_guessed_to_go_on() -> None:
    lookup = PromptLookup([5, 1, 2, 3, 1, 2, 3], 8)
    assert lookup.continuation(8) == [1, 2, 3, 1, 2, 3, 1, 2]


def test_text_without_repetition_is_hardly_drafted_for() -> None:
    draw = random.Random(0)
    # Pairs come again all the time, what follows them does not.
    output = [draw.randrange(30) for _ in range(2000)]
    steps, drafted, _ = spoken([], output)
    assert drafted < 40
    assert steps > 1980


def test_copying_is_drafted_for_and_once_more_after_a_long_pause() -> None:
    draw = random.Random(1)
    source = [draw.randrange(1000) for _ in range(300)]
    plain = [draw.randrange(30) for _ in range(1500)]
    steps, _, yields = spoken(source, [*source, *plain, *source])
    assert steps < 1500 + 2 * 300 / 5
    assert max(yields[:40]) == max(yields[-20:]) == 9


def test_a_copy_with_edits_finds_its_way_back() -> None:
    draw = random.Random(2)
    source = [draw.randrange(1000) for _ in range(400)]
    edited = [5000 + place if place % 40 == 20 else token for place, token in enumerate(source)]
    steps, _, _ = spoken(source, edited)
    assert steps < 400 / 2


def test_where_a_pass_costs_as_much_as_its_tokens_nothing_is_drafted() -> None:
    times = StepTimes()
    for _ in range(7):
        times.observe(1, 0, 1.0)
        for length in (1, 3, 7, 15):
            times.observe(1, length, 1.0 + length)
    source = list(range(100))
    _, drafted, _ = spoken(source, source, times=times)
    assert drafted == 0


def test_a_dear_pass_is_drafted_for_by_the_length_that_pays() -> None:
    times = StepTimes()
    for _ in range(7):
        for length, seconds in ((0, 1.0), (1, 1.9), (2, 1.9), (4, 4.0), (8, 9.0)):
            times.observe(1, length, seconds)
    lookup = PromptLookup([*range(50), *range(40)], 8)
    assert draft_of(lookup, 8, times) == [40, 41, 42]


def test_the_first_slow_passes_do_not_turn_drafts_off_for_good() -> None:
    times = StepTimes()
    lookup = PromptLookup([*range(80), *range(40)], 8)
    times.observe(1, 0, 1.0)
    for _ in range(2):
        assert draft_of(lookup, 8, times)
        for length in (1, 2, 4, 8):
            times.observe(1, length, 60.0)  # a compilation
    assert draft_of(lookup, 8, times)
    for length in (1, 2, 4, 8):
        times.observe(1, length, 60.0)
    assert draft_of(lookup, 8, times) == []
    for _ in range(256):  # it really is slow; after many steps it is tried again
        assert draft_of(lookup, 8, times) == []
        times.observe(1, 0, 1.0)
    assert draft_of(lookup, 8, times)


def test_rows_of_a_step_share_one_pass_and_the_surest_tokens_are_read() -> None:
    sure = PromptLookup([*range(90), *range(40)], 8)
    unsure = PromptLookup([1, 2, 3, 4, 1, 2], 8)
    nothing = PromptLookup([1, 2, 3], 8)
    times = measured(rows=4, drafting=1.1)
    for _ in range(7):
        times.observe(4, 8, 3.0)
        times.observe(4, 16, 5.0)
    drafts = plan([nothing, unsure, None, sure], [8, 8, 8, 8], times)
    assert drafts == [[], [], [], [40, 41, 42, 43, 44, 45, 46]]
    # One row's gain does not pay for a pass that makes all four wait.
    assert plan([nothing, unsure, None, sure], [8] * 4, measured(rows=4, drafting=4.0)) == [[]] * 4


def test_limits_hold_for_each_row_of_a_plan() -> None:
    lookups = [PromptLookup([*range(90), *range(40)], 8) for _ in range(3)]
    drafts = plan(lookups, [0, 1, 5], measured(rows=3, drafting=0.5))
    assert [len(draft) for draft in drafts] == [0, 1, 5]


@pytest.mark.parametrize("tokens", [[], [1], [1, 1], [1, 1, 1]])
def test_the_shortest_texts_are_taken(tokens: list[int]) -> None:
    lookup = PromptLookup(tokens, 4)
    assert lookup.continuation(4) == ([1] * 4 if len(tokens) == 3 else [])
    lookup.append(2)
    assert lookup.continuation(4) == []


def test_long_texts_take_a_constant_time_for_each_token() -> None:
    # Work that grew with the text would not end within minutes here.
    lookup = PromptLookup([0] * 200_000, 8)
    for place in range(50_000):
        lookup.append(0)
        lookup.chances(8)
        if place % 100 == 0:
            assert lookup.continuation(8) == [0] * 8
