"""What a tokenizer is trained on: texts as they are, chats as a chat format writes them.

So it has tokens for what a model will read and say: roles, lists of tools, the JSON of calls. What
stands between control tokens is one text each, and no token reaches over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from llamita.data.chat_checks import place_reasoning
from llamita.data.corpus import Corpus, Pass
from llamita.data.held_out import is_held_out
from llamita.errors import DataError, TokenizerError
from llamita.text.chats import Chat
from llamita.text.clean import CLEANING
from llamita.text.documents import Document, read_files
from llamita.text.pipeline import Pipeline
from llamita.text.sources import TextFile
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat
from llamita.tokenizer.chat_ready import ready_for_chats
from llamita.tokenizer.chat_templates import DEFAULT_FORMAT, built_in_format
from llamita.tokenizer.train import train_tokenizer


def tokenizer_texts(
    documents: Iterable[Document], chat_format: str = DEFAULT_FORMAT
) -> Iterator[str]:
    """The texts of documents to train a tokenizer on, without the control tokens of chats.

    Raises:
        TokenizerError: there is no chat format of that name.
        DataError: the format cannot write a chat.
    """
    # Any tokenizer that has the control tokens tells them from text; this one is made at once.
    stand_in = ready_for_chats(train_tokenizer(["\n"], "char"), chat_format)
    return _texts(documents, ChatFormat.of(stand_in))


def train_on_documents(
    documents: Iterable[Document],
    spec: str,
    chat_format: str = DEFAULT_FORMAT,
    *,
    sample_bytes: int | None = None,
    seed: int = 0,
    log: Callable[[str], None] | None = None,
) -> Tokenizer:
    """The tokenizer `spec` for documents, chats among them as `chat_format` writes them.

    It can write them itself: control tokens that the format needs, and that no tokenizer trained
    here has anyway, get the ids behind the vocabulary that `spec` asks for.

    Raises:
        TokenizerError: there is no chat format of that name, or as of `train_tokenizer`.
        DataError: the format cannot write a chat.
    """
    texts = tokenizer_texts(documents, chat_format)
    made = train_tokenizer(texts, spec, sample_bytes=sample_bytes, seed=seed, log=log)
    return made.with_control_tokens(built_in_format(chat_format).control_tokens)


def train_on_corpus(
    corpus: Corpus, spec: str, also: Sequence[TextFile], chat_format: str
) -> Tokenizer:
    """The tokenizer `spec` for what `corpus` trains on, and for the files `also`: texts and chats
    in UTF-8 whatever the corpus is, JSONL with the field "text"."""
    this_pass = Pass(corpus)

    def documents() -> Iterator[Document]:
        for document in this_pass.documents():
            this_pass.report("reading")
            if not is_held_out(document.text, corpus.settings.val_fraction):
                yield document
        if also:
            yield from Pipeline(CLEANING).run(read_files(also, chats=True))[0]

    seed, log = corpus.settings.seed, corpus.reporter.say
    return train_on_documents(documents(), spec, chat_format, seed=seed, log=log)


def _texts(documents: Iterable[Document], chat_format: ChatFormat) -> Iterator[str]:
    for document in documents:
        if document.chat is None:
            yield document.text
        else:
            yield from _said(document.chat, document.source, chat_format)


def _said(chat: Chat, source: str, chat_format: ChatFormat) -> Iterator[str]:
    written, _ = place_reasoning(chat, chat_format.template)
    try:
        parts = chat_format.parts(written.messages, written.tools)
    except TokenizerError as error:
        raise DataError(f"{source}: {error.message}", hint=error.hint) from error
    for part in parts:
        if isinstance(part, str) and not part.isspace():
            yield part
