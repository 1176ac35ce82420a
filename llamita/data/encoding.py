"""Documents to token ids: texts as they are, chats as the chat format of the tokenizer writes them.

Of a chat every token is learned, or, with `loss` "assistant", what the assistant says alone; the
rest is only read. Texts are always learned whole.
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

Loss = Literal["all", "assistant"]
DEFAULT_FORMAT = "chatml-tools"
# Tokenizers take more than a hundred bytes of memory for each byte of text at work.
BATCH_BYTES = 1_000_000


@dataclass(frozen=True)
class Encoded:
    """A document as tokens, which stand for `text_bytes` of UTF-8.

    `learned` has one more than there are ids, for the separator behind them; None where all are
    learned. `learned_bytes` are those of the tokens that are.
    """

    token_ids: list[int]
    text_bytes: int
    learned: list[bool] | None
    learned_bytes: int


class DocumentEncoder:
    """Encodes documents. Where there are chats and the tokenizer brings no chat template,
    `tokenizer` gets the one of `DEFAULT_FORMAT`, which then travels with it."""

    def __init__(self, tokenizer: Tokenizer, loss: Loss = "all") -> None:
        self.tokenizer = tokenizer
        self.loss = loss
        self.chats = 0

    def encode(self, documents: Iterator[Document]) -> Iterator[tuple[Document, Encoded]]:
        """Each document with its tokens, in order.

        Raises:
            DataError: a chat is wrong, or its format needs what the tokenizer lacks.
        """
        for batch in _batches(documents):
            texts = [document.text for document in batch if document.chat is None]
            token_ids = iter(self.tokenizer.encode_batch(texts) if texts else [])
            for document in batch:
                if document.chat is not None:
                    yield document, self._encode_chat(document.chat, document.source)
                else:
                    size = utf8_length(document.text)
                    yield document, Encoded(next(token_ids), size, None, size)

    @cached_property
    def token_sizes(self) -> npt.NDArray[np.int64]:
        """The UTF-8 bytes of each token, 0 for control tokens [V]."""
        tokenizer = self.tokenizer
        return np.array([len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)])

    def _encode_chat(self, chat: Chat, source: str) -> Encoded:
        try:
            if self.loss == "assistant":
                encoded = self._format.encode_with_spans(chat.messages, chat.tools)
                ids, learned = encoded.token_ids, [*encoded.assistant_mask, False]
            else:
                ids = self._format.encode(chat.messages, chat.tools)
                learned = [True] * (len(ids) + 1)
        except TokenizerError as error:
            raise DataError(f"{source}: {error.message}", hint=error.hint) from error
        self.chats += 1
        separator = self.tokenizer.separator_id  # stands around the chat in any case
        if ids and ids[-1] == separator:
            ids, learned = ids[:-1], learned[:-1]
        if ids and ids[0] == separator:
            ids, learned = ids[1:], learned[1:]
        sizes = self.token_sizes[ids]
        learned_bytes = int(sizes[learned[:-1]].sum())
        return Encoded(ids, int(sizes.sum()), None if all(learned) else learned, learned_bytes)

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
