"""Where an answer begins a tool call."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.inference.call_signs import Call, CallSigns, State, call_signs
from llamita.tokenizer.chat_tools import Syntax, parse_tool_calls

CALL = '{"name": "f", "arguments": {}}'
SYNTAXES: list[Syntax] = ["hermes", "llama3", "json"]
PARTS = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<tool", "_call>", CALL,
         "{", "[", " ", "\n", "a", "é", "\u00a0", "}", "]", '"', "<", ">"]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), max_size=8).map("".join)


def read(signs: CallSigns, pieces: list[bytes]) -> tuple[State | Call, bytes]:
    """Where reading the pieces ends, and what of them follows the beginning of a call."""
    state: State | Call = signs.start
    for place, piece in enumerate(pieces):
        assert isinstance(state, State)
        state = signs.read(state, piece)
        if isinstance(state, Call):
            return state, b"".join(pieces[place + 1 :])
    return state, b""


@pytest.mark.parametrize(
    ("syntax", "text", "written"),
    [
        ("hermes", "See: <tool_call>", ""),
        ("hermes", 'See: <<tool_call>\n{"name', '\n{"name'),
        ("hermes", '{"name": "f"}', None),
        ("hermes", "<tool_response>", None),
        ("llama3", ' \n{"name', '{"name'),
        ("llama3", "a {", None),
        ("llama3", "<|python_tag|>{", "{"),
        ("llama3", "Look: <|python_tag|>", ""),
        ("json", " [ \n {", "[{"),
        ("json", "[ [", None),
        ("json", "[1] {", None),
        ("json", "a[TOOL_CALLS] [", " ["),
        ("json", "\u00a0{", None),
    ],
)
def test_a_call_begins_at_its_sign(syntax: Syntax, text: str, written: str | None) -> None:
    after = call_signs(syntax).read(call_signs(syntax).start, text.encode())
    assert after == Call(written.encode()) if written is not None else isinstance(after, State)


@given(syntax=st.sampled_from(SYNTAXES), text=TEXTS, cuts=st.sets(st.integers(1, 60)))
def test_how_the_text_is_cut_makes_no_difference(syntax: Syntax, text: str, cuts: set[int]) -> None:
    data = text.encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    whole, _ = read(call_signs(syntax), [data])
    state, rest = read(call_signs(syntax), pieces)
    if isinstance(whole, Call):
        assert isinstance(state, Call)
        assert state.written + rest == whole.written
    else:
        assert state == whole


@given(syntax=st.sampled_from(SYNTAXES), text=TEXTS)
def test_what_is_read_as_a_call_was_seen_to_begin(syntax: Syntax, text: str) -> None:
    if parse_tool_calls(text, syntax)[1]:
        state, _ = read(call_signs(syntax), [text.encode()])
        assert isinstance(state, Call)


@given(syntax=st.sampled_from(SYNTAXES), text=TEXTS)
def test_a_sign_ends_with_one_of_the_last_bytes(syntax: Syntax, text: str) -> None:
    signs = call_signs(syntax)
    state: State | Call = signs.start
    for byte in text.encode():
        assert isinstance(state, State)
        state = signs.read(state, bytes([byte]))
        if isinstance(state, Call):
            assert byte in signs.last_bytes
            return


def test_what_may_come_to_belong_to_a_call_is_held() -> None:
    hermes, bare = call_signs("hermes"), call_signs("llama3")
    for text, held in (("", 0), ("a", 0), ("a <tool", 5), ("<<", 1)):
        state = hermes.read(hermes.start, text.encode())
        assert isinstance(state, State)
        assert hermes.held(state) == held
    for text, all_held in ((" ", True), (" [", True), ("a", False)):
        state = bare.read(bare.start, text.encode())
        assert isinstance(state, State)
        assert (bare.held(state) is None) == all_held


def test_behind_reasoning_the_answer_begins_anew() -> None:
    text = b"Hm, {a}.</think>\n\n{"
    for reasons in (True, False):
        signs = call_signs("json", reasons)
        after = signs.read(signs.start, text)
        assert (after == Call(b"{")) == reasons
    hermes = call_signs("hermes", True)
    assert isinstance(hermes.read(hermes.start, text), State)
