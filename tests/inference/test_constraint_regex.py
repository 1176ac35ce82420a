r"""Classes of regular expressions are ASCII: what Python's `re.ASCII` matches, and no more."""

from __future__ import annotations

import random
import re

import pytest

from llamita.inference.constraint_regex import ascii_classes
from llamita.inference.constraints import Matcher
from tests.inference.conftest import ByteTokenizer
from tests.inference.constraint_cases import allowed, constrain, say, tokenizer_of

REGEXES = [
    r"\d{3}",
    r"\w+-\d",
    r"\D\W\S\s",
    r"[\d-]{2}",
    r"[-\d]{2}",
    r"[^\d]{2}",
    r"[^-\w]{2}",
    r"[a-f\d]{3}",
    r"[a-f-\d]{3}",
    r"[]\d]{3}",
    r"[^\]\d]{2}",
    r"[\-\w]{3}",
    r"[\s\S]{2}",
    r"\\d\[\d\]",
    r"(\w|\s){4}",
    r"(?i)x\d",
]
CLOSE = "09azAZ_-[]\\d \t\n\x0b\x0c\r.x" + "໓é²ſ\u2003\x85\x1cΩ\u0301"


@pytest.mark.parametrize("regex", REGEXES)
@pytest.mark.parametrize("kind", ["byte-level", "llama", "char"])
def test_what_is_drawn_is_what_python_matches_in_ascii(regex: str, kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    stops = [max(tokenizer.special_tokens.values())]
    constraint = constrain(tokenizer, stops, regex=regex)
    for seed in range(12):
        text, reason = say(tokenizer, constraint, seed, stop_token_ids=stops)
        if reason == "stop":
            assert re.fullmatch(regex, text, re.ASCII), text


@pytest.mark.parametrize("regex", REGEXES)
def test_every_text_that_python_matches_in_ascii_can_be_drawn(regex: str) -> None:
    constraint = constrain(ByteTokenizer(), [256], regex=regex)
    draw, seen = random.Random(0), {True: 0, False: 0}
    for _ in range(1500):
        text = "".join(draw.choices(CLOSE, k=draw.randint(1, 4)))
        matches = re.fullmatch(regex, text, re.ASCII) is not None
        assert fits(constraint.start([]), text) == matches, text
        seen[matches] += 1
    assert seen[False]


def fits(matcher: Matcher, text: str) -> bool:
    for byte in text.encode():
        if byte not in allowed(matcher):
            return False
        matcher.accept(byte)
    return 256 in allowed(matcher)


@pytest.mark.parametrize(
    ("regex", "written"),
    [
        (r"[!-\d]", r"[!\-[0-9]]"),
        (r"[\w--\d]", "[[0-9A-Za-z_]--[0-9]]"),
        (r"[[:^alpha:]\d]", "[[:^alpha:][0-9]]"),
        (r"[a&&[^\d]]\d", "[a&&[^[0-9]]][0-9]"),
        (r"\p{L}\x{41}-\d", r"\p{L}\x{41}-[0-9]"),
        ("\\", "\\"),
        ("[", "["),
        ("]-", "]-"),
    ],
)
def test_what_only_rust_writes_so(regex: str, written: str) -> None:
    assert ascii_classes(regex) == written


def test_a_pattern_in_a_schema_has_the_same_digits_and_letters() -> None:
    for pattern in (r"^\d$", r"^\w$"):
        constraint = constrain(
            ByteTokenizer(), [256], schema={"type": "string", "pattern": pattern}
        )
        assert fits(constraint.start([]), '"5"')
        assert not fits(constraint.start([]), '"໓"')
