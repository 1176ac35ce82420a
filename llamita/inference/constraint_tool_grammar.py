"""Tool calls as a grammar of llguidance: the name chosen, then the arguments by its own schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llamita.errors import GenerationError
from llamita.inference.constraint_grammars import (
    LONGEST,
    check_writable,
    escaped_regex,
    grammars,
    with_options,
)
from llamita.inference.constraint_tokens import Alphabet
from llamita.tokenizer.chat_tools import CALL_TAGS, Syntax, arguments_key


def write_tool_grammar(
    tools: Sequence[tuple[str, Mapping[str, Any]]],
    syntax: Syntax,
    *,
    parallel: bool,
    opened: bool,
    alphabet: Alphabet,
    control: Mapping[str, int],
) -> str:
    """llguidance's JSON of an answer that is calls and nothing else.

    tools: names and JSON schemas of the arguments. parallel: one call after another may follow.
    opened: the tag or sign that begins the first call stands before the text. control: the ids of
    tags that are control tokens.

    Raises:
        GenerationError: a schema that cannot be enforced, naming the tool, or one too large.
    """
    size = sum(len(json.dumps(schema)) for _, schema in tools)
    if size > LONGEST["schema"]:
        raise GenerationError(
            f"the schemas of the tools have {size:,} characters; at most {LONGEST['schema']:,} "
            "are read.",
            hint="Give fewer tools.",
        )
    rules = [f"tool: {' | '.join(f'tool_{i}' for i in range(len(tools)))}"]
    named: dict[str, dict[str, object]] = {}
    for index, (name, parameters) in enumerate(tools):
        key = arguments_key(syntax)
        head = ('{"name":', f"{json.dumps(name, ensure_ascii=False)},", f'"{key}":')
        if not alphabet.is_complete:
            check_writable("tools", [*head, "}"], alphabet)
        rules.append(f'tool_{index}: HEAD_{index} @arguments_{index} "}}"')
        rules.append(f"HEAD_{index}: /{' ?'.join(map(escaped_regex, head))} ?/")
        named[f"arguments_{index}"] = {"json_schema": _arguments(name, parameters, alphabet)}
    start = _tagged(parallel, opened, control) if syntax == "hermes" else _bare(parallel)
    return grammars("\n".join([*start, *rules]), **named)


def _tagged(parallel: bool, opened: bool, control: Mapping[str, int]) -> list[str]:
    opening, closing = (_tag(tag, control) for tag in CALL_TAGS)
    first = "body" if opened else f"LEAD? {opening} body"
    more = f' ("\\n"? {opening} body)*' if parallel else ""
    lead = [] if opened else [_LEAD]
    return [f"start: {first}{more}", f'body: "\\n"? tool "\\n"? {closing}', *lead]


def _bare(parallel: bool) -> list[str]:
    if not parallel:
        return ['start: LEAD? (tool | "[" tool "]")', _LEAD]
    return [
        'start: LEAD? (tool (BETWEEN? tool)* | "[" tool (COMMA tool)* "]")',
        r"BETWEEN: /\n|; ?/",
        "COMMA: /, ?/",
        _LEAD,
    ]


_LEAD = r"LEAD: /[ \n]/"


def _tag(tag: str, control: Mapping[str, int]) -> str:
    return f"<[{control[tag]}]>" if tag in control else json.dumps(tag)


def _arguments(name: str, parameters: Mapping[str, Any], alphabet: Alphabet) -> dict[str, Any]:
    """The schema of a tool's arguments, an object of the properties that it names."""
    schema = {"type": "object", **parameters}
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    try:
        return with_options(schema, "schema", alphabet)
    except GenerationError as error:
        raise unenforced(name, error) from error


def unenforced(name: str, error: GenerationError) -> GenerationError:
    """The error of a tool whose parameters cannot be enforced, and the way out."""
    said = error.message.replace("tools cannot be used", "they cannot be enforced")
    return GenerationError(
        f"the parameters of the tool {name}: {said}",
        hint=f"{error.hint or ''} Or let the model write calls as it likes: constrain_tools=False, "
        "on the command line --free-calls.".strip(),
    )
