"""Whole documents packed into rows, as tightly as they fit.

Best-fit-decreasing (arXiv:2404.10830): a document longer than a row is cut into rows and a tail;
then, from the longest to the shortest, each piece goes where it leaves the least room. Which piece
goes where follows from the lengths alone, so it is worked out anew at each start, in a moment.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Packing:
    """Row r holds the pieces `order[offsets[r] : offsets[r + 1]]`, in that order."""

    order: Integers
    offsets: Integers

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1


def cut_documents(starts: Integers, lengths: Integers, capacity: int) -> tuple[Integers, Integers]:
    """Where the pieces of documents begin, and their lengths of 1 to `capacity`.

    Args:
        starts, lengths: of the documents.
    """
    pieces = -(-lengths // capacity)
    first = np.cumsum(pieces) - pieces
    number = np.arange(int(pieces.sum())) - np.repeat(first, pieces)
    piece_starts = np.repeat(starts, pieces) + number * capacity
    piece_ends = np.minimum(piece_starts + capacity, np.repeat(starts + lengths, pieces))
    return piece_starts, piece_ends - piece_starts


def pack(lengths: Integers, capacity: int) -> Packing:
    """Pack pieces of 1 to `capacity` into rows of `capacity`, best fit decreasing.

    Pieces of one length are placed together, which gives the same rows as one after the other:
    a row that took one of them is the tightest for the next as long as it has room.
    """
    by_length = np.argsort(-lengths, kind="stable")
    row_of = np.empty(len(lengths), dtype=np.int64)
    room: dict[int, Integers] = {}  # rows by how much room they have, in the order they got it
    rooms: list[int] = []  # the keys of `room`, ascending
    rows = 0
    kinds, counts = np.unique(-lengths[by_length], return_counts=True)
    ends = np.cumsum(counts)
    for length, count, end in zip((-kinds).tolist(), counts.tolist(), ends.tolist(), strict=True):
        pieces = by_length[end - count : end]
        while len(pieces):
            at = bisect.bisect_left(rooms, length)
            if at < len(rooms):
                space = rooms[at]
                found = room.pop(rooms.pop(at))
            else:
                space = capacity
                found = np.arange(rows, rows - (-len(pieces) // (capacity // length)))
                rows += len(found)
            each = space // length
            used = found[: -(-len(pieces) // each)]
            placed, pieces = pieces[: len(used) * each], pieces[len(used) * each :]
            row_of[placed] = np.repeat(used, each)[: len(placed)]
            in_last = len(placed) - (len(used) - 1) * each
            for left, changed in (
                (space, found[len(used) :]),
                (space - each * length, used[:-1]),
                (space - in_last * length, used[-1:]),
            ):
                if left and len(changed):
                    if left not in room:
                        bisect.insort(rooms, left)
                    room[left] = np.concatenate([room.get(left, changed[:0]), changed])
    order = by_length[np.argsort(row_of[by_length], kind="stable")]
    offsets = np.searchsorted(row_of[order], np.arange(rows + 1))
    return Packing(order, offsets)
