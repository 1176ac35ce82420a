"""Ids of a rendered chat: control tokens as their ids, everything between them as text.

The text between control tokens must be encoded as in the whole: whether a tokenizer puts a space
in front of it, or strips the one beside a control token, depends on what stands there. So the
chat is encoded in one go, by a copy of the tokenizer in which every control token has a private
character for a name. Those are found in the text; the names that people might type are not.

With SentencePiece a user-defined symbol (Hermes' `<|im_start|>`) is part of the running text, as
it is for SentencePiece itself, while a control symbol (Llama 2's `<s>`) cuts it: what follows is a
text of its own, with its own space in front, as Meta's code and `transformers` have it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sentencepiece import SentencePieceProcessor, sentencepiece_pb2
from tokenizers import Tokenizer as Backend

from llamita.errors import TokenizerError
from llamita.formats.vocabulary import USER_DEFINED
from llamita.tokenizer.base import Tokenizer, check_unicode
from llamita.tokenizer.chat_shield import Shield
from llamita.tokenizer.convert import added_token
from llamita.tokenizer.definition import for_text
from llamita.tokenizer.hf import HFTokenizer, library_errors
from llamita.tokenizer.spm import SentencePieceTokenizer

_FIRST_MARK = 0xF0000
_MOST_CONTROL_TOKENS = 0xFFFE


class Piece(NamedTuple):
    """A token and the characters that it covers."""

    token_id: int
    start: int
    end: int


def split_at_controls(
    text: str,
    control: re.Pattern[str],
    special_tokens: Mapping[str, int],
    shield: Shield,
    spans: Sequence[tuple[int, int]],
) -> tuple[list[str | int], list[tuple[int, int]]]:
    """A rendering as texts, in their own characters again, and ids of control tokens.

    `spans` of the rendering are given back counted as `ChatEncoder.encode` counts places.
    """
    borders = sorted({border for span in spans for border in span})
    places: dict[int, int] = {}
    parts: list[str | int] = []
    position = place = 0

    def take_text(end: int) -> None:
        nonlocal position, place
        inside = borders[bisect_left(borders, position) : bisect_left(borders, end)]
        for border in [*inside, end]:
            shown = shield.show(text[position:border])
            if shown and parts and isinstance(parts[-1], str):
                parts[-1] += shown
            elif shown:
                parts.append(shown)
            position, place = border, place + len(shown)
            places[border] = place

    for match in control.finditer(text):
        take_text(match.start())
        parts.append(special_tokens[match[0]])
        inside = borders[bisect_right(borders, position) : bisect_left(borders, match.end())]
        places |= dict.fromkeys(inside, place)
        position, place = match.end(), place + 1
        places[position] = place
    take_text(len(text))
    return parts, [(places[start], places[end]) for start, end in spans]


def with_one_bos(pieces: list[Piece], tokenizer: Tokenizer) -> list[Piece]:
    """The tokens with the BOS in front once, if the template wrote one or the tokenizer adds it."""
    bos, prefix = tokenizer.bos_token_id, tokenizer.bos_prefix
    while len(pieces) > 1 and pieces[0].token_id == pieces[1].token_id == bos:
        pieces = pieces[1:]
    if prefix and (not pieces or pieces[0].token_id != prefix[0]):
        # Before the first character, so that it is in no span.
        return [*(Piece(token_id, -1, -1) for token_id in prefix), *pieces]
    return pieces


class ChatEncoder:
    """Encodes texts in which control tokens are marked."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        control = sorted(set(tokenizer.special_tokens.values()))
        if len(control) > _MOST_CONTROL_TOKENS:
            raise TokenizerError(f"the tokenizer has {len(control):,} control tokens.")
        self._tokenizer = tokenizer
        self._marks = {token_id: chr(_FIRST_MARK + n) for n, token_id in enumerate(control)}
        self._ids = {mark: token_id for token_id, mark in self._marks.items()}
        self._any_mark = re.compile(
            f"([{chr(_FIRST_MARK)}-{chr(_FIRST_MARK + max(len(control), 1))}])"
        )
        self._encode = self._encoder()

    def encode(self, parts: Sequence[str | int]) -> list[Piece]:
        """The tokens of a chat given as texts and ids of control tokens, in order.

        Places count the characters of the texts; control tokens count one.
        """
        texts = [part for part in parts if isinstance(part, str)]
        check_unicode(texts)
        if isinstance(self._tokenizer, HFTokenizer):
            self._tokenizer.check_characters(texts)
        if not any(map(self._any_mark.search, texts)):
            marked = "".join(p if isinstance(p, str) else self._marks[p] for p in parts)
            return self._encode(marked)
        return list(self._encode_around(parts))

    def _encode_around(self, parts: Sequence[str | int]) -> Iterator[Piece]:
        """For text that holds the private characters of the marks: those are encoded alone."""
        place = 0
        for part in parts:
            for text in [part] if isinstance(part, int) else self._any_mark.split(part):
                if isinstance(text, int):
                    yield Piece(text, place, place + 1)
                    place += 1
                    continue
                for piece in self._encode_text(text):
                    yield Piece(piece.token_id, place + piece.start, place + piece.end)
                place += len(text)

    def _encoder(self) -> Callable[[str], list[Piece]]:
        if isinstance(self._tokenizer, SentencePieceTokenizer):
            return self._sentencepiece(self._tokenizer)
        if isinstance(self._tokenizer, HFTokenizer):
            return self._tokenizers_library(self._tokenizer)
        raise TokenizerError(f"a {type(self._tokenizer).__name__} cannot encode chats.")

    def _encode_text(self, text: str) -> list[Piece]:
        """Where each token of a text begins and ends, counted in its bytes."""
        ids = self._tokenizer.encode(text)
        data = text.encode()
        extra = sum(len(self._tokenizer.token_bytes(i)) for i in ids) - len(data)
        place = -extra if self._tokenizer.strips_leading_space else 0
        pieces = []
        for token_id in ids:
            end = place + len(self._tokenizer.token_bytes(token_id))
            start_character = len(data[: max(place, 0)].decode(errors="ignore"))
            end_character = len(data[: max(end, 0)].decode(errors="replace"))
            pieces.append(Piece(token_id, start_character, max(start_character, end_character)))
            place = end
        return pieces

    def _tokenizers_library(self, tokenizer: HFTokenizer) -> Callable[[str], list[Piece]]:
        """By the tokenizer.json with private names for its control tokens."""
        definition = for_text(tokenizer.definition())
        names = {name: self._marks[i] for name, i in tokenizer.special_tokens.items()}
        added = [
            {**token, "content": self._marks.get(token["id"], token["content"])}
            for token in definition.get("added_tokens") or []
        ]
        known = {token["id"] for token in added}
        added += [
            added_token(mark, token_id, True)
            for token_id, mark in self._marks.items()
            if token_id not in known
        ]
        changed = {**definition, "added_tokens": added, "model": dict(definition["model"])}
        model = changed["model"]
        if isinstance(model["vocab"], list):
            model["vocab"] = [
                [self._marks.get(index, piece), score]
                for index, (piece, score) in enumerate(model["vocab"])
            ]
        else:
            model["vocab"] = {names.get(name, name): i for name, i in model["vocab"].items()}
            model["merges"] = [m for m in model.get("merges") or [] if _harmless(m, names)]
        if model.get("unk_token") in names:
            model["unk_token"] = names[model["unk_token"]]
        with library_errors("the tokenizer cannot be made one for chats"):
            backend = Backend.from_str(json.dumps(changed))
        lost = [
            token_id
            for mark, token_id in self._ids.items()
            if backend.token_to_id(mark) != token_id
        ]
        if lost:
            raise TokenizerError(f"the tokenizer cannot encode chats: it has no token {lost[0]}.")

        def encode(marked: str) -> list[Piece]:
            with library_errors("the tokenizer fails on a chat"):
                encoding = backend.encode(marked, add_special_tokens=False)
            places = zip(encoding.ids, encoding.offsets, strict=True)
            return [Piece(token_id, start, end) for token_id, (start, end) in places]

        return encode

    def _sentencepiece(self, tokenizer: SentencePieceTokenizer) -> Callable[[str], list[Piece]]:
        proto = type(tokenizer.proto)()
        proto.CopyFrom(tokenizer.proto)
        inside = set()
        for index, piece in enumerate(proto.pieces):
            if piece.type == USER_DEFINED and index in self._marks:
                piece.piece = self._marks[index]
                inside.add(self._marks[index])
        processor = SentencePieceProcessor(model_proto=proto.SerializeToString())
        cuts = [mark for mark in self._ids if mark not in inside]
        cut = re.compile(f"([{''.join(cuts)}])" if cuts else "((?!))")

        def encode(marked: str) -> list[Piece]:
            pieces: list[Piece] = []
            place = 0
            for text in cut.split(marked):
                if text in self._ids and text not in inside:
                    pieces.append(Piece(self._ids[text], place, place + 1))
                elif text:
                    pieces += _encode_sentences(processor, text, place)
                place += len(text or "")
            return pieces

        return encode


def _encode_sentences(processor: SentencePieceProcessor, text: str, place: int) -> list[Piece]:
    found = sentencepiece_pb2.SentencePieceText()  # type: ignore[attr-defined]
    found.ParseFromString(processor.encode(text, out_type="serialized_proto"))
    # From bytes to characters; a token may end within a character.
    characters = [0]
    for number, character in enumerate(text, start=1):
        characters += [number] * len(character.encode())
    return [
        Piece(p.id, place + characters[p.begin], place + characters[p.end]) for p in found.pieces
    ]


def _harmless(merge: Any, names: dict[str, str]) -> bool:
    """Whether a merge has nothing to do with a control token."""
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left not in names and right not in names and left + right not in names
