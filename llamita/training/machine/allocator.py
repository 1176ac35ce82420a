"""Keeping memory that a training step frees for the next one, which asks for the same again."""

from __future__ import annotations

import ctypes
import sys

# Of <malloc.h>; both take bytes.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_M_MMAP_MAX = -4  # a number of blocks
_LARGEST_BLOCK = 1 << 30
_MOST_KEPT = 2**31 - 1  # what the C int can say


def keep_freed_memory() -> bool:
    """Have glibc's allocator keep what is freed instead of giving it back to the system; whether
    that is so now.

    By default blocks above 32 MB, such as a chunk of logits, are mapped anew each time, and each of
    their pages is cleared at its first touch: a quarter of a small model's step goes into that
    (docs/experiments.md). The peak of a run stays what it was, since the next step needs it all
    again. It holds for the whole process from here on; other allocators are left alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    # Before glibc 2.35 the size of a block has a limit of 32 MB, their number has none.
    is_kept = mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK) or mallopt(_M_MMAP_MAX, 0)
    return bool(is_kept and mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT))
