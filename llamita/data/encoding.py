"""Documents to token ids: texts as they are, chats as the chat format of the tokenizer writes them.

Of a chat every token is learned, or, with `loss` "assistant", what the assistant says alone; the
rest is only read. Texts are always learned whole. Chats longer than a row can be dropped, or cut
behind the last whole turn that fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from llamita.errors import DataError, TokenizerError
from llamita.text.chats import Chat
from llamita.text.documents import Document
from llamita.text.pipeline import utf8_length
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.chat_templates import DEFAULT_FORMAT

Loss = Literal["all", "assistant"]
Long = Literal["drop", "cut"]
# Tokenizers take more than a hundred bytes of memory for each byte of text at work.
BATCH_BYTES = 1_000_000


@dataclass(frozen=True)
class Fit:
    """Rows of `longest` tokens; a longer chat is dropped, or cut at the last whole turn that fits.

    A turn is whole with the token that ends it. What the assistant says must fit at least once.
    """

    longest: int
    long: Long = "drop"


@dataclass(frozen=True)
class Encoded:
    """A document as tokens, which stand for `text_bytes` of UTF-8.

    `learned` has one more than there are ids, for the separator behind them; None where all are
    learned. `learned_bytes` are those of the tokens that are. A chat that `stands_alone` has no
    separator in front of it: its format writes none there.
    """

    token_ids: list[int]
    text_bytes: int
    learned: list[bool] | None
    learned_bytes: int
    is_chat: bool = False
    stands_alone: bool = False


class DocumentEncoder:
    """Encodes documents. Where there are chats and the tokenizer brings no chat template,
    `tokenizer` gets the one of `DEFAULT_FORMAT`, which then travels with it.

    `chats` are those that came out, `dropped` those that did not, being longer than `fit` lets
    them, the shortest of these with `shortest_dropped` tokens; `cut` came out shorter.
    """

    def __init__(self, tokenizer: Tokenizer, loss: Loss = "all", fit: Fit | None = None) -> None:
        if fit is not None and loss != "assistant":
            raise ValueError("only chats of which answers alone are learned are fitted into rows")
        self.tokenizer = tokenizer
        self.loss = loss
        self.fit = fit
        self.chats = self.dropped = self.cut = 0
        self.shortest_dropped: int | None = None

    def encode(self, documents: Iterator[Document]) -> Iterator[tuple[Document, Encoded]]:
        """Each document with its tokens, in order; without chats that are dropped.

        Raises:
            DataError: a chat is wrong, or its format needs what the tokenizer lacks.
        """
        for batch in _batches(documents):
            texts = [document.text for document in batch if document.chat is None]
            token_ids = iter(self.tokenizer.encode_batch(texts) if texts else [])
            for document in batch:
                if document.chat is not None:
                    encoded = self._encode_chat(document.chat, document.source)
                    if encoded is not None:
                        yield document, encoded
                else:
                    size = utf8_length(document.text)
                    yield document, Encoded(next(token_ids), size, None, size)

    @cached_property
    def token_sizes(self) -> npt.NDArray[np.int64]:
        """The UTF-8 bytes of each token, 0 for control tokens [V]."""
        tokenizer = self.tokenizer
        return np.array([len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)])

    def _encode_chat(self, chat: Chat, source: str) -> Encoded | None:
        try:
            if self.loss == "assistant":
                encoded = self._format.encode_with_spans(chat.messages, chat.tools)
                ids, learned = encoded.token_ids, [*encoded.assistant_mask, False]
            else:
                ids = self._format.encode(chat.messages, chat.tools)
                learned = [True] * (len(ids) + 1)
        except TokenizerError as error:
            raise DataError(f"{source}: {error.message}", hint=error.hint) from error
        separator = self.tokenizer.separator_id  # stands around the chat in any case
        stands_alone = not ids or ids[0] != separator
        if not stands_alone:
            ids, learned = ids[1:], learned[1:]
        if self.fit is not None and len(ids) + (not stands_alone) > self.fit.longest:
            whole = len(ids) + (not stands_alone)
            end = self._last_end(ids, learned, self.fit.longest - (not stands_alone))
            if self.fit.long == "drop" or not end:
                self.dropped += 1
                self.shortest_dropped = min(whole, self.shortest_dropped or whole)
                return None
            self.cut += 1
            ids, learned = ids[:end], [*learned[:end], False]
        self.chats += 1
        if ids and ids[-1] == separator:
            ids, learned = ids[:-1], learned[:-1]
        sizes = self.token_sizes[ids]
        learned_bytes = int(sizes[learned[:-1]].sum())
        all_learned = None if all(learned) else learned
        return Encoded(ids, int(sizes.sum()), all_learned, learned_bytes, True, stands_alone)

    def _last_end(self, ids: list[int], learned: list[bool], most: int) -> int:
        """How many of the first `most` tokens there are up to the end of the last whole turn of
        the assistant among them; 0 where there is none."""
        ends = self._format.turn_end_ids if self._format.shows_turn_ends else ()
        for end in range(min(most, len(ids)), 0, -1):
            ends_here = learned[end - 1] and not learned[end]
            if ends_here and (not ends or ids[end - 1] in ends):
                return end
        return 0

    @cached_property
    def _format(self) -> ChatFormat:
        if self.tokenizer.chat_template is None:
            ChatFormat.built_in(DEFAULT_FORMAT, self.tokenizer)
            template = BUILT_IN[DEFAULT_FORMAT].template
            self.tokenizer = self.tokenizer.with_chat_template(template)
        return ChatFormat.of(self.tokenizer)


def _batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Lists of documents with at most `BATCH_BYTES` of text, or one longer document alone."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        length = utf8_length(document.text)
        if batch and size + length > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += length
    if batch:
        yield batch
