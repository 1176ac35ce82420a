"""Text from tokens one at a time, without ever showing half a character.

A character outside ASCII may be split over several tokens. Its bytes are held back until it is
whole; the pieces joined are exactly what `Tokenizer.decode` gives for all tokens at once.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from llamita.tokenizer.base import Tokenizer

_LONGEST = 4  # bytes of a character in UTF-8


class IncrementalDetokenizer:
    """`push` one token after the other, then `finish`.

    after: the tokens of a prompt that the text goes on from. A space at its beginning is then one,
    also for a tokenizer that puts a space in front of texts and takes it away when decoding; and
    the rest of a character that the prompt began makes it whole.
    """

    def __init__(
        self, tokenizer: Tokenizer, skip_special_tokens: bool = True, after: Sequence[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._decoder.decode(self._tail(after))
        # What a prompt's half character becomes when it stays one: part of the prompt, not of this.
        self._not_ours = self._decoder.getstate()[0].decode(errors="replace")
        self._strip_next_space = tokenizer.strips_leading_space and not any(
            tokenizer.shown_bytes(token_id, skip_special_tokens) for token_id in after
        )

    def push(self, token_id: int) -> str:
        """The characters that this token completes; "" while one is still in parts."""
        data = self._tokenizer.shown_bytes(token_id, self._skip_special_tokens)
        return self._strip(self._decoder.decode(data))

    def finish(self) -> str:
        """What is left: the bytes of a character that never became whole, as U+FFFD."""
        return self._strip(self._decoder.decode(b"", final=True))

    def _tail(self, token_ids: Sequence[int]) -> bytes:
        """The last bytes of some tokens: all that a half character at their end can have."""
        tail = b""
        for token_id in reversed(token_ids):
            tail = self._tokenizer.shown_bytes(token_id, self._skip_special_tokens) + tail
            if len(tail) >= _LONGEST:
                break
        return tail

    def _strip(self, text: str) -> str:
        if text and self._not_ours:
            text = text.removeprefix(self._not_ours)
            self._not_ours = ""
        if text and self._strip_next_space:
            self._strip_next_space = False
            return text.removeprefix(" ")
        return text
