"""Tokenizers defined by a `tokenizer.json`, run by the `tokenizers` library.

One class serves every such file: byte-level BPE (GPT-2, Llama 3, Qwen), BPE with byte fallback
(Llama 2, Mistral, characters) and unigram. For text without control tokens the ids are those of
`transformers.AutoTokenizer`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from llamita.errors import TokenizerError
from llamita.files import parse_json
from llamita.tokenizer.base import Tokenizer, check_unicode
from llamita.tokenizer.convert import added_token
from llamita.tokenizer.definition import for_text, read_pipeline
from llamita.tokenizer.files import TOKENIZER_JSON
from llamita.tokenizer.pre_tokenizers import cut_at_line_ends, splits_at_line_ends
from llamita.tokenizer.special import find_role
from llamita.tokenizer.surface import (
    BYTE_CHARACTERS,
    BYTE_TOKENS,
    byte_level_bytes,
    piece_bytes,
)

PART_CHARACTERS = 16_384
PARTS_AT_ONCE = 16


class HFTokenizer(Tokenizer):
    """A tokenizer over the text of a tokenizer.json, or over its parsed content.

    `files` are the other files of the tokenizer by name (`tokenizer_config.json`, chat templates,
    `tokenizer.model`): they give the special tokens and are saved again unchanged. `path` names
    the source in errors.
    """

    def __init__(
        self,
        tokenizer_json: str | dict[str, Any],
        files: Mapping[str, bytes] | None = None,
        *,
        generation: Mapping[str, Any] | None = None,
        path: Path = Path("tokenizer.json"),
    ) -> None:
        self._source = tokenizer_json
        self._generation = dict(generation or {})
        self.side_files = dict(files or {})
        self.path = path
        definition: Any = tokenizer_json
        if isinstance(tokenizer_json, str):
            definition = parse_json(tokenizer_json, path, TokenizerError)
        pipeline = read_pipeline(definition, path)
        self._backend = self._build_backend(definition, path)
        self._can_cut = splits_at_line_ends(definition)
        self.pipeline = pipeline
        self.token_strings = {token_id: token for token, token_id in pipeline.vocabulary.items()}
        self.kind = pipeline.kind
        self.lossy = pipeline.lossy
        self.strips_leading_space = pipeline.strips_leading_space
        self.vocab_size = max(self.token_strings, default=-1) + 1
        self.special_tokens = dict(pipeline.special_tokens)
        self.bos_prefix, self.eos_suffix = self._template()
        self._read_roles(self._generation, path)
        self.unknown_id = _unknown_id(definition["model"], pipeline.vocabulary)
        falls_back = pipeline.byte_level or definition["model"].get("byte_fallback")
        self._never_from_text = set(self.special_tokens.values())
        if not falls_back:
            self._never_from_text.discard(self.unknown_id)
        # The library drops what a table of characters lacks and has no token for.
        drops = self.kind == "char" and not falls_back and self.unknown_id is None
        self._only_these = frozenset(pipeline.vocabulary) if drops else None

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        check_unicode(texts)
        self.check_characters(texts)
        if self._can_cut and any(len(text) > 2 * PART_CHARACTERS for text in texts):
            return [self._encode_in_parts(text) for text in texts]
        return self._encode_whole(texts)

    def _encode_whole(self, texts: Sequence[str]) -> list[list[int]]:
        with library_errors(f"the tokenizer {self.path} fails on a text"):
            if len(texts) == 1:
                encodings = [self._backend.encode(texts[0], add_special_tokens=False)]
            else:
                encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._without_control(encoding.ids) for encoding in encodings]

    def _encode_in_parts(self, text: str) -> list[int]:
        """The same ids on all cores, with a fraction of the memory.

        The library works on one text with one core and over a hundred bytes for each of its bytes.
        """
        ids: list[int] = []
        parts = cut_at_line_ends(text, PART_CHARACTERS)
        while group := list(islice(parts, PARTS_AT_ONCE)):
            for part_ids in self._encode_whole(group):
                ids += part_ids
        return ids

    def files(self) -> dict[str, bytes]:
        return {TOKENIZER_JSON: self._json.encode(), **self.side_files}

    def _with_added(self, names: Sequence[str]) -> HFTokenizer:
        definition, size = self.definition(), self.vocab_size
        known = self.pipeline.vocabulary
        ids = {name: known[name] for name in names if name in known}
        ids |= {name: size + n for n, name in enumerate(n for n in names if n not in known)}
        kept = [t for t in definition.get("added_tokens") or [] if t["content"] not in ids]
        added = [*kept, *(added_token(name, token_id, True) for name, token_id in ids.items())]
        changed = {**definition, "added_tokens": sorted(added, key=lambda token: token["id"])}
        other = HFTokenizer(changed, self.side_files, generation=self._generation, path=self.path)
        for name, token_id in ids.items():
            # Where ids have gaps, the library counts on from another number.
            if self.kind != "unigram" and other._backend.token_to_id(name) != token_id:
                raise TokenizerError(
                    f"the tokenizer {self.path} has gaps among its ids, so that {name} cannot be "
                    f"added behind them as {token_id}.",
                    hint="Choose a chat format whose control tokens it has.",
                )
        return other

    @cached_property
    def _json(self) -> str:
        if isinstance(self._source, str):
            return self._source
        return json.dumps(self._source, ensure_ascii=False)

    def definition(self) -> dict[str, Any]:
        if isinstance(self._source, dict):
            return self._source
        definition: dict[str, Any] = json.loads(self._source)
        return definition

    def _token_surface(self, token_id: int) -> bytes:
        token = self.token_strings.get(token_id, "")
        if not self.pipeline.byte_level:
            return piece_bytes(token, space_mark=self.pipeline.space_mark)
        if token_id in self.pipeline.plain_added_ids:
            return token.encode()
        return byte_level_bytes(token)

    def check_characters(self, texts: Sequence[str]) -> None:
        """Refuse characters that a tokenizer of single characters would drop without a word."""
        if self._only_these is None:
            return
        for character in sorted(set().union(*texts) - self._only_these):
            raise TokenizerError(
                f"the tokenizer has no token for {character!r} (U+{ord(character):04X}).",
                hint="It knows a fixed set of characters: take the others out of the text.",
            )

    def _without_control(self, ids: list[int]) -> list[int]:
        """Spell out control tokens that the model itself matched as pieces of text.

        Control tokens are not searched in text, but a model may look up a whole word in its
        vocabulary (`ignore_merges`), where they are like any other piece.
        """
        if self._never_from_text.isdisjoint(ids):
            return ids
        spelled: list[int] = []
        for token_id in ids:
            if token_id in self._never_from_text:
                spelled += self._spell(self.token_strings[token_id])
            else:
                spelled.append(token_id)
        return spelled

    def _spell(self, text: str) -> list[int]:
        """The ids of `text` byte by byte, or by characters where the bytes have no tokens."""
        vocabulary = self.pipeline.vocabulary
        units = BYTE_CHARACTERS if self.pipeline.byte_level else BYTE_TOKENS
        ids = [vocabulary.get(units[byte]) for byte in text.encode()]
        if None in ids:
            ids = [vocabulary.get(character, self.unknown_id) for character in text]
        return [token_id for token_id in ids if token_id is not None]

    def _template(self) -> tuple[list[int], list[int]]:
        """What the post-processor puts in front of and behind a text."""
        with library_errors(f"the tokenizer {self.path} fails on a text"):
            plain = self._backend.encode("a", add_special_tokens=False).ids
            framed = self._backend.encode("a", add_special_tokens=True).ids
        for start in range(len(framed) - len(plain) + 1):
            if framed[start : start + len(plain)] == plain:
                return framed[:start], framed[start + len(plain) :]
        return [], []

    def _read_roles(self, generation: Mapping[str, Any], path: Path) -> None:
        sources = [
            self._read_side_file(name, path)
            for name in ("tokenizer_config.json", "special_tokens_map.json")
        ]
        token_to_id = self.pipeline.vocabulary.get
        self.bos_token_id = find_role("bos", sources, generation, token_to_id)
        is_named = any("bos_token" in source for source in sources)
        if self.bos_prefix and (self.bos_token_id is None or not is_named):
            self.bos_token_id = self.bos_prefix[0]  # what is put in front of texts is no guess
        self.eos_token_id = find_role("eos", sources, generation, token_to_id)
        self.pad_token_id = find_role("pad", sources, generation, token_to_id)
        for token_id in (self.bos_token_id, self.eos_token_id):
            if token_id in self.token_strings:
                self.special_tokens.setdefault(self.token_strings[token_id], token_id)

    def _read_side_file(self, name: str, path: Path) -> Mapping[str, Any]:
        if name not in self.side_files:
            return {}
        content = parse_json(self.side_files[name], path.parent / name, TokenizerError)
        if not isinstance(content, dict):
            raise TokenizerError(f"{path.parent / name} holds no JSON object.")
        return content

    @staticmethod
    def _build_backend(definition: dict[str, Any], path: Path) -> Backend:
        with library_errors(f"{path} is a damaged tokenizer.json"):
            backend = Backend.from_str(json.dumps(for_text(definition), ensure_ascii=False))
        backend.encode_special_tokens = True
        return backend


@contextlib.contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn what the tokenizers library raises into an error of ours.

    It raises bare Exception, and panics (a pattern that backtracks without end, for instance),
    which are no Exception at all.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerError(f"{what}: {error}.") from error
        raise


def _unknown_id(model: dict[str, Any], vocabulary: dict[str, int]) -> int | None:
    """The id for what the vocabulary lacks: unigram models give the id, others the token."""
    if "unk_id" in model:
        unknown: int | None = model["unk_id"]
        return unknown
    return vocabulary.get(model.get("unk_token") or "")
