"""The values in a GGUF header, read one after the other with every length checked first."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np

from llamita.errors import CheckpointError

Value: TypeAlias = "int | float | bool | str | list[str] | np.ndarray"

DAMAGED = "The file is damaged or not whole: copy or download it again."
_MOST_STRINGS = 1 << 22
"""In one header, all together: no vocabulary and its merges come near it."""

_LONGEST_TEXT = 1 << 26

BOOL, STRING, ARRAY = 7, 8, 9
_NUMBERS: dict[int, np.dtype[np.generic]] = {
    number: np.dtype(code)
    for number, code in {
        0: "u1",
        1: "i1",
        2: "<u2",
        3: "<i2",
        4: "<u4",
        5: "<i4",
        6: "<f4",
        BOOL: "u1",
        10: "<u8",
        11: "<i8",
        12: "<f8",
    }.items()
}
_length = struct.Struct("<Q").unpack_from


class Cursor:
    """A place in a mapped file, moving forward."""

    def __init__(self, mapped: mmap.mmap, path: Path) -> None:
        self.mapped, self.path = mapped, path
        self.position, self.size = 0, len(mapped)
        self._strings_left = _MOST_STRINGS

    def refuse(self, problem: str, position: int | None) -> NoReturn:
        """Raise the one error of a damaged file, saying what is wrong and where."""
        place = "" if position is None else f" (byte {position})"
        raise CheckpointError(f"{self.path} is no sound GGUF file: {problem}{place}.", hint=DAMAGED)

    def take(self, length: int, what: str) -> bytes:
        """The next `length` bytes."""
        start = self.position
        if length > self.size - start:
            self.refuse(
                f"{what} would take {length} bytes where {self.size - start} are left", start
            )
        self.position = start + length
        return self.mapped[start : self.position]

    def unsigned(self, width: int, what: str) -> int:
        """The next number of `width` bytes."""
        return int.from_bytes(self.take(width, what), "little")

    def count(self, what: str, least_bytes: int, most: int) -> int:
        """A count of things that take at least `least_bytes` each."""
        start = self.position
        count = self.unsigned(8, f"the number of {what}")
        self._check_count(count, what, least_bytes, most, start)
        return count

    def text(self, what: str, longest: int = _LONGEST_TEXT) -> str:
        """A length and that many bytes of UTF-8."""
        start = self.position
        length = self.unsigned(8, f"the length of {what}")
        if length > longest:
            self.refuse(f"{what} has {length} bytes; it may have {longest}", start)
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError as cause:
            self.refuse(f"{what} is no UTF-8: {cause.reason}", start)

    def value(self, key: str) -> Value:
        """A type and a value of it."""
        start = self.position
        kind = self.unsigned(4, f"the type of {key}")
        if kind == STRING:
            return self.text(key)
        if kind == ARRAY:
            return self._array(key)
        if kind not in _NUMBERS:
            self.refuse(f"{key} has the unknown type {kind}", start)
        start = self.position
        form = _NUMBERS[kind]
        [number] = np.frombuffer(self.take(form.itemsize, key), dtype=form)
        if kind == BOOL:
            if number not in (0, 1):
                self.refuse(f"{key} is {number} where a truth value is 0 or 1", start)
            return bool(number)
        if form == np.float32:
            return float(str(number))
        plain: int | float = number.item()
        return plain

    def _array(self, key: str) -> Value:
        start = self.position
        kind = self.unsigned(4, f"the type of what is in {key}")
        if kind == ARRAY:
            self.refuse(f"{key} is an array of arrays", start)
        start = self.position
        count = self.unsigned(8, f"the length of {key}")
        if kind == STRING:
            self._check_count(count, f"texts in {key}", 8, self._strings_left, start)
            self._strings_left -= count
            return self._texts(key, count)
        if kind not in _NUMBERS:
            self.refuse(f"{key} is an array of the unknown type {kind}", start)
        form = _NUMBERS[kind]
        self._check_count(count, f"numbers in {key}", form.itemsize, self.size, start)
        return np.frombuffer(self.take(count * form.itemsize, key), dtype=form)

    def _check_count(self, count: int, what: str, least_bytes: int, most: int, start: int) -> None:
        left = self.size - self.position
        if count > left // least_bytes or count > most:
            self.refuse(f"it claims {count} {what} with {left} bytes left", start)

    def _texts(self, key: str, count: int) -> list[str]:
        """As `text`, many times and fast: vocabularies have hundreds of thousands."""
        mapped, size, position = self.mapped, self.size, self.position
        texts = []
        try:
            for _ in range(count):
                start = position + 8
                [length] = _length(mapped, position)
                position = start + length
                if position > size:
                    self.refuse(f"a text in {key} would take {length} bytes", start - 8)
                texts.append(mapped[start:position].decode("utf-8"))
        except UnicodeDecodeError as cause:
            self.refuse(f"text {len(texts)} in {key} is no UTF-8: {cause.reason}", start)
        except struct.error:
            self.refuse(f"the file ends within {key}", position)
        self.position = position
        return texts
