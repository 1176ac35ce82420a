"""Documents to token ids: texts as they are, chats as the chat format of the tokenizer writes them.

Of a chat every token is learned, or, with `loss` "assistant", what the assistant says alone; the
rest is only read. Texts are always learned whole. Chats longer than a row can be dropped, or cut
behind the last whole turn that fits. A chat whose earlier turns its format writes otherwise than
they were generated (it drops their reasoning) becomes several examples, one for each answer, of
which that answer alone is learned: what stands before it is what the model is given then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from llamita.data.chat_checks import calls_undeclared, place_reasoning
from llamita.errors import DataError, TokenizerError
from llamita.text.chats import Chat
from llamita.text.documents import Document
from llamita.text.pipeline import utf8_length
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat
from llamita.tokenizer.chat_spans import TurnsDifferError
from llamita.tokenizer.chat_templates import (
    DEFAULT_FORMAT,
    built_in_format,
    built_in_template,
    require_format,
)

Loss = Literal["all", "assistant"]
Long = Literal["drop", "cut"]
# Ids, whether each is learned and whether the separator behind them is, and `stands_alone`.
_Example: TypeAlias = tuple[list[int], list[bool], bool]
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
    `tokenizer` gets the one of `chat_format` (None: `DEFAULT_FORMAT`), which then travels with it.
    One that it brings must be that of a `chat_format` that is named.

    `chats` are those that came out, `dropped` those that did not, being longer than `fit` lets
    them: `on_dropped` hears of each, with the tokens of a row that it, or what it can be cut to,
    would fit into. `cut` came out shorter, and `split` as several; in `unreasoned` reasoning is
    lost, and `undeclared` call tools that they do not declare.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        loss: Loss = "all",
        fit: Fit | None = None,
        on_dropped: Callable[[Document, int], None] = lambda document, needed: None,
        chat_format: str | None = None,
    ) -> None:
        if fit is not None and loss != "assistant":
            raise ValueError("only chats of which answers alone are learned are fitted into rows")
        self.tokenizer = tokenizer
        self.loss = loss
        self.fit = fit
        self.chats = self.dropped = self.cut = self.split = 0
        self.unreasoned = self.undeclared = 0
        self._on_dropped = on_dropped
        self._chat_format = chat_format

    def encode(self, documents: Iterator[Document]) -> Iterator[tuple[Document, Encoded]]:
        """Each document with its tokens, in order; without chats that are dropped. One that becomes
        several examples is given with each of them.

        Raises:
            DataError: a chat is wrong, or its format needs what the tokenizer lacks.
        """
        for batch in _batches(documents):
            texts = [document.text for document in batch if document.chat is None]
            token_ids = iter(self.tokenizer.encode_batch(texts) if texts else [])
            for document in batch:
                if document.chat is not None:
                    for encoded in self._encode_chat(document, document.chat):
                        yield document, encoded
                else:
                    size = utf8_length(document.text)
                    yield document, Encoded(next(token_ids), size, None, size)

    @cached_property
    def token_sizes(self) -> npt.NDArray[np.int64]:
        """The UTF-8 bytes of each token, 0 for control tokens [V]."""
        tokenizer = self.tokenizer
        return np.array([len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)])

    def _encode_chat(self, document: Document, chat: Chat) -> list[Encoded]:
        """The examples of a chat; none where it is dropped."""
        source = document.source
        chat, is_lost = place_reasoning(chat, self._format.template)
        if is_lost and not any(_is_learned(message) for message in chat.messages):
            raise DataError(
                f"{source}: the assistant only reasons, and the chat template has no place for it.",
                hint="Leave the conversation out, or give the model a template with reasoning.",
            )
        is_split = False
        try:
            examples = [self._written(chat)]
        except TurnsDifferError:
            is_split = True
            examples = self._answers(chat, source)
        except TokenizerError as error:
            raise DataError(f"{source}: {error.message}", hint=error.hint) from error
        if self.fit is not None:
            fitting, needed = self._fitting(examples, self.fit)
            if not fitting:
                self.dropped += 1
                self._on_dropped(document, needed)
                return []
            self.cut += needed > self.fit.longest
            examples = fitting
        self.chats += 1
        self.split += is_split
        self.unreasoned += is_lost
        self.undeclared += calls_undeclared(chat)
        return [self._encoded(*example) for example in examples]

    def _written(self, chat: Chat, last_turn_only: bool = False) -> _Example:
        if self.loss == "assistant":
            encoded = self._format.encode_with_spans(
                chat.messages, chat.tools, last_turn_only=last_turn_only
            )
            ids, learned = encoded.token_ids, [*encoded.assistant_mask, False]
        else:
            ids = self._format.encode(chat.messages, chat.tools)
            learned = [True] * (len(ids) + 1)
        # The separator stands around the chat in any case.
        stands_alone = not ids or ids[0] != self.tokenizer.separator_id
        return (ids, learned, True) if stands_alone else (ids[1:], learned[1:], False)

    def _answers(self, chat: Chat, source: str) -> list[_Example]:
        """An example for each answer: the chat up to it, with that answer alone to be learned."""
        found = []
        for index, message in enumerate(chat.messages):
            if _is_learned(message):
                try:
                    beginning = Chat(chat.messages[: index + 1], chat.tools)
                    found.append(self._written(beginning, last_turn_only=True))
                except TokenizerError as error:
                    raise DataError(f"{source}: {error.message}", hint=error.hint) from error
        return found

    def _fitting(self, examples: list[_Example], fit: Fit) -> tuple[list[_Example], int]:
        """What is left of a chat's examples, and the tokens of a row for all, or, where nothing
        is left, for a beginning of it."""
        sizes = [len(ids) + (not alone) for ids, _, alone in examples]
        if max(sizes) <= fit.longest or fit.long == "drop":
            return (examples if max(sizes) <= fit.longest else []), max(sizes)
        kept, firsts = [], []
        for ids, learned, alone in examples:
            in_front = not alone
            ends = self._turn_ends(ids, learned)
            within = [end for end in ends if end + in_front <= fit.longest]
            if len(ids) + in_front <= fit.longest:
                kept.append((ids, learned, alone))
            elif within:
                kept.append((ids[: within[-1]], [*learned[: within[-1]], False], alone))
            firsts += [end + in_front for end in ends[:1]]
        return kept, max(sizes) if kept else min(firsts, default=max(sizes))

    def _encoded(self, ids: list[int], learned: list[bool], stands_alone: bool) -> Encoded:
        if ids and ids[-1] == self.tokenizer.separator_id:
            ids, learned = ids[:-1], learned[:-1]
        sizes = self.token_sizes[ids]
        learned_bytes = int(sizes[learned[:-1]].sum())
        all_learned = None if all(learned) else learned
        return Encoded(ids, int(sizes.sum()), all_learned, learned_bytes, True, stands_alone)

    def _turn_ends(self, ids: list[int], learned: list[bool]) -> list[int]:
        """How many of the tokens there are up to the end of each whole turn of the assistant."""
        names = self._format.turn_end_ids if self._format.shows_turn_ends else ()
        return [
            end
            for end in range(1, len(ids) + 1)
            if learned[end - 1] and not learned[end] and (not names or ids[end - 1] in names)
        ]

    @cached_property
    def _format(self) -> ChatFormat:
        if self.tokenizer.chat_template is None:
            template = built_in_template(self._chat_format or DEFAULT_FORMAT, self.tokenizer)
            self.tokenizer = self.tokenizer.with_chat_template(template)
        elif self._chat_format is not None:
            require_format(self._chat_format, self.tokenizer.chat_template)
        return ChatFormat.of(self.tokenizer)


def format_that_matters(chat_format: str | None, finished: Tokenizer | None) -> str | None:
    """The chat format that is named; None where the data would be the same without the name.

    finished: the tokenizer; None: one is trained, and gets the control tokens.

    Raises:
        TokenizerError: there is none of that name, or a finished tokenizer is not for it.
    """
    if chat_format is None:
        return None
    built_in_format(chat_format)
    if finished is not None and finished.chat_template is not None:
        require_format(chat_format, finished.chat_template)
        return None
    if finished is not None:
        built_in_template(chat_format, finished)
    return None if chat_format == DEFAULT_FORMAT else chat_format


def _is_learned(message: Mapping[str, Any]) -> bool:
    return message["role"] == "assistant" and bool(message.get("weight", 1))


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
