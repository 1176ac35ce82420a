"""JSON schemas, regular expressions and grammars: generated ones, wrong ones, hostile ones."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from llamita.errors import GenerationError
from tests.inference.conftest import ByteTokenizer
from tests.inference.constraint_cases import constrain, say

TOKENIZER = ByteTokenizer()
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SCALARS = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.builds(
        lambda low, n: {"type": "integer", "minimum": low, "maximum": low + n},
        st.integers(-300, 300),
        st.integers(0, 40),
    ),
    st.builds(lambda n: {"type": "string", "maxLength": n}, st.integers(0, 9)),
    st.builds(
        lambda values: {"enum": values},
        st.lists(st.one_of(NAMES, st.integers(), st.none()), min_size=1, max_size=4),
    ),
    st.builds(lambda value: {"const": value}, st.one_of(NAMES, st.lists(NAMES, max_size=2))),
    st.sampled_from(["date", "time", "date-time", "ipv4", "uuid"]).map(
        lambda name: {"type": "string", "format": name}
    ),
    st.just({"type": "string", "pattern": "^[a-c]+(-[0-9]{2})?$"}),
)


def _object(properties: dict[str, Any], optional: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties)[optional:],
        "additionalProperties": False,
    }


SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(_object, st.dictionaries(NAMES, inner, max_size=3), st.integers(0, 2)),
        st.builds(
            lambda items, least: {
                "type": "array",
                "items": items,
                "minItems": least,
                "maxItems": 3,
            },
            inner,
            st.integers(0, 2),
        ),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


@settings(max_examples=120)
@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
def test_what_is_said_fits_the_schema(schema: dict[str, Any], seed: int) -> None:
    constraint = constrain(TOKENIZER, [256], schema=schema)
    text, reason = say(TOKENIZER, constraint, seed, stop_token_ids=[256], most=2000)
    assert reason == "stop"
    Draft202012Validator(schema).validate(json.loads(text))


@given(choices=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_any_text_can_be_a_choice(choices: list[str]) -> None:
    constraint = constrain(TOKENIZER, [256], choices=choices)
    text, reason = say(TOKENIZER, constraint, 0, stop_token_ids=[256], most=2000)
    assert (text in choices, reason) == (True, "stop")


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_literal_regular_expression_is_said(text: str) -> None:
    constraint = constrain(TOKENIZER, regex=re.escape(text).replace(r"\ ", " "))
    assert say(TOKENIZER, constraint, 0, most=2000) == (text, "stop")


@pytest.mark.parametrize(
    ("regex", "text"),
    [("a/b", "a/b"), (r"a\/b", "a/b"), (r"\\/", "\\/"), ("[/]", "/"), ("//", "//"), ("#", "#"),
     ('"', '"'), ("^ab$", "ab"), (r"\Aab\z", "ab"), (r"\((?:x)", "(x"),
     ("a\nb", "a\nb"), ("a\\\nb", "a\nb")],
)  # fmt: skip
def test_signs_that_lark_would_read_are_those_of_the_expression(regex: str, text: str) -> None:
    assert say(TOKENIZER, constrain(TOKENIZER, regex=regex), 0) == (text, "stop")


def test_recursive_schemas() -> None:
    schema = {"anyOf": [{"const": 1}, {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}]}
    constraint = constrain(TOKENIZER, schema=schema)
    for seed in range(5):
        text, reason = say(TOKENIZER, constraint, seed, most=2000)
        assert reason == "stop"
        Draft202012Validator(schema).validate(json.loads(text))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strin"}, "schema cannot be used: Invalid type: strin"),
        ({"typ": "string"}, "schema has the keyword 'typ'"),
        ({"type": "string", "nullable": True}, "the keyword 'nullable'"),
        ({"type": "string", "x-guidance": {"lenient": True}}, "the keyword 'x-guidance'"),
        ({"not": {"type": "string"}}, "the keyword 'not'"),
        ({"items": {"anyOf": [{"uniqueItems": True}]}}, "the keyword 'uniqueItems'"),
        ({"$defs": {"a": {"if": True}}}, "the keyword 'if'"),
        ({"type": "string", "format": "colour"}, "Unknown format: colour"),
        ({"type": "string", "pattern": "(?=a)"}, "look-around"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "minimum .5. is greater than maximum"),
        ({"anyOf": [{"$ref": "#"}]}, "schema allows no text"),
        ({"$ref": "#/$defs/missing"}, "does not exist"),
        ({"$ref": "https://example.com/a.json"}, "example.com"),
        ({"oneOf": [{"type": "string"}, {"type": "string"}]}, "oneOf"),
        ({"type": "object", "minProperties": 2}, "minProperties 2 and requires 0 by name"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        constrain(TOKENIZER, schema=schema)


def test_words_that_say_nothing_of_the_text_are_read_over() -> None:
    schema = {"title": "T", "description": "D", "default": 1, "examples": [2], "const": 3}
    schema |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "deprecated": True}
    assert say(TOKENIZER, constrain(TOKENIZER, schema=schema), 0)[0].strip() == "3"


@pytest.mark.parametrize(
    ("regex", "message"),
    [
        ("(a", "unclosed group"),
        ("a(?=b)", "look-around"),
        (r"(a)\1", "backreferences"),
        (r"\bword", "lookarounds not supported"),
        ("(?x) a # b", "the flag x is not supported"),
        ("a{0}", "regex allows no text at all"),
        (r"[^\s\S]", "regex allows no text at all"),
        ("\ud800", "lone surrogate U"),
    ],
)
def test_a_wrong_regular_expression_is_refused(regex: str, message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        constrain(TOKENIZER, regex=regex)


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("start: a", 'unknown name: "a"'),
        ('a: "x"', "no start rule"),
        ("start: start", "grammar allows no text at all"),
        ('start: "a" <|im_end|>', "names the token <|im_end|>"),
        ("start: <[5]>", re.escape("names the token <[5]>")),
        ('start: a\na[stop="x"]: /b+/', "sets stop of a rule"),
    ],
)
def test_a_wrong_grammar_is_refused(grammar: str, message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        constrain(TOKENIZER, grammar=grammar)


def test_what_looks_like_a_token_may_stand_in_quotes() -> None:
    grammar = 'start: "<a>" TAG // <b>\nTAG: /<[cd]>/ # stop=1'
    text, reason = say(TOKENIZER, constrain(TOKENIZER, grammar=grammar), 0)
    assert (text in ("<a><c>", "<a><d>"), reason) == (True, "stop")


def test_a_grammar_cannot_have_texts_spelled_one_way_alone() -> None:
    grammar = '%llguidance {"no_forcing": false}\nstart: "abc"'
    assert say(TOKENIZER, constrain(TOKENIZER, grammar=grammar), 0) == ("abc", "stop")


def test_json_within_a_grammar_is_written_and_checked_as_schemas_are() -> None:
    inner = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    inner |= {"additionalProperties": False}
    grammar = f'start: "<tool_call>" call "</tool_call>"\ncall: %json {json.dumps(inner)}\n'
    texts = {say(TOKENIZER, constrain(TOKENIZER, grammar=grammar), seed) for seed in range(8)}
    bodies = ('{"a":1}', '{"a": 1}')
    assert texts == {(f"<tool_call>{body}</tool_call>", "stop") for body in bodies}
    for bad, message in (('{"not": true}', "the keyword 'not'"), ('{"type": ', "no JSON")):
        with pytest.raises(GenerationError, match=message):
            constrain(TOKENIZER, grammar=f"start: %json {bad}")


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "hostile",
    [
        {"regex": "(" * 20_000 + "a" + ")" * 20_000},
        {"regex": "((a{1,1000}){1,1000}){1,1000}"},
        {"regex": "(a?){1000}a{1000}"},
        {"regex": "(a|b)*a(a|b){500}"},
        {"regex": "a?" * 500_000},
        {"schema": {"type": "string", "pattern": "a?" * 400_000}},
        {"grammar": "start: " + '"a"? ' * 150_000},
        {"grammar": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000},
        {"grammar": 'start: start start | "a"'},
        {"grammar": "start: x{1000}\nx: y{1000}\ny: z{1000}\nz: \"a\""},
        {"schema": _nested(300)},
        {"schema": {"enum": [f"value {i}" for i in range(20_000)]}},
        {"schema": {"type": "object", "properties": {f"p{i}": True for i in range(30_000)}}},
        {"schema": {"allOf": [{"anyOf": [
            {"type": "object", "properties": {f"{name}{i}": True}} for name in "ab"
        ]} for i in range(30)]}},
        {"schema": {"allOf": [{"type": "string", "pattern": f"a{{{i},}}"} for i in range(60)]}},
        {"schema": {"allOf": [{"type": "string", "pattern": f"a{{{i},}}"} for i in range(10)]}},
        {"schema": {"type": "object", "patternProperties": {f"^a{i}$": True for i in range(900)}}},
        {"schema": {"$ref": "#/$defs/0", "$defs": {
            str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(20_000)
        }}},
        {"grammar": "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(20_000))},
        {"grammar": "start: A\nA: " + " & ".join(f"/a{{{i},}}/" for i in range(60))},
        {"schema": {"type": "integer", "multipleOf": 999_999_937}},
        {"choices": [f"choice number {i}" for i in range(20_000)]},
    ],
)  # fmt: skip
def test_hostile_grammars_are_refused_or_bounded(hostile: dict[str, Any]) -> None:
    try:
        say(TOKENIZER, constrain(TOKENIZER, [256], **hostile), 0, stop_token_ids=[256], most=60)
    except GenerationError as refused:
        message = refused.message
    else:
        message = ""
    assert len(message) < 3000


def test_a_one_of_whose_parts_overlap_is_refused_in_plain_words() -> None:
    parts = [{"type": "integer"}, {"type": "number"}]
    with pytest.raises(GenerationError, match="oneOf of which more than one part") as caught:
        constrain(ByteTokenizer(), schema={"oneOf": parts})
    assert "coerce" not in str(caught.value)
    constrain(ByteTokenizer(), schema={"oneOf": [{"type": "integer"}, {"type": "string"}]})
