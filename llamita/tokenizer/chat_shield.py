"""Keeps the text of messages apart from the control tokens that a template writes.

Who types `<|im_end|>` into a message must not end the turn. Before a chat is rendered, characters
of whatever could become a control token are put aside for private ones: everything that a control
token's name begins with (each `<`), so that no cutting or joining of texts makes a name; and the
start of a text that is a later part of a name, since the template might write the part before it.
In the rendering, the names of control tokens are then the template's own, and the characters are
put back. Only the tags of an assistant's reasoning and tool calls stay (`chat_blocks`): they are
the model's own. What the template itself asks about the texts is answered as if they were there
(`chat_looks`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from llamita.errors import TokenizerError
from llamita.tokenizer.chat_blocks import block_tags

# Keys that templates look up, and values that they compare with, stay as they are.
_STRUCTURE = frozenset(
    {
        *("role", "content", "type", "text", "name", "function", "arguments", "parameters"),
        *("tool_calls", "tool_call_id", "id", "description", "properties", "required", "items"),
        *("enum", "default", "reasoning_content", "thinking", "reasoning"),
    }
)
_NEVER_HIDDEN = frozenset('"\\')  # JSON escapes them; no control token needs them
_PRIVATE = range(0x100000, 0x10FFFE)


class Shield:
    """Private stand-ins for one conversation. `names` are those of the control tokens."""

    def __init__(self, names: Iterable[str], conversation: Iterable[Any]) -> None:
        self._names = tuple(name for name in names if name)
        self._first, self._rests = _tables(self._names)
        self._longest = max((len(name) for name in self._names), default=0)
        self._free = _free_characters(conversation)
        self._stand_ins: dict[str, str] = {}
        self.hidden: dict[str, str] = {}
        """The characters put aside, by their stand-ins."""
        self.marks = (next(self._free), next(self._free))
        """Two private characters that stand nowhere in the conversation."""

    def hide(self, value: Any) -> Any:
        """A copy of messages, tools or variables in which no text can become a control token."""
        if isinstance(value, str):
            return self._hide_text(value, whole=True)
        if isinstance(value, Mapping):
            return {self._hide_key(key): self._hide_entry(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.hide(item) for item in value]
        return value

    def hide_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message, hidden but for the tags of an assistant's reasoning and tool calls."""
        hidden: dict[str, Any] = self.hide(message)
        content = message.get("content")
        if message["role"] == "assistant" and isinstance(content, str):
            hidden["content"] = self._hide_text(content, True, block_tags(content, self._names))
        return hidden

    def show(self, text: str) -> str:
        """The text with every character back in its place."""
        for stand_in, character in self.hidden.items():
            text = text.replace(stand_in, character)
            for written, escaped in zip(_escapes(stand_in), _escapes(character), strict=True):
                if written in text:
                    text = text.replace(written, escaped)
        return text

    def _hide_key(self, key: str) -> str:
        return key if key in _STRUCTURE else self._hide_text(key, whole=False)

    def _hide_entry(self, key: str, value: Any) -> Any:
        if key == "role":  # one of a few names
            return value
        if key == "type" and isinstance(value, str):
            return self._hide_text(value, whole=False)
        return self.hide(value)

    def _hide_text(self, text: str, whole: bool, kept: Iterable[tuple[int, int]] = ()) -> str:
        places = {match.start() for match in self._first.finditer(text)}
        # Never the white space before the text, or the template could not trim it.
        first = len(text) - len(text.lstrip())
        for start in {0, first} if whole else ():
            if self._may_complete(text[start : start + self._longest], text.strip()):
                places.add(first if first < len(text) else start)
        for tag in kept:
            places.difference_update(range(*tag))
        if not places:
            return text
        characters = list(text)
        for place in places:
            characters[place] = self._stand_in(characters[place])
        return "".join(characters)

    def _may_complete(self, start: str, whole: str) -> bool:
        """Whether text with this start, or all of it, is a later part of a control token's name."""
        if any(start[:length] in self._rests for length in range(1, len(start) + 1)):
            return True
        return 0 < len(whole) <= self._longest and any(whole in name for name in self._names)

    def _stand_in(self, character: str) -> str:
        if character in _NEVER_HIDDEN:
            return character
        if character not in self._stand_ins:
            self._stand_ins[character] = stand_in = next(self._free)
            self.hidden[stand_in] = character
        return self._stand_ins[character]


@lru_cache(maxsize=8)
def _tables(names: tuple[str, ...]) -> tuple[re.Pattern[str], frozenset[str]]:
    """What finds every first character of a name, and all rests of names."""
    return (
        control_pattern({name[0] for name in names}),
        frozenset(name[k:] for name in names for k in range(1, len(name))),
    )


def control_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Matches any of the names, the longest where several begin at one place."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


@lru_cache(maxsize=1024)
def _escapes(character: str) -> tuple[str, str]:
    """How a template writes a character in JSON of ASCII, and when it prints a list or object."""
    return json.dumps(character)[1:-1], repr([character])[2:-2]


def _free_characters(conversation: Iterable[Any]) -> Iterator[str]:
    texts = [v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in conversation]
    used = set().union(*texts)
    typed = "".join(texts).replace("\\\\", "\\") if "\\" in used else ""
    for number in _PRIVATE:
        character = chr(number)
        if character not in used and not any(e in typed for e in _escapes(character)):
            yield character
    raise TokenizerError("the conversation holds every private character of Unicode.")
