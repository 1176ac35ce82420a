from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from llamita.data.dataset import TokenDataset
from llamita.data.loader import BlockLoader, epoch_order, sequential_batches
from llamita.data.rows import StreamRows
from llamita.errors import DataError

CONTEXT = 4
BLOCKS = 25


@pytest.fixture
def rows(tmp_path: Path, write_data: Any) -> StreamRows:
    """Token number i is i, so a block's first token tells which block it is."""
    write_data(tmp_path, [list(range(1, CONTEXT * BLOCKS))], shard_tokens=30)
    return StreamRows(TokenDataset.open(tmp_path, "train"), CONTEXT)


def draw(loader: BlockLoader, batches: int) -> list[int]:
    """The numbers of the blocks drawn."""
    numbers: list[int] = []
    for _ in range(batches):
        numbers += (loader.next_batch().input_ids[:, 0] // CONTEXT).tolist()
    return numbers


def test_a_block_is_its_tokens_and_the_labels_are_one_further(rows: StreamRows) -> None:
    batch = BlockLoader([rows], batch_size=3, seed=0).next_batch()
    assert batch.input_ids.shape == batch.labels.shape == (3, CONTEXT)
    assert batch.input_ids.dtype == batch.labels.dtype == torch.int64
    stream = rows.dataset.read(0, rows.dataset.tokens)
    for inputs, labels in zip(batch.input_ids.tolist(), batch.labels.tolist(), strict=True):
        start = inputs[0]
        assert inputs == stream[start : start + CONTEXT].tolist()
        assert labels == stream[start + 1 : start + CONTEXT + 1].tolist()


def test_every_block_comes_once_an_epoch_in_another_order_each_time(rows: StreamRows) -> None:
    loader = BlockLoader([rows], batch_size=5, seed=3)
    first, second = draw(loader, BLOCKS // 5), draw(loader, BLOCKS // 5)
    assert sorted(first) == sorted(second) == list(range(BLOCKS))
    assert first != second
    assert first != list(range(BLOCKS))


def test_the_seed_decides_the_order(rows: StreamRows) -> None:
    orders = [draw(BlockLoader([rows], 5, seed), 5) for seed in (1, 1, 2)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_the_order_is_the_same_for_all_versions() -> None:
    assert epoch_order(seed=7, epoch=2, rows=10).tolist() == [6, 0, 9, 3, 1, 4, 7, 5, 8, 2]


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    seed=st.integers(0, 2**40),
    batch_size=st.integers(1, 60),
    before=st.integers(0, 9),
    after=st.integers(1, 9),
)
def test_a_resumed_loader_draws_what_the_uninterrupted_one_would(
    rows: StreamRows, seed: int, batch_size: int, before: int, after: int
) -> None:
    whole = draw(BlockLoader([rows], batch_size, seed), before + after)
    stopped = BlockLoader([rows], batch_size, seed)
    draw(stopped, before)
    resumed = BlockLoader([rows], batch_size, seed)
    resumed.load_state_dict(stopped.state_dict())
    assert draw(resumed, after) == whole[before * batch_size :]
    at_position = BlockLoader([rows], 1, seed)
    at_position.load_state_dict(
        {  # as it was saved before there were several sources
            "position": before * batch_size,
            "seed": seed,
            "context_length": CONTEXT,
            "blocks_per_epoch": BLOCKS,
        }
    )
    assert draw(at_position, after) == whole[before * batch_size :][:after]


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batch_size=st.integers(1, 60), epochs=st.integers(1, 3))
def test_any_batch_size_covers_each_epoch_exactly(
    rows: StreamRows, batch_size: int, epochs: int
) -> None:
    loader = BlockLoader([rows], batch_size, seed=0)
    numbers = draw(loader, -(-epochs * BLOCKS // batch_size))
    for epoch in range(epochs):
        drawn = numbers[epoch * BLOCKS : (epoch + 1) * BLOCKS]
        assert sorted(drawn) == list(range(BLOCKS))


@pytest.mark.parametrize(("context", "seed", "name"), [(5, 0, "context_length"), (4, 1, "seed")])
def test_a_state_of_other_settings_is_refused_by_name(
    rows: StreamRows, context: int, seed: int, name: str
) -> None:
    state = BlockLoader([rows], 1, seed=0).state_dict()
    with pytest.raises(DataError, match=name):
        BlockLoader([StreamRows(rows.dataset, context)], 1, seed).load_state_dict(state)


def test_a_split_shorter_than_one_block_is_refused(rows: StreamRows) -> None:
    with pytest.raises(DataError, match="fewer than one block"):
        StreamRows(rows.dataset, 1000)


@pytest.mark.parametrize(
    ("batch_size", "seed", "message"), [(0, 0, "batch size is 0"), (1, -1, "seed is -1")]
)
def test_numbers_out_of_range_are_named(
    rows: StreamRows, batch_size: int, seed: int, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        BlockLoader([rows], batch_size, seed)


def test_a_context_of_no_token_is_named(rows: StreamRows) -> None:
    with pytest.raises(DataError, match="context length is 0"):
        StreamRows(rows.dataset, 0)


def test_a_separator_opens_the_document_after_it(tmp_path: Path, write_data: Any) -> None:
    write_data(tmp_path / "several", [[7, 8], [9], [5, 6, 5]])
    dataset = TokenDataset.open(tmp_path / "several", "train")
    masked = StreamRows(dataset, 9, document_mask=True)
    [batch] = sequential_batches(masked, batch_size=1)
    assert batch.input_ids.tolist() == [[0, 7, 8, 0, 9, 0, 5, 6, 5]]
    assert batch.document_ids is not None
    assert batch.document_ids.tolist() == [[1, 1, 1, 2, 2, 3, 3, 3, 3]]
    [plain] = sequential_batches(StreamRows(dataset, 9), batch_size=1)
    assert plain.document_ids is None


def test_sequential_batches_give_all_blocks_in_order(rows: StreamRows) -> None:
    batches = list(sequential_batches(rows, batch_size=10))
    assert [len(batch.input_ids) for batch in batches] == [10, 10, 5]
    inputs = torch.cat([batch.input_ids for batch in batches])
    assert inputs.flatten().tolist() == list(range(CONTEXT * BLOCKS))


def test_sequential_batches_spread_a_limit_evenly(rows: StreamRows) -> None:
    [batch] = sequential_batches(rows, batch_size=10, limit=5)
    assert (batch.input_ids[:, 0] // CONTEXT).tolist() == [0, 5, 10, 15, 20]
    [again] = sequential_batches(rows, batch_size=10, limit=5)
    assert torch.equal(batch.labels, again.labels)


def test_sequential_batches_take_no_more_than_there_is(rows: StreamRows) -> None:
    batches = sequential_batches(rows, batch_size=10, limit=1000)
    assert sum(len(batch.input_ids) for batch in batches) == BLOCKS


def test_an_id_outside_the_vocabulary_names_its_shard(rows: StreamRows) -> None:
    directory = rows.dataset.directory
    path = directory / "train-00001.bin"
    ids = np.fromfile(path, dtype="<u2")
    ids[7] = 300
    ids.tofile(path)
    damaged = StreamRows(TokenDataset.open(directory, "train"), CONTEXT)
    loader = BlockLoader([damaged], batch_size=BLOCKS, seed=0)
    for draw_batch in (loader.next_batch, lambda: list(sequential_batches(damaged, 3))):
        with pytest.raises(
            DataError, match=r"train-00001\.bin holds the token id 300 \(token number 37 of"
        ):
            draw_batch()
