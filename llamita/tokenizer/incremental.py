"""Text from tokens one at a time, without ever showing half a character.

A character outside ASCII may be split over several tokens. Its bytes are held back until it is
whole; the pieces joined are exactly what `Tokenizer.decode` gives for all tokens at once.
"""

from __future__ import annotations

import codecs

from llamita.tokenizer.base import Tokenizer


class IncrementalDetokenizer:
    """`push` one token after the other, then `finish`.

    Tokens that go on from a prompt are pushed after the prompt's: a space at their beginning is
    one, also for a tokenizer that puts a space in front of texts and takes it away when decoding.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip_next_space = tokenizer.strips_leading_space

    def push(self, token_id: int) -> str:
        """The characters that this token completes; "" while one is still in parts."""
        data = self._tokenizer.shown_bytes(token_id, self._skip_special_tokens)
        return self._strip(self._decoder.decode(data))

    def finish(self) -> str:
        """What is left: the bytes of a character that never became whole, as U+FFFD."""
        return self._strip(self._decoder.decode(b"", final=True))

    def _strip(self, text: str) -> str:
        if text and self._strip_next_space:
            self._strip_next_space = False
            return text.removeprefix(" ")
        return text
