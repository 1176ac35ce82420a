"""What a constraint allows, for a tokenizer of every kind."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from llamita.errors import GenerationError
from llamita.inference import constraint_compile
from llamita.inference.constraint_grammars import write_grammar
from llamita.inference.constraint_tokens import Alphabet, byte_table
from llamita.inference.constraints import compile_constraint
from llamita.inference.params import SamplingParams
from llamita.tokenizer import Tokenizer
from tests.inference.conftest import ByteTokenizer
from tests.inference.constraint_cases import KINDS, allowed, constrain, say, tokenizer_of

TOOL_CALL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"enum": ["get_weather", "search"]},
        "arguments": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
                "exact": {"type": ["boolean", "null"]},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
REGEXES = [
    r"[0-9]{3}-[a-z]+",
    r"(yes|no|maybe)( [a-z]{1,4})*\.",
    r" [a-z]+",
    r"\s?[a-z]+/\S",
    r".{1,5}",
    r"(?i)abc|\"x\"",
    r"a|ab|abc",
]
CHOICES = ["a", "ab", "yes", " yes", 'say "hi"', "a/b\\c", "x|y.*", "two\nlines"]


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return tokenizer_of(request.param)


def prompts(tokenizer: Tokenizer) -> list[list[int]]:
    """Nothing, no text, some text."""
    return [[], list(tokenizer.special_tokens.values())[:1], tokenizer.encode("the")]


def stops(tokenizer: Tokenizer) -> list[int]:
    return list(tokenizer.special_tokens.values())[-2:]


def test_json_parses_and_fits_its_schema(tokenizer: Tokenizer) -> None:
    constraint = constrain(tokenizer, stops(tokenizer), schema=TOOL_CALL)
    for seed in range(4):
        for prompt in prompts(tokenizer):
            text, reason = say(tokenizer, constraint, seed, prompt=prompt, most=400)
            assert reason == "stop"
            Draft202012Validator(TOOL_CALL).validate(json.loads(text))


def test_any_object_parses(tokenizer: Tokenizer) -> None:
    constraint = constrain(tokenizer, schema=True)
    finished = 0
    for seed in range(8):
        text, reason = say(tokenizer, constraint, seed)
        if reason == "stop":
            finished += 1
            assert isinstance(json.loads(text), dict)
            text.encode()
    assert finished


@pytest.mark.parametrize("regex", REGEXES)
def test_a_regular_expression_matches_the_whole_text(tokenizer: Tokenizer, regex: str) -> None:
    constraint = constrain(tokenizer, stops(tokenizer), regex=regex)
    for seed in range(4):
        for prompt in prompts(tokenizer):
            text, reason = say(
                tokenizer, constraint, seed, prompt=prompt, stop_token_ids=stops(tokenizer)
            )
            if reason == "stop":
                assert re.fullmatch(regex, text), text


def test_one_of_the_choices_is_said_and_each_can_be(tokenizer: Tokenizer) -> None:
    choices = [choice for choice in CHOICES if "\n" not in choice or spells_lines(tokenizer)]
    ends = stops(tokenizer)
    constraint = constrain(tokenizer, ends, choices=choices)
    for prompt in prompts(tokenizer):
        for seed in range(8):
            text, reason = say(tokenizer, constraint, seed, prompt=prompt, stop_token_ids=ends)
            assert (text in choices, reason) == (True, "stop")
        hidden = " " if tokenizer.strips_leading_space and tokenizer.decode(prompt) == "" else ""
        for choice in choices:
            matcher = constraint.start(prompt)
            rest = (hidden + choice).encode()
            while rest:
                fitting = [i for i in allowed(matcher) if rest.startswith(piece(tokenizer, i))]
                matcher.accept(fitting[-1])
                rest = rest[len(tokenizer.token_bytes(fitting[-1])) :]
            assert matcher.is_complete or set(ends) <= set(allowed(matcher))


def piece(tokenizer: Tokenizer, token_id: int) -> bytes:
    """The bytes of a token of text; of another what nothing begins with."""
    return tokenizer.token_bytes(token_id) or b"\xff"


def spells_lines(tokenizer: Tokenizer) -> bool:
    return any(tokenizer.token_bytes(i) == b"\n" for i in range(tokenizer.vocab_size))


def test_a_grammar_with_recursion(tokenizer: Tokenizer) -> None:
    grammar = 'start: e\ne: f (("+" | "*") f)*\nf: /[0-9]/ | "(" e ")"  // "as Python has it"'
    constraint = constrain(tokenizer, stops(tokenizer), grammar=grammar)
    finished = 0
    for seed in range(30):
        for prompt in prompts(tokenizer):
            text, reason = say(
                tokenizer, constraint, seed, prompt=prompt, stop_token_ids=stops(tokenizer), most=60
            )
            if reason == "stop":
                finished += 1
                assert re.fullmatch(r"[0-9+*()]+", text)
                compile(text, "<text>", "eval")
    assert finished


def test_characters_that_are_split_over_tokens() -> None:
    tokenizer = ByteTokenizer()
    constraint = constrain(tokenizer, schema={"const": {"名": "é€👩"}})
    text, reason = say(tokenizer, constraint, 0)
    assert (json.loads(text), reason) == ({"名": "é€👩"}, "stop")


def test_stop_tokens_come_only_where_the_text_may_end() -> None:
    tokenizer = ByteTokenizer()
    matcher = constrain(tokenizer, [256, 257], regex="ab*").start([])
    assert allowed(matcher) == [ord("a")]
    matcher.accept(ord("a"))
    assert allowed(matcher) == [ord("b"), 256, 257]
    assert not matcher.is_complete
    matcher.accept(257)
    assert matcher.is_complete


def test_a_stop_token_that_is_text_ends_the_text_and_is_never_part_of_it() -> None:
    matcher = constrain(ByteTokenizer(), [ord("b")], regex="a[bc]*").start([])
    matcher.accept(ord("a"))
    assert allowed(matcher) == [ord("b"), ord("c")]
    matcher.accept(ord("b"))
    assert matcher.is_complete


def test_a_stop_token_that_the_text_needs_is_an_error() -> None:
    matcher = constrain(ByteTokenizer(), [ord("b")], regex="ab").start([])
    matcher.accept(ord("a"))
    with pytest.raises(GenerationError, match="after 'a' no token fits regex"):
        matcher.mask()


def test_without_stop_tokens_a_text_ends_where_nothing_may_follow() -> None:
    matcher = constrain(ByteTokenizer(), regex="ab?").start([])
    matcher.accept(ord("a"))
    assert not matcher.is_complete  # it may go on, so it does
    assert allowed(matcher) == [ord("b")]
    matcher.accept(ord("b"))
    assert matcher.is_complete
    assert allowed(matcher) == []


def test_padded_ids_and_stop_tokens_beyond_the_vocabulary_are_never_allowed() -> None:
    matcher = constrain(ByteTokenizer(), [256, 300], regex="a").start([])
    assert len(matcher.mask()) == -(-ByteTokenizer.vocab_size // 32)
    matcher.accept(ord("a"))
    assert allowed(matcher) == [256]


def test_rows_of_one_constraint_do_not_disturb_each_other() -> None:
    constraint = constrain(ByteTokenizer(), [256], regex="ab")
    first, second = constraint.start([]), constraint.start([])
    first.accept(ord("a"))
    assert allowed(second) == [ord("a")]
    assert allowed(first) == [ord("b")]


def test_json_has_no_white_space_but_single_spaces() -> None:
    tokenizer = ByteTokenizer()
    matcher = constrain(tokenizer, schema=TOOL_CALL).start([])
    for byte in b' {"name": "search", "arguments": ':
        assert byte in allowed(matcher)
        matcher.accept(byte)
    assert allowed(matcher) == [ord("{")]
    tight = constrain(tokenizer, schema=TOOL_CALL).start([])
    for byte in b'{"name":"search","arguments":{"city":"x","days":1}}':
        assert byte in allowed(tight)
        tight.accept(byte)
    assert tight.is_complete


def test_properties_come_in_the_order_of_the_schema() -> None:
    schema = {"type": "object", "properties": {"z": {"const": 1}, "a": {"const": 2}}}
    schema |= {"required": ["a", "z"], "additionalProperties": False}
    text, _ = say(ByteTokenizer(), constrain(ByteTokenizer(), schema=schema), 0)
    assert list(json.loads(text)) == ["z", "a"]


def test_a_prompt_that_ends_inside_a_character_is_refused() -> None:
    tokenizer = ByteTokenizer()
    constraint = constrain(tokenizer, regex="a")
    for data in (b"\xc3", b"x\xe2\x82", "é".encode() + b"\xf0\x9f\x91"):
        with pytest.raises(GenerationError, match="middle of a character"):
            constraint.start(list(data))
    for data in (b"", b"x", "é€👩".encode(), b"\xa9", b"\xff"):
        constraint.start(list(data))


def test_no_setting_is_no_constraint() -> None:
    assert compile_constraint(SamplingParams(), ByteTokenizer(), ()) is None
    assert compile_constraint(SamplingParams(), None, ()) is None


def test_a_model_without_tokenizer_is_told_so() -> None:
    with pytest.raises(GenerationError, match="regex is given, but this model has no tokenizer"):
        compile_constraint(SamplingParams(regex="a"), None, ())


def test_stop_strings_could_cut_the_text() -> None:
    with pytest.raises(GenerationError, match="could cut the text that choices"):
        constrain(ByteTokenizer(), choices=["a"], stop="b")


def test_texts_that_use_up_the_states_of_a_grammar_do_not_end_those_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constraint_compile, "_STATES", 1000)
    constraint = constrain(ByteTokenizer(), [256], regex="[ab]*a[ab]{12}")

    def write(seed: int, length: int) -> None:
        draw, matcher = random.Random(seed), constraint.start([])
        for _ in range(length):
            assert allowed(matcher)[:2] == [ord("a"), ord("b")]
            matcher.accept(draw.choice(b"ab"))

    for seed in range(6):
        write(seed, 400)
    # One text that needs more than there may be is an error, and the next one begins again.
    with pytest.raises(GenerationError, match="regex cannot be used"):
        write(0, 5000)
    assert allowed(constraint.start([])) == [ord("a"), ord("b")]


def test_the_search_for_what_cannot_be_written_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    look = constraint_compile.next_mask

    def counted(matcher: Any, table: Any) -> Any:
        looks.append(matcher)
        return look(matcher, table)

    monkeypatch.setattr(constraint_compile, "next_mask", counted)
    grammar = write_grammar("regex", "(?s).*", byte_table().alphabet, after_space=False)
    for alphabet, most in (
        (byte_table().alphabet, 0),
        (Alphabet([b"a", b"b"]), 8 * constraint_compile._LOOKS),
        (Alphabet([bytes([byte]) for byte in range(128)]), 8 * constraint_compile._LOOKS),
    ):
        looks.clear()
        found = constraint_compile.wanted_character("regex", grammar, b"a", alphabet)
        assert (found is None) == alphabet.is_complete
        assert len(looks) <= most
