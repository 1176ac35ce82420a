"""Do two tokenizers' chat templates say the same? Text, token ids and what ends a turn.

Templates are compared by what they write, in small conversations with and without a system message
and tools. Equal templates can still give other ids: the tokenizers put spaces and BOS where they
do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from llamita.errors import LlamitaError
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat
from llamita.tokenizer.chat_files import DEFAULT, TOOL_USE

Messages = list[dict[str, Any]]
_Part = tuple[bytes | None, list[int]]
_SYSTEM = {"role": "system", "content": "Answer in one line. "}
_USER = {"role": "user", "content": "What is 12 × 9? Two lines,\nplease."}
_ASSISTANT = {"role": "assistant", "content": "It is 108.\n\tՀարյուր ութ."}
_CONVERSATION: Messages = [_USER, _ASSISTANT, {"role": "user", "content": "And {{ 7 * 7 }}?"}]
_FUNCTION = {
    "name": "multiply",
    "description": "Multiplies.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
_TOOLS = [{"type": "function", "function": _FUNCTION}]
_CALL = {"name": "multiply", "arguments": {"a": 12, "b": 9}}
_TOOL_TURNS: Messages = [
    _USER,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call00001", "type": "function", "function": _CALL}],
    },
    {"role": "tool", "tool_call_id": "call00001", "name": "multiply", "content": "108"},
]
PLAIN_CONVERSATIONS: list[Messages] = [_CONVERSATION, [_USER], [_SYSTEM, _USER]]
"""Without tools, each waiting for an answer; the first says most."""


class _Probe(NamedTuple):
    messages: Messages
    tools: list[dict[str, Any]] | None = None
    prompt: bool = True


_PROBES = [
    *map(_Probe, PLAIN_CONVERSATIONS),
    _Probe([_SYSTEM, *_CONVERSATION]),
    _Probe(_CONVERSATION, prompt=False),
    _Probe([_USER, _ASSISTANT], prompt=False),
    _Probe([_USER], _TOOLS),
    _Probe([_SYSTEM, _USER], _TOOLS),
    _Probe(_TOOL_TURNS, _TOOLS),
]


def first_rendered(tokenizer: Tokenizer) -> tuple[Messages, str] | None:
    """A conversation that the template takes, and its prompt for the next answer; or None."""
    for messages in PLAIN_CONVERSATIONS:
        try:
            return messages, ChatFormat.of(tokenizer).render(messages, add_generation_prompt=True)
        except LlamitaError:
            continue
    return None


def compare_chats(
    a: Tokenizer | None, b: Tokenizer | None, differences: list[str], notes: list[str]
) -> bool | None:
    """Whether chats with A and B are the same; None where A has no template, or none can be judged.

    What speaks against it is added to `differences`, what only differs in form to `notes`.
    """
    if a is None or b is None:
        return None
    left, right = a.chat_templates, b.chat_templates
    for name in right:
        if name not in left:
            notes.append(f"only B has {_called(name)}.")
    verdicts = [
        _compare_template(name, a, b, differences, notes)
        if name in right
        else _lost(name, differences)
        for name in left
    ]
    if False in verdicts:
        return False
    return True if True in verdicts else None


def _lost(name: str, differences: list[str]) -> bool:
    differences.append(f"{_called(name)} is lost: only A has it.")
    return False


def _compare_template(
    name: str, a: Tokenizer, b: Tokenizer, differences: list[str], notes: list[str]
) -> bool | None:
    left, right = _format(a, name), _format(b, name)
    judged, spaces = 0, None
    for probe in _PROBES:
        texts = _rendered(left, probe), _rendered(right, probe)
        if texts[0] != texts[1]:
            differences.append(f"{_called(name)} writes something else: {_parting(*texts)}.")
            return False
        if texts[0] is None:
            continue
        judged += 1
        ours, theirs = _encoded(left, probe), _encoded(right, probe)
        if ours == theirs:
            continue
        if ours is None or theirs is None or not _are_spaces(a, b, ours, theirs):
            differences.append(
                f"{_called(name)} gives other token ids for the same text: "
                f"{_parting(ours, theirs)}."
            )
            return False
        spaces = spaces or (len(ours), len(theirs))
    is_equal = a.chat_templates[name] == b.chat_templates[name]
    if not judged:
        if not is_equal:
            differences.append(
                f"{_called(name)} is another one, and neither takes a conversation to compare."
            )
            return False
        notes.append(
            f"{_called(name)} is the same text, but takes none of the conversations that it was "
            "tried with: nothing was judged."
        )
        return None
    if not is_equal:
        notes.append(f"{_called(name)} is written differently, but renders conversations alike.")
    if spaces is not None:
        notes.append(
            f"a chat has other token ids ({spaces[0]} in A, {spaces[1]} in B), although each text "
            "has the same: spaces beside control tokens are treated differently."
        )
    return _compare_turn_ends(left, right, differences, notes)


def _compare_turn_ends(
    a: ChatFormat | None, b: ChatFormat | None, differences: list[str], notes: list[str]
) -> bool:
    left, right = _turn_ends(a), _turn_ends(b)
    if left is None or left == right:
        return True
    sentence = f"a turn of a chat ends at {list(left)} in A and at {list(right or ())} in B."
    is_lost = not set(left) <= set(right or ())
    (differences if is_lost else notes).append(sentence)
    return not is_lost


def _format(tokenizer: Tokenizer, name: str) -> ChatFormat | None:
    templates = tokenizer.chat_templates
    try:
        return ChatFormat(
            tokenizer, templates[name], templates.get(TOOL_USE) if name == DEFAULT else None
        )
    except LlamitaError:
        return None


def _rendered(chat: ChatFormat | None, probe: _Probe) -> str | None:
    try:
        return None if chat is None else chat.render(probe.messages, probe.tools, probe.prompt)
    except LlamitaError:
        return None


def _encoded(chat: ChatFormat | None, probe: _Probe) -> list[int] | None:
    try:
        return None if chat is None else chat.encode(probe.messages, probe.tools, probe.prompt)
    except LlamitaError:
        return None


def _turn_ends(chat: ChatFormat | None) -> tuple[int, ...] | None:
    try:
        return None if chat is None else chat.turn_end_ids
    except LlamitaError:
        return None


def _are_spaces(a: Tokenizer, b: Tokenizer, left: list[int], right: list[int]) -> bool:
    """Whether the same control tokens stand between texts that differ in outer spaces alone.

    SentencePiece puts its space before a whole chat, other programs before each text in it.
    """
    ours, theirs = _parts(a, left), _parts(b, right)
    return len(ours) == len(theirs) and all(map(_is_same_part, ours, theirs))


def _is_same_part(left: _Part, right: _Part) -> bool:
    (ours, our_ids), (theirs, their_ids) = left, right
    if our_ids == their_ids:
        return True
    if ours is None or theirs is None or ours == theirs:
        return False
    return ours.strip(b" ") == theirs.strip(b" ")


def _parts(tokenizer: Tokenizer, ids: list[int]) -> list[_Part]:
    """Texts as bytes with their ids, and the control tokens between them."""
    parts: list[_Part] = []
    for is_control, run in groupby(ids, tokenizer.is_special):
        found = list(run)
        if is_control:
            parts += [(None, [token_id]) for token_id in found]
        else:
            text = b"".join(map(tokenizer.token_bytes, found))
            parts += [(text, found)] if text.strip(b" ") else []
    return parts


def _called(name: str) -> str:
    return "the chat template" if name == DEFAULT else f"the chat template {name!r}"


def _parting(left: Sequence[Any] | None, right: Sequence[Any] | None) -> str:
    """Where two texts, or rows of ids, part."""
    if left is None or right is None:
        return f"only {'A' if right is None else 'B'} takes the conversation"
    pairs = enumerate(zip(left, right, strict=False))
    first = next((i for i, (x, y) in pairs if x != y), min(len(left), len(right)))
    start = max(0, first - 20)
    shown = (f"{found[start : first + 40]!r}" for found in (left, right))
    return "{} in A, {} in B".format(*shown)
