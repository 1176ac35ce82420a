"""Documents packed into rows: everything once, nothing twice, each document for itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from llamita.config import preset
from llamita.data.dataset import TokenDataset
from llamita.data.loader import BlockLoader, sequential_batches
from llamita.data.packing import cut_documents, pack
from llamita.data.rows import IGNORED, DocumentRows
from llamita.errors import DataError
from llamita.model import Transformer

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=60)


def _one_by_one(lengths: list[int], capacity: int) -> list[list[int]]:
    """Best fit decreasing as it is written in the paper: one piece after the other."""
    rows: list[list[int]] = []
    for piece in sorted(range(len(lengths)), key=lambda piece: (-lengths[piece], piece)):
        room = [capacity - sum(lengths[other] for other in row) for row in rows]
        fitting = [index for index, left in enumerate(room) if left >= lengths[piece]]
        if fitting:
            rows[min(fitting, key=lambda index: room[index])].append(piece)
        else:
            rows.append([piece])
    return rows


@given(lengths=LENGTHS, more=st.integers(0, 9))
def test_rows_hold_every_piece_once_and_never_more_than_fits(lengths: list[int], more: int) -> None:
    capacity = max(lengths) + more
    packing = pack(np.array(lengths), capacity)
    assert sorted(packing.order.tolist()) == list(range(len(lengths)))
    filled = np.add.reduceat(np.array(lengths)[packing.order], packing.offsets[:-1])
    assert packing.offsets[-1] == len(lengths)
    assert filled.min() > 0
    assert filled.max() <= capacity


@given(lengths=LENGTHS, more=st.integers(0, 9))
def test_rows_are_as_full_as_those_of_best_fit_one_by_one(lengths: list[int], more: int) -> None:
    capacity = max(lengths) + more
    packing = pack(np.array(lengths), capacity)
    filled = np.add.reduceat(np.array(lengths)[packing.order], packing.offsets[:-1])
    expected = _one_by_one(lengths, capacity)
    assert sorted(filled.tolist()) == sorted(sum(lengths[p] for p in row) for row in expected)


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=20), capacity=st.integers(1, 20))
def test_only_documents_longer_than_a_row_are_cut(lengths: list[int], capacity: int) -> None:
    ends = np.cumsum(np.array(lengths, dtype=np.int64))
    starts, pieces = cut_documents(ends - lengths, np.array(lengths), capacity)
    assert pieces.min() >= 1
    assert pieces.max() <= capacity
    assert np.array_equal(starts, np.cumsum(pieces) - pieces)
    inner = set(starts.tolist()) - set((ends - lengths).tolist())
    documents = zip((ends - lengths).tolist(), lengths, strict=True)
    assert inner == {
        start + cut for start, length in documents for cut in range(capacity, length, capacity)
    }


DOCUMENTS = st.lists(st.lists(st.integers(1, 250), max_size=30), min_size=1, max_size=25)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=DOCUMENTS, context=st.integers(1, 12))
def test_every_token_is_a_label_once_behind_its_own_document(
    tmp_path: Path, write_data: Any, documents: list[list[int]], context: int
) -> None:
    write_data(tmp_path, documents, shard_tokens=37)
    rows = DocumentRows(TokenDataset.open(tmp_path, "train"), context)
    pieces = []
    for index in range(rows.count):
        inputs, labels, numbers = rows.read(index)
        for number in sorted(set(numbers.tolist())):
            place = numbers == number
            assert np.array_equal(np.flatnonzero(place), np.arange(place.sum()) + place.argmax())
            said = labels[place]
            if (said == IGNORED).any():  # padding: nothing of it is learned
                assert (said == IGNORED).all()
                assert (inputs[place] == 0).all()
                continue
            assert np.array_equal(inputs[place][1:], said[:-1])
            pieces.append((inputs[place][:1].tolist() + said.tolist(), len(said)))
    expected = []
    for document in documents:
        whole = [0, *document, 0]
        for at in range(0, len(whole) - 1, context):
            piece = whole[at : at + context + 1]
            expected.append((piece, len(piece) - 1))
    assert sorted(pieces) == sorted(expected)
    padded = rows.count * context - sum(length for _, length in pieces)
    assert rows.padding == pytest.approx(padded / (rows.count * context))


@pytest.mark.parametrize("length", [21, 18])
def test_one_document_cannot_reach_the_logits_of_another(
    tmp_path: Path, write_data: Any, length: int
) -> None:
    """Field case 18. The tail of a long document, which begins without a separator, shares a row
    with a short one: before it or behind it."""
    model = Transformer(preset("tiny", 300)).initialize(0).eval()

    def last_row(long: int, short: int) -> tuple[list[int], torch.Tensor]:
        documents = [[*range(long, long + length)], [*range(short, short + 5)]]
        write_data(tmp_path, documents)
        rows = DocumentRows(TokenDataset.open(tmp_path, "train"), 14)
        [batch] = sequential_batches(rows, batch_size=10)
        assert batch.input_ids.shape == (2, 14)
        assert batch.document_ids is not None
        with torch.no_grad():
            logits = model(batch.input_ids, document_ids=batch.document_ids)
        return batch.input_ids[1].tolist(), logits[1]

    ids, before = last_row(long=1, short=101)
    _, other_long = last_row(long=51, short=101)
    _, other_short = last_row(long=1, short=151)
    short = [at for at, token in enumerate(ids) if token > 100]
    tail = [at for at, token in enumerate(ids) if 0 < token <= 100]
    assert len(short) == 5
    assert (tail[0] > short[0]) == (length == 18)
    assert torch.equal(before[short], other_long[short])
    assert torch.equal(before[tail], other_short[tail])
    assert not torch.equal(before[tail], other_long[tail])


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(batch_size=st.integers(1, 7), before=st.integers(0, 12), seed=st.integers(0, 99))
def test_packed_rows_resume_at_any_point(
    tmp_path: Path, write_data: Any, batch_size: int, before: int, seed: int
) -> None:
    write_data(tmp_path, [[n % 250 + 1] * (n % 17) for n in range(50)])
    rows = DocumentRows(TokenDataset.open(tmp_path, "train"), 16)
    stopped = BlockLoader([rows], batch_size, seed)
    for _ in range(before):
        stopped.next_batch()
    again = DocumentRows(TokenDataset.open(tmp_path, "train"), 16)
    resumed = BlockLoader([again], batch_size, seed)
    resumed.load_state_dict(stopped.state_dict())
    for _ in range(3):
        here, there = stopped.next_batch(), resumed.next_batch()
        assert torch.equal(here.labels, there.labels)
        assert here.document_ids is not None
        assert there.document_ids is not None
        assert torch.equal(here.document_ids, there.document_ids)


def test_a_position_in_the_stream_is_none_in_packed_rows(tmp_path: Path, write_data: Any) -> None:
    from llamita.data.rows import StreamRows

    write_data(tmp_path, [[1, 2, 3]] * 9)
    dataset = TokenDataset.open(tmp_path, "train")
    state = BlockLoader([StreamRows(dataset, 4)], 1, 0).state_dict()
    with pytest.raises(DataError, match="packing stream, but this run has documents"):
        BlockLoader([DocumentRows(dataset, 4)], 1, 0).load_state_dict(state)
