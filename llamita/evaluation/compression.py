"""What general compressors make of the same bytes: the yardstick beside bits per byte.

A language model that needs fewer bits per byte than xz knows more about the text than repeated
strings tell. Primed xz is the fairer rival: it has read the training text first, as the model has.
"""

from __future__ import annotations

import gzip
import lzma

from llamita.errors import DataError

_XZ_PRESET = 9
_XZ_PRESET_DICTIONARY = 1 << 26
_XZ_LARGEST_DICTIONARY = (1 << 30) + (1 << 29)


def xz_bits_per_byte(data: bytes) -> float:
    """Bits per byte of `xz -9`."""
    _check_not_empty(data)
    return _xz_size(data, _XZ_PRESET_DICTIONARY) * 8 / len(data)


def gzip_bits_per_byte(data: bytes) -> float:
    """Bits per byte of `gzip -9`."""
    _check_not_empty(data)
    return len(gzip.compress(data, compresslevel=9, mtime=0)) * 8 / len(data)


def primed_xz_bits_per_byte(prime: bytes, data: bytes) -> float:
    """Bits per byte that `data` adds to `prime` under xz with a dictionary that holds both.

    (size(xz(prime + data)) - size(xz(prime))) * 8 / len(data): the container's bytes stand in
    both sizes and cancel. xz allows dictionaries of up to 1.5 GiB.
    """
    _check_not_empty(data)
    dictionary = max(len(prime) + len(data), _XZ_PRESET_DICTIONARY)
    added = _xz_size(prime + data, dictionary) - _xz_size(prime, dictionary)
    return added * 8 / len(data)


def _xz_size(data: bytes, dictionary: int) -> int:
    size = min(dictionary, _XZ_LARGEST_DICTIONARY)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": _XZ_PRESET, "dict_size": size}]
    return len(lzma.compress(data, format=lzma.FORMAT_XZ, filters=filters))


def _check_not_empty(data: bytes) -> None:
    if not data:
        raise DataError("there is no text to compress: it has 0 bytes.")
