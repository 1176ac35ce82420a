"""What every tokenizer of llamita can do, whatever library is behind it.

Two rules live here so that they hold for all kinds. Text never becomes a control token: whoever
types `<|im_end|>` gets ordinary tokens that spell it. And there is one `decode`: the bytes of the
tokens, joined and read as UTF-8, so that text decoded piece by piece equals text decoded at once.
"""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from llamita.errors import TokenizerError
from llamita.files import sha256_text
from llamita.tokenizer.chat_files import DEFAULT, read_chat_templates, replace_chat_template
from llamita.tokenizer.definition import text_changes
from llamita.tokenizer.files import write_tokenizer_files


class Tokenizer(ABC):
    """Text to token ids and back. Ids are `0 .. vocab_size - 1`."""

    kind: str
    """"bpe" (byte level), "spm" (SentencePiece BPE), "unigram" or "char"."""
    vocab_size: int
    bos_token_id: int | None
    eos_token_id: int | None
    pad_token_id: int | None
    special_tokens: dict[str, int]
    """Control tokens by name; text is never encoded to one of them."""
    lossy: str | None
    """Why `decode(encode(text))` may differ from `text`; None where it never does."""
    strips_leading_space: bool
    """Whether encoding puts a space in front of the text, which decoding takes away again."""
    bos_prefix: list[int]
    """What `add_special_tokens=True` puts in front of the text."""
    eos_suffix: list[int]
    """What `add_special_tokens=True` puts behind the text."""
    side_files: Mapping[str, bytes] = {}
    """The files beside the definition by name: `tokenizer_config.json`, chat templates."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of several texts, without special tokens, on all cores."""

    @abstractmethod
    def _token_surface(self, token_id: int) -> bytes:
        """The UTF-8 bytes of the ordinary token `token_id` (`0 <= token_id < vocab_size`)."""

    @abstractmethod
    def definition(self) -> dict[str, Any]:
        """The tokenizer as the content of a `tokenizer.json`."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """All files of the tokenizer by name, so that `AutoTokenizer` reads them too.

        Raises:
            TokenizerError: a tokenizer.json cannot express it.
        """

    def save(self, directory: Path) -> None:
        """Write the tokenizer's files into `directory`; what an earlier one left goes."""
        write_tokenizer_files(directory, self.files())

    @property
    def add_bos(self) -> bool:
        """Whether `add_special_tokens=True` puts the BOS token in front."""
        return self.bos_token_id is not None and self.bos_token_id in self.bos_prefix

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The ids of `text`; with `add_special_tokens` also the BOS (and EOS) of the tokenizer."""
        [ids] = self.encode_batch([text])
        return [*self.bos_prefix, *ids, *self.eos_suffix] if add_special_tokens else ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        data = b"".join(self.shown_bytes(token_id, skip_special_tokens) for token_id in ids)
        text = data.decode("utf-8", errors="replace")
        return text.removeprefix(" ") if self.strips_leading_space else text

    def shown_bytes(self, token_id: int, skip_special_tokens: bool) -> bytes:
        """`token_bytes`, but a control token is its name when it is not skipped."""
        name = self._special_names.get(int(token_id))
        if name is not None:
            return b"" if skip_special_tokens else name.encode()
        return self.token_bytes(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes a token stands for; b"" for control tokens.

        Ids from `vocab_size` on are b"" as well: a model's embedding may be padded beyond it.
        """
        token_id = int(token_id)
        if token_id < 0:
            raise TokenizerError(f"{token_id} is no token id: ids begin at 0.")
        return self._byte_table[token_id] if token_id < self.vocab_size else b""

    def is_special(self, token_id: int) -> bool:
        """Whether `token_id` is a control token."""
        return int(token_id) in self._special_names

    @cached_property
    def chat_templates(self) -> Mapping[str, str]:
        """The chat templates that travel with it, by name (`default`, `tool_use`, …)."""
        return read_chat_templates(self.side_files)

    @property
    def chat_template(self) -> str | None:
        """The Jinja template with which chats are written, or None."""
        return self.chat_templates.get(DEFAULT)

    def with_chat_template(self, template: str) -> Tokenizer:
        """The same tokenizer with `template` as its only chat template; `save` writes it."""
        other = copy.copy(self)
        other.__dict__.pop("chat_templates", None)
        other._set_files(replace_chat_template(self.side_files, template))
        return other

    def with_control_tokens(self, names: Sequence[str]) -> Tokenizer:
        """The same tokenizer with these control tokens as well, behind its last id.

        A name that is an ordinary token so far becomes a control token and keeps its id.

        Raises:
            TokenizerError: its kind cannot hold them.
        """
        missing = [name for name in dict.fromkeys(names) if name not in self.special_tokens]
        if not missing:
            return self
        return self._with_added(missing)

    def _with_added(self, names: Sequence[str]) -> Tokenizer:
        """A copy with control tokens that it does not have yet."""
        raise TokenizerError(
            f"the tokenizer ({self.kind}) cannot be given the control token {names[0]}.",
            hint="Choose a chat format whose control tokens it has.",
        )

    def _set_files(self, files: Mapping[str, bytes]) -> None:
        self.side_files = files

    @property
    def separator_id(self) -> int:
        """The end-of-document token, which stands before and after every document."""
        for token_id in (self.eos_token_id, self.bos_token_id):
            if token_id is not None:
                return token_id
        raise TokenizerError(
            "the tokenizer has neither an end-of-sequence nor a beginning-of-sequence token.",
            hint="Name one as eos_token in its tokenizer_config.json.",
        )

    def summary(self) -> dict[str, Any]:
        """What it is, as plain data: kind, size, special ids and tokens, fingerprint."""
        return {
            "kind": self.kind,
            "vocab_size": self.vocab_size,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": self.eos_token_id,
            "pad_token_id": self.pad_token_id,
            "special_tokens": self.special_tokens,
            "fingerprint": self.fingerprint,
        }

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the definition: equal exactly for tokenizers that do the same."""
        definition = {
            key: value
            for key, value in self.definition().items()
            if key not in ("truncation", "padding")
        }
        roles = [self.bos_token_id, self.eos_token_id, self.bos_prefix, self.eos_suffix]
        text = json.dumps([definition, roles, self.special_tokens], sort_keys=True)
        return sha256_text(text)

    @cached_property
    def text_changes(self) -> list[dict[str, Any]]:
        """The steps that change text before it is tokenized, but for those that only move spaces.

        Spaces are left out because the same treatment of them can be written in several ways.
        """
        return text_changes(self.definition())

    @cached_property
    def _special_names(self) -> dict[int, str]:
        return {token_id: name for name, token_id in self.special_tokens.items()}

    @cached_property
    def _byte_table(self) -> list[bytes]:
        special = self._special_names
        return [b"" if i in special else self._token_surface(i) for i in range(self.vocab_size)]


def check_unicode(texts: Sequence[str]) -> None:
    """Refuse text with lone surrogates: it has no UTF-8 form, so no tokens either."""
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"the text is not valid Unicode: a lone surrogate U+{ord(text[error.start]):04X} "
                f"at character {error.start}.",
                hint="Read it again as UTF-8, or with errors='replace'.",
            ) from None
