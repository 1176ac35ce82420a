"""What a vocabulary can write, and how one that cannot write a grammar is refused."""

from __future__ import annotations

import gc
import json
import random
import re
import subprocess
import sys
import weakref

import llguidance
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import GenerationError
from llamita.inference import constraints
from llamita.inference.constraint_grammars import write_grammar
from llamita.inference.constraint_tokens import Alphabet, TokenTable, byte_table
from llamita.tokenizer.base import Tokenizer
from tests.inference.conftest import ByteTokenizer
from tests.inference.constraint_cases import allowed, characters, constrain, say, tokenizer_of

PARTS = [bytes([byte]) for byte in range(0x80, 0x100)]


class Tokens(ByteTokenizer):
    """Tokens of any bytes; the last id ends a text."""

    def __init__(self, tokens: list[bytes]) -> None:
        super().__init__()
        self.tokens = tokens
        self.vocab_size = len(tokens) + 1
        self.special_tokens = {"<eos>": len(tokens)}

    def _token_surface(self, token_id: int) -> bytes:
        return self.tokens[token_id]


def test_bytes_write_every_character() -> None:
    alphabet = byte_table().alphabet
    assert alphabet.is_complete
    assert alphabet.missing("\0aé€𝒳\U0010ffff") is None


@given(text=st.text(), letters=st.frozensets(st.characters(), max_size=8))
def test_an_alphabet_holds_its_characters_alone(text: str, letters: frozenset[str]) -> None:
    alphabet = Alphabet([letter.encode() for letter in letters])
    assert [c in alphabet for c in text] == [c in letters for c in text]
    assert all(letter in alphabet for letter in letters)
    assert not alphabet.is_complete


@given(lead=st.integers(0, 0xFF), character=st.characters(exclude_categories=["Cs"]))
def test_a_leading_byte_that_is_missing_takes_its_characters(lead: int, character: str) -> None:
    alphabet = Alphabet([bytes([byte]) for byte in range(256) if byte != lead])
    if lead in range(0x80, 0xC0):  # then no part of a character is of use
        assert (character in alphabet) == character.isascii()
    else:
        assert (character in alphabet) == (character.encode()[0] != lead)


def test_parts_of_characters_that_cannot_be_ended_are_left_out() -> None:
    tokenizer = Tokens([b"a", b'"', "é".encode(), b"\xc3", b"a\xc3", "aé".encode(), "aö".encode()])
    matcher = constrain(tokenizer, schema={"type": "string"}).start([])
    matcher.accept(1)
    assert allowed(matcher) == [0, 1, 2, 5]


def test_a_token_that_only_a_missing_character_could_follow_does_not_lead_astray() -> None:
    tokenizer = Tokens([b"a", b"b", b"c", b"d"])
    matcher = constrain(tokenizer, regex="ab(c|é)|c(é|d{2}ö)|(éa|b)d").start([])
    assert allowed(matcher) == [0, 1]
    matcher.accept(0)
    matcher.accept(1)
    assert allowed(matcher) == [2]


def test_equal_tokens_are_both_allowed() -> None:
    assert allowed(constrain(Tokens([b"a", b"b", b"a"]), regex="a+b").start([])) == [0, 2]


def test_tokens_too_long_for_the_library_are_left_out() -> None:
    tokenizer = Tokens([b"a", b"a" * 1000, b"a" * 5000])
    assert allowed(constrain(tokenizer, regex="a*b?").start([])) == [0, 1]


@pytest.mark.parametrize("kind", ["byte-level", "spm", "llama", "tiktoken", "gguf-pieces"])
def test_masks_are_those_of_the_tokenizer_json_where_llguidance_reads_it(kind: str) -> None:
    """The other way to tell llguidance of a vocabulary, which not every kind of tokenizer has."""
    tokenizer = tokenizer_of(kind)
    theirs = llguidance.LLTokenizer(json.dumps(tokenizer.definition()))
    table = TokenTable.of(tokenizer)
    grammar = write_grammar("schema", '{"type":"object"}', table.alphabet, after_space=False)
    other = llguidance.LLMatcher(theirs, grammar)
    matcher = constrain(tokenizer, schema=True).start(tokenizer.encode("the"))
    draw = random.Random(0)
    for _ in range(60):
        bits = np.unpackbits(np.frombuffer(other.compute_bitmask(), np.uint8), bitorder="little")
        ids = [int(i) for i in np.flatnonzero(bits) if not tokenizer.is_special(int(i))]
        assert allowed(matcher) == ids
        if not ids:
            break
        token_id = draw.choice(ids)
        matcher.accept(token_id)
        assert other.consume_token(token_id)


LETTERS = characters("abcdefghijklmnopqrstuvwxyz ,.")


@pytest.mark.parametrize(
    ("settings", "character"),
    [
        ({"schema": True}, "'{' (U+007B)"),
        ({"schema": {"type": "string"}}, "'\"' (U+0022)"),
        ({"schema": {"type": "integer"}}, "'0' (U+0030) of '0123456789'"),
        ({"schema": {"type": "array", "items": {"type": "null"}}}, "'[' (U+005B)"),
        ({"regex": "[a-z]+é"}, "'é' (U+00E9)"),
        ({"regex": "(a|E)(b|E)[0-9]"}, "'0' (U+0030)"),
        ({"grammar": 'start: a\na: "x" | "yE"'}, "'E' (U+0045) of 'yE'"),
        ({"grammar": "start: /[0-9]/"}, "'0' (U+0030)"),
        ({"choices": ["yes", "No"]}, "'N' (U+004E) of 'No'"),
    ],
)
def test_a_character_that_cannot_be_written_is_named(
    settings: dict[str, object], character: str
) -> None:
    with pytest.raises(GenerationError, match=re.escape(f"cannot write {character}")):
        constrain(LETTERS, **settings)


def test_names_and_values_of_a_schema_count() -> None:
    marks = characters('abcdefghijklmnopqrstuvwxyz{}[]":, 0123456789')
    good = {"type": "object", "properties": {"a": {"enum": ["b", 1]}}, "required": ["a"]}
    good |= {"additionalProperties": False}
    text, reason = say(marks, constrain(marks, schema=good), 0)
    assert (json.loads(text)["a"] in ("b", 1), reason) == (True, "stop")
    for bad in (
        {**good, "properties": {"é": {"const": 1}}},
        {**good, "properties": {"a": {"const": {"b": ["é"]}}}},
        {**good, "required": ["a", "é"]},
        {**good, "properties": {"a": {"items": {"anyOf": [{"enum": ["é"]}]}, "type": "array"}}},
        {"$ref": "#/$defs/x", "$defs": {"x": {"const": "é"}}},
    ):
        with pytest.raises(GenerationError, match="cannot write 'é'"):
            constrain(marks, schema=bad)


def test_a_dead_end_on_the_way_is_an_error_not_a_broken_text() -> None:
    marks = characters('abc"')
    matcher = constrain(marks, schema={"type": "string", "pattern": "^(b|a[0-9])$"}).start([])
    for letter in '"a':
        [token_id] = marks.encode(letter)
        assert token_id in allowed(matcher)
        matcher.accept(token_id)
    with pytest.raises(GenerationError, match=re.escape("cannot write '0' (U+0030), which schema")):
        matcher.mask()


def test_a_dead_end_inside_a_character_is_named() -> None:
    tokenizer = Tokens([b"a", *PARTS[:64], b"\xc3"])
    matcher = constrain(tokenizer, grammar="start: /aé|a€/").start([])
    matcher.accept(0)
    assert allowed(matcher) == [65]


def test_the_table_goes_with_its_tokenizer() -> None:
    tokenizer = characters("abc")
    constrain(tokenizer, regex="a")
    assert tokenizer in constraints._compilers
    gone = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert gone() is None


def test_a_grammar_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer: Tokenizer = characters("abc")
    first = constrain(tokenizer, regex="a+").start([])
    monkeypatch.setattr(constraints, "new_matcher", None)
    monkeypatch.setattr(TokenTable, "of", None)
    first.accept(tokenizer.encode("a")[0])
    assert len(allowed(constrain(tokenizer, regex="a+").start([]))) == 1


def test_the_library_is_loaded_when_a_text_is_first_constrained() -> None:
    program = (
        "import sys, llamita.inference.constraints;"
        "sys.exit(any(name in sys.modules for name in ('llguidance', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(GenerationError, match="need the package llguidance"):
        constrain(characters("ab"), regex="a")


def test_the_oldest_of_many_grammars_is_forgotten() -> None:
    tokenizer = characters("abc")
    for length in range(1, 50):
        constrain(tokenizer, regex=f"a{{{length}}}")
    assert len(constraints._compilers[tokenizer]._kept) == constraints._KEPT
