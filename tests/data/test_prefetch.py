"""Batches made ahead: the same ones, a position of what was used, no thread left behind."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from llamita.data.dataset import TokenDataset
from llamita.data.loader import Batch, BlockLoader
from llamita.data.prefetch import Prefetcher
from llamita.data.rows import StreamRows
from llamita.errors import DataError


@pytest.fixture
def rows(tmp_path: Path, write_data: Any) -> StreamRows:
    write_data(tmp_path, [list(range(1, 120))])
    return StreamRows(TokenDataset.open(tmp_path, "train"), 4)


def _threads() -> int:
    return sum(thread.name == "llamita-prefetch" for thread in threading.enumerate())


def _ids(loader: BlockLoader | Prefetcher, batches: int) -> list[list[int]]:
    return [loader.next_batch().input_ids[:, 0].tolist() for _ in range(batches)]


def test_batches_are_those_of_the_loader(rows: StreamRows) -> None:
    expected = _ids(BlockLoader([rows], 3, 7), 25)
    prefetcher = Prefetcher(BlockLoader([rows], 3, 7))
    assert _ids(prefetcher, 25) == expected
    prefetcher.close()


@pytest.mark.parametrize("used", [0, 1, 5])
def test_the_state_is_behind_what_was_used_not_behind_what_was_read(
    rows: StreamRows, used: int
) -> None:
    plain = BlockLoader([rows], 3, 7)
    _ids(plain, used)
    prefetcher = Prefetcher(BlockLoader([rows], 3, 7), ahead=4)
    _ids(prefetcher, used)
    state = prefetcher.state_dict()
    assert state == plain.state_dict()
    following = _ids(plain, 6)
    assert _ids(prefetcher, 6) == following
    resumed = Prefetcher(BlockLoader([rows], 3, 7))
    resumed.load_state_dict(state)
    assert _ids(resumed, 6) == following
    prefetcher.load_state_dict(state)
    assert _ids(prefetcher, 6) == following
    assert prefetcher.epochs == [(used + 6) * 3 / rows.count]
    prefetcher.close()
    resumed.close()


def test_a_closed_one_goes_on_where_it_was(rows: StreamRows) -> None:
    expected = _ids(BlockLoader([rows], 2, 0), 6)
    prefetcher = Prefetcher(BlockLoader([rows], 2, 0))
    first = _ids(prefetcher, 3)
    prefetcher.close()
    assert _threads() == 0
    assert [*first, *_ids(prefetcher, 3)] == expected
    prefetcher.close()
    prefetcher.close()


def test_the_thread_ends_with_the_prefetcher(rows: StreamRows) -> None:
    prefetcher = Prefetcher(BlockLoader([rows], 2, 0), ahead=1)
    assert _threads() == 0  # it begins when a batch is asked for
    prefetcher.next_batch()
    [thread] = [t for t in threading.enumerate() if t.name == "llamita-prefetch"]
    del prefetcher
    gc.collect()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_an_error_comes_once_in_its_turn_and_leaves_the_state(
    rows: StreamRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = BlockLoader.next_batch, 0

    def failing(loader: BlockLoader) -> Batch:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise DataError("the disk is gone.")
        return real(loader)

    expected = _ids(BlockLoader([rows], 2, 0), 4)
    monkeypatch.setattr(BlockLoader, "next_batch", failing)
    prefetcher = Prefetcher(BlockLoader([rows], 2, 0))
    assert _ids(prefetcher, 2) == expected[:2]
    state = prefetcher.state_dict()
    with pytest.raises(DataError, match="the disk is gone"):
        prefetcher.next_batch()
    assert _threads() == 0
    assert prefetcher.state_dict() == state
    assert _ids(prefetcher, 2) == expected[2:]  # the disk is back
    prefetcher.close()


def test_reading_ahead_draws_no_random_numbers(rows: StreamRows) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    prefetcher = Prefetcher(BlockLoader([rows], 2, 0))
    _ids(prefetcher, 9)
    prefetcher.close()
    assert torch.equal(before, torch.get_rng_state())
