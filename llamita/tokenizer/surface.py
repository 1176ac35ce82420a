"""How the strings inside a tokenizer stand for bytes, and which of them are control tokens.

Byte-level BPE writes each byte as one printable character (the table of GPT-2); SentencePiece
writes a space as U+2581 and single bytes as `<0x0A>`.
"""

from __future__ import annotations

import re

SPACE_MARK = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_CONTROL = re.compile(r"<.+>|\[/?[A-Z_]{2,}\]", re.DOTALL)


def _byte_characters() -> list[str]:
    """GPT-2's table: printable bytes stand for themselves, the others for U+0100 onwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    shifted = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(shifted)) for byte in range(256)]


BYTE_CHARACTERS = _byte_characters()
_CHARACTER_BYTES = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a byte-level token; one with a foreign character is taken as plain text."""
    try:
        return bytes(_CHARACTER_BYTES[character] for character in token)
    except KeyError:
        return token.encode()


def piece_bytes(token: str, *, space_mark: bool) -> bytes:
    """The bytes of a SentencePiece token: `<0x0A>` is one byte, U+2581 a space."""
    match = _BYTE_TOKEN.fullmatch(token)
    if match:
        return bytes([int(match[1], 16)])
    return (token.replace(SPACE_MARK, " ") if space_mark else token).encode()


def looks_like_control(token: str) -> bool:
    """Whether an added token steers a model rather than being text: `<|…|>`, `<…>`, `[INST]`.

    Many tokenizers do not mark all of these as special (Qwen's `<tool_call>`).
    """
    return _CONTROL.fullmatch(token) is not None
