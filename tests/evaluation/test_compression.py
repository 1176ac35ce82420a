"""Sizes by compressors: those of the command-line tools, per byte."""

from __future__ import annotations

import gzip
import lzma
import random

import pytest

from llamita.errors import DataError
from llamita.evaluation.compression import (
    gzip_bits_per_byte,
    primed_xz_bits_per_byte,
    xz_bits_per_byte,
)


def words(seed: int, count: int) -> bytes:
    draw = random.Random(seed)
    vocabulary = ["".join(draw.choices("etaoinshr", k=5)) for _ in range(200)]
    return " ".join(draw.choices(vocabulary, k=count)).encode()


def test_xz_and_gzip_are_those_of_level_9():
    data = words(1, 4000)
    assert xz_bits_per_byte(data) == len(lzma.compress(data, preset=9)) * 8 / len(data)
    assert gzip_bits_per_byte(data) == len(gzip.compress(data, 9)) * 8 / len(data)


def test_primed_xz_pays_little_for_what_the_prime_holds():
    data = words(2, 4000)
    assert primed_xz_bits_per_byte(data, data) < 0.05
    assert primed_xz_bits_per_byte(b"", data) == pytest.approx(xz_bits_per_byte(data), rel=0.01)


def test_primed_xz_remembers_across_more_than_its_nearest_megabytes():
    data = words(3, 2000)
    noise = random.Random(4).randbytes(1 << 20)
    assert primed_xz_bits_per_byte(data + noise, data) < 0.25 * xz_bits_per_byte(data)


@pytest.mark.parametrize("measure", [xz_bits_per_byte, gzip_bits_per_byte])
def test_no_bytes_have_no_bits_per_byte(measure):
    with pytest.raises(DataError):
        measure(b"")
    with pytest.raises(DataError):
        primed_xz_bits_per_byte(b"abc", b"")
