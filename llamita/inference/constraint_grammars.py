"""The four ways to say what a text may be, written as grammars of llguidance.

JSON is written on one line, with at most one space after each comma and colon, and at most one in
front: small models like to fill a page with white space, and this way a text comes to its end. A
regular expression has to match the whole text.

Where a vocabulary cannot write every character, what it cannot write is left out: of a regular
expression exactly; of the others whatever they require must be within its alphabet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from llamita.errors import GenerationError
from llamita.inference.constraint_regex import ascii_classes
from llamita.inference.constraint_schemas import (
    LONGEST_REGEX,
    check_schema,
    json_escapes,
    required_texts,
)
from llamita.inference.constraint_tokens import Alphabet

LONGEST = {
    "schema": 1_000_000,
    "regex": LONGEST_REGEX,
    "grammar": 100_000,
    "choices": 1_000_000,
}
"""Characters that are read of each, of all choices together; in seconds at the worst."""

# Without this, llguidance would have a forced text written in one spelling alone. The last one in
# a grammar counts.
_ANY_SPELLING = '\n%llguidance {"no_forcing": true}\n'
_VERBOSE_FLAG = re.compile(r"(?<!\\)\(\?[a-zA-Z]*x")
_LARK = re.compile(
    r"//[^\n]*|#[^\n]*|/(?:\\.|[^/\\\n])+/"
    r'|"(?P<literal>(?:\\.|[^"\\\n])*)"'
    r"|(?P<token><[^<>\s]+>)|\b(?P<option>stop|temperature)\s*="
    r"|(?P<rule>:)|(?P<both>&)"
)
_JSON = re.compile(r"%json\s*(?={)")
_MOST_RULES = 1000  # one that leads to the next takes stack in llguidance
_MOST_INTERSECTIONS = 4  # of regular expressions; the work grows with their product


def write_grammar(kind: str, text: str, alphabet: Alphabet, *, after_space: bool) -> str:
    """llguidance's JSON of a grammar. `kind` is the setting's name; choices come as a JSON list.

    after_space: the text begins with a space that is not shown, so one more stands in front.

    Raises:
        GenerationError: a schema, or one that is too large; or it cannot be written.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise GenerationError(
            f"{kind} is no valid Unicode: a lone surrogate U+{ord(text[error.start]):04X} at "
            f"character {error.start}."
        ) from None
    if len(text) > LONGEST[kind]:
        raise GenerationError(
            f"{kind} has {len(text):,} characters; at most {LONGEST[kind]:,} are read.",
            hint="Make it smaller.",
        )
    if kind == "schema":
        return _of_schema(text, alphabet)
    if kind == "grammar":
        return _of_lark(text, alphabet, after_space)
    body = _of_regex(text, alphabet) if kind == "regex" else _of_choices(text, alphabet)
    lead = '" " ' if after_space else ""
    return grammars(f"start: TEXT\nTEXT: {lead}({body})")


def _of_schema(text: str, alphabet: Alphabet) -> str:
    schema = with_options(json.loads(text), "schema", alphabet)
    # A space in front does no harm to JSON, whether it is shown or not.
    return grammars('start: " "? @json', json={"json_schema": schema})


def with_options(schema: dict[str, Any], kind: str, alphabet: Alphabet) -> dict[str, Any]:
    """A checked schema that says how its JSON is written."""
    check_schema(schema)
    if not alphabet.is_complete:
        check_writable(kind, required_texts(schema), alphabet)
    options = {
        "item_separator": ", ?",
        "key_separator": ": ?",
        "whitespace_flexible": False,
        "json_allowed_escapes": json_escapes(alphabet),
    }
    return {**schema, "x-guidance": options}


def _of_lark(text: str, alphabet: Alphabet, after_space: bool) -> str:
    plain, text = _split_json(text, alphabet)
    rules = intersections = 0
    for part in _LARK.finditer(plain):
        rules += part["rule"] is not None
        intersections += part["both"] is not None
        if part["token"]:
            raise GenerationError(
                f"the grammar names the token {part['token']}: only text can be constrained.",
                hint='A text is written in quotes, "like this".',
            )
        if part["option"]:
            raise GenerationError(
                f"the grammar sets {part['option']} of a rule, which is not supported.",
                hint="A rule can have suffix, lazy and max_tokens; temperature is a setting.",
            )
    if rules > _MOST_RULES or intersections > _MOST_INTERSECTIONS:
        raise GenerationError(
            f"the grammar has {rules} rules and {intersections} signs &; it may have "
            f"{_MOST_RULES} and {_MOST_INTERSECTIONS}.",
            hint="Make it smaller.",
        )
    if not alphabet.is_complete:
        check_writable("grammar", _lark_literals(plain), alphabet)
    if after_space:
        return grammars('start: " " @text', text={"lark_grammar": text + _ANY_SPELLING})
    return grammars(text)


def _split_json(text: str, alphabet: Alphabet) -> tuple[str, str]:
    """A grammar without its JSON schemas (`%json {…}`), and with them, checked, as ours are."""
    plain = whole = ""
    at = 0
    for found in _JSON.finditer(text):
        if found.start() < at:
            continue
        try:
            schema, end = json.JSONDecoder().raw_decode(text, found.end())
        except (ValueError, RecursionError) as error:
            raise GenerationError(f"the grammar has a %json that is no JSON: {error}.") from None
        schema = with_options(schema, "grammar", alphabet)
        plain += text[at : found.start()] + '""'
        whole += text[at : found.end()] + json.dumps(schema, ensure_ascii=False)
        at = end
    return plain + text[at:], whole + text[at:]


def _of_regex(regex: str, alphabet: Alphabet) -> str:
    if _VERBOSE_FLAG.search(regex):
        raise GenerationError(
            f"regex is {regex!r}, and the flag x is not supported.",
            hint="Write it without white space and comments.",
        )
    body = _terminal(ascii_classes(regex))
    return body if alphabet.is_complete else f"{body} & /{alphabet.character_class()}*/"


def _of_choices(text: str, alphabet: Alphabet) -> str:
    choices: list[str] = json.loads(text)
    check_writable("choices", choices, alphabet)
    return f"/{'|'.join(map(escaped_regex, choices))}/"


def _terminal(regex: str) -> str:
    """A regular expression between slashes, on one line."""
    return "/" + re.sub(r"\\.|/|\n", _slash_escape, regex, flags=re.DOTALL) + "/"


def _slash_escape(match: re.Match[str]) -> str:
    part = match[0]
    if part in ("/", "\\/"):
        return r"\x2F"
    return r"\n" if part in ("\n", "\\\n") else part


def escaped_regex(text: str) -> str:
    """A regular expression for exactly `text`: letters and digits as they are, else by number."""
    return "".join(c if c.isascii() and c.isalnum() else rf"\x{{{ord(c):X}}}" for c in text)


def _lark_literals(text: str) -> Iterator[str]:
    for part in _LARK.finditer(text):
        if part["literal"]:
            try:
                yield json.loads(f'"{part["literal"]}"')
            except ValueError:  # no JSON string: llguidance says what it thinks of it
                yield part["literal"]


def check_writable(kind: str, texts: Iterator[str] | list[str], alphabet: Alphabet) -> None:
    """Raise GenerationError at the first character of the texts that the vocabulary lacks."""
    for text in texts:
        character = alphabet.missing(text)
        if character is not None:
            raise cannot_write(kind, character, text)


def cannot_write(kind: str, character: str, text: str | None = None) -> GenerationError:
    """The error that a vocabulary lacks a character."""
    where = "" if text is None or text == character else f" of {text!r}"
    return GenerationError(
        f"the vocabulary cannot write {character!r} (U+{ord(character):04X}){where}, which {kind} "
        "may need.",
        hint="Ask for what the model's tokens can write, or use a model whose tokenizer falls back "
        "to bytes.",
    )


def grammars(lark: str, **named: dict[str, object]) -> str:
    """llguidance's JSON of a grammar in Lark's notation, which may name others as `@name`."""
    parts: list[dict[str, object]] = [{"lark_grammar": lark + _ANY_SPELLING}]
    parts += [{"name": name, **grammar} for name, grammar in named.items()]
    return json.dumps({"grammars": parts}, ensure_ascii=False)
