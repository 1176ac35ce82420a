"""Chats for a harness that knows texts alone: which parts of a text the chat template wrote.

A rendered chat is handed out as text and comes back, alone or with a continuation behind it. By
then nobody can tell a control token that the template wrote from one that a person typed. So every
rendering is kept with its parts, and only where its text comes back are control names control
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from llamita.errors import TokenizerError
from llamita.inference.lm import LM

Parts = list[str | int]


class WrittenChats:
    """The chats written for one model. `warn` is told, in a sentence, what is left out."""

    def __init__(self, lm: LM, warn: Callable[[str], None]) -> None:
        self._lm, self._warn = lm, warn
        self._parts: dict[str, Parts] = {}

    def write(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> str:
        """A conversation as the model's template writes it; without a generation prompt, up to the
        end of the last message, for the model to go on with.

        Raises:
            TokenizerError: the template refuses the messages, also without those of the system.
        """
        chat = self._lm.chat_format
        try:
            parts = chat.parts(messages, None, add_generation_prompt)
        except TokenizerError:
            others = [message for message in messages if message["role"] != "system"]
            if len(others) == len(messages):
                raise
            self._warn("the chat template takes no system message, so it is left out.")
            messages = others
            parts = chat.parts(others, None, add_generation_prompt)
        if not add_generation_prompt:
            parts = _up_to(parts, messages[-1]["content"])
        special = chat.tokenizer.special_tokens
        names = {token_id: name for name, token_id in special.items()}
        text = "".join(part if isinstance(part, str) else names[part] for part in parts)
        self._parts[text] = parts
        return text

    def encode(self, text: str) -> list[int] | None:
        """The ids of a chat that was written here; None for any other text."""
        parts = self._parts.get(text)
        return None if parts is None else self._lm.chat_format.encode_parts(parts)

    def encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]] | None:
        """A chat and what follows it, encoded as one; spaces between belong to what follows."""
        parts = self._parts.get(context)
        if parts is None:
            return None
        last = parts[-1] if parts and isinstance(parts[-1], str) else ""
        before, kept = (parts[:-1] if last else parts), last.rstrip()
        encode = self._lm.chat_format.encode_parts
        context_ids = encode([*before, kept] if kept else before)
        return context_ids, encode([*before, last + continuation])[len(context_ids) :]


def _up_to(parts: Parts, content: str) -> Parts:
    """A rendering up to the end of its last message; spaces stay where the template keeps them."""
    for at in reversed(range(len(parts))):
        part = parts[at]
        if isinstance(part, str) and content.strip() in part:
            start = part.rindex(content.strip())
            whole = content.lstrip()
            kept = whole if part.startswith(whole, start) else content.strip()
            return [*parts[:at], part[: start + len(kept)]]
    raise TokenizerError(
        "the chat template does not write the last message as it is, so it cannot be gone on with.",
        hint="Use the task without its gen_prefix, or without the chat template.",
    )
