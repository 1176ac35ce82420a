"""Several sources in one run: their shares, their epochs, and going on in the middle."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from llamita.data.dataset import TokenDataset
from llamita.data.loader import BlockLoader
from llamita.data.mixing import Mixture, integer_weights
from llamita.data.prepare import prepare
from llamita.data.rows import Rows, StreamRows
from llamita.data.training_data import TrainingData
from llamita.errors import DataError
from llamita.tokenizer import load_tokenizer

WEIGHTS = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@given(weights=WEIGHTS)
def test_each_source_gets_exactly_its_weight_of_a_round(weights: list[int]) -> None:
    mixture = Mixture(weights)
    for round_ in (1, 2):
        for _ in range(sum(weights)):
            mixture.draw()
        assert mixture.drawn == [round_ * weight for weight in weights]


@given(weights=WEIGHTS, draws=st.integers(1, 300))
def test_no_source_ever_strays_from_its_share(weights: list[int], draws: int) -> None:
    mixture = Mixture(weights)
    for _ in range(draws):
        mixture.draw()
    for weight, drawn in zip(weights, mixture.drawn, strict=True):
        assert abs(drawn - draws * weight / sum(weights)) < len(weights)


def test_the_turns_are_the_same_for_all_versions() -> None:
    mixture = Mixture([5, 1, 1])
    assert [mixture.draw() for _ in range(7)] == [0, 0, 1, 0, 2, 0, 0]


@pytest.mark.parametrize("weights", [[0.0, 1.0], [-1.0, 2.0], [float("nan"), 1.0], [1e999, 1.0]])
def test_a_weight_that_is_not_above_zero_is_named(weights: list[float]) -> None:
    with pytest.raises(DataError, match="a weight of the data is"):
        integer_weights(weights)


def test_a_tiny_weight_still_counts() -> None:
    assert integer_weights([1e-12, 1.0]) == [1, 1_000_000]


@pytest.fixture
def sources(tmp_path: Path, write_data: Any) -> list[Rows]:
    """Three of 5, 11 and 2 rows; a row's first token tells which it is."""
    rows: list[Rows] = []
    for number, count in enumerate((5, 11, 2)):
        write_data(tmp_path / str(number), [range(100 * number + 1, 100 * number + 4 * count)])
        rows.append(StreamRows(TokenDataset.open(tmp_path / str(number), "train"), 4))
    assert [one.count for one in rows] == [5, 11, 2]
    return rows


def _draw(loader: BlockLoader, batches: int) -> list[int]:
    """The second token of each row drawn: all are different."""
    return [i for _ in range(batches) for i in loader.next_batch().input_ids[:, 1].tolist()]


def test_without_weights_all_sources_end_their_epochs_together(sources: list[Rows]) -> None:
    loader = BlockLoader(sources, batch_size=6, seed=0)
    first, second = _draw(loader, 3), _draw(loader, 3)
    assert len(set(first)) == 18
    assert sorted(first) == sorted(second)
    assert first != second


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    weights=st.lists(st.integers(1, 30), min_size=3, max_size=3),
    batch_size=st.integers(1, 9),
    before=st.integers(0, 15),
    seed=st.integers(0, 2**40),
)
def test_a_mixture_resumes_at_any_point(
    sources: list[Rows], weights: list[int], batch_size: int, before: int, seed: int
) -> None:
    whole = _draw(BlockLoader(sources, batch_size, seed, weights), before + 4)
    stopped = BlockLoader(sources, batch_size, seed, weights)
    _draw(stopped, before)
    resumed = BlockLoader(sources, batch_size, seed, weights)
    resumed.load_state_dict(stopped.state_dict())
    assert _draw(resumed, 4) == whole[before * batch_size :]


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(weights=st.lists(st.integers(1, 9), min_size=3, max_size=3), seed=st.integers(0, 99))
def test_each_source_has_epochs_of_its_own(
    sources: list[Rows], weights: list[int], seed: int
) -> None:
    loader = BlockLoader(sources, 1, seed, weights)
    drawn = _draw(loader, 120)
    for number, rows in enumerate(sources):
        own = [token for token in drawn if max(token - 1, 0) // 100 == number]
        epochs = [own[at : at + rows.count] for at in range(0, len(own), rows.count)]
        assert all(max(Counter(epoch).values()) == 1 for epoch in epochs)
        assert all(set(epoch) == set(epochs[0]) for epoch in epochs[:-1])


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    weights=st.lists(st.integers(1, 30), min_size=3, max_size=3),
    ranks=st.integers(1, 5),
    later_ranks=st.integers(1, 5),
    batch_size=st.integers(1, 4),
    before=st.integers(0, 9),
)
def test_ranks_read_each_row_of_one_process_once_and_others_go_on_there(
    sources: list[Rows],
    weights: list[int],
    ranks: int,
    later_ranks: int,
    batch_size: int,
    before: int,
) -> None:
    drawn: list[int] = []
    state: dict[str, Any] | None = None
    for count, batches in ((ranks, before), (later_ranks, 3)):
        loaders = [
            BlockLoader(sources, batch_size, 0, weights, rank, count) for rank in range(count)
        ]
        for loader in loaders if state else ():
            loader.load_state_dict(state or {})
        for _ in range(batches):
            drawn += [row for loader in loaders for row in _draw(loader, 1)]
        state = loaders[0].state_dict()
        assert all(loader.state_dict() == state for loader in loaders)
    assert drawn == _draw(BlockLoader(sources, 1, 0, weights), len(drawn))


def test_a_state_of_other_weights_is_refused(sources: list[Rows]) -> None:
    state = BlockLoader(sources, 1, 0, [1, 1, 1]).state_dict()
    with pytest.raises(DataError, match="weights"):
        BlockLoader(sources, 1, 0, [1, 2, 1]).load_state_dict(state)


def test_sources_of_one_run_share_a_tokenizer(data: Path, other_data: Path, tmp_path: Path) -> None:
    both = TrainingData.open([data, other_data], [3, 1])
    assert both.shares == [0.75, 0.25]
    assert both.names == ["data-1", "data-2"]
    assert both.train_tokens == sum(folder.manifest.train.tokens for folder in both.folders)
    assert both.fingerprint != TrainingData.open([data, other_data]).fingerprint
    assert TrainingData.open([data]).fingerprint == both.folders[0].manifest.fingerprint
    prepare([data.parent / "texts"], tmp_path / "third", tokenizer="bpe:280")
    with pytest.raises(DataError, match="different tokenizers") as error:
        TrainingData.open([data, tmp_path / "third"])
    assert "--tokenizer" in (error.value.hint or "")


def test_data_given_twice_or_without_its_weight_is_refused(data: Path, other_data: Path) -> None:
    with pytest.raises(DataError, match="hold the same tokens"):
        TrainingData.open([data, data])
    with pytest.raises(DataError, match="1 weights for 2 DATA"):
        TrainingData.open([data, other_data], [1.0])
    with pytest.raises(DataError, match="no data"):
        TrainingData.open([])


def test_batches_of_several_sources_are_of_one_kind(data: Path, other_data: Path) -> None:
    both = TrainingData.open([data, other_data])
    batch = both.loader(32, 6, 0, "documents").next_batch()
    assert batch.input_ids.shape == (6, 32)
    assert batch.document_ids is not None
    assert batch.document_ids.dtype == torch.int64
    assert both.loader(32, 6, 0).next_batch().document_ids is None
    notes = both.loader(32, 6, 0, "documents").notes
    assert len(notes) == 2
    assert "of them padding" in notes[0]


def test_the_chat_template_of_any_source_stays_with_the_model(
    data: Path, other_data: Path, tmp_path: Path
) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    for name, text in (("chats", template), ("others", template + "!")):
        shutil.copytree(other_data, tmp_path / name)
        load_tokenizer(other_data).with_chat_template(text).save(tmp_path / name)
    chats = tmp_path / "chats"
    for paths in ([data, chats], [chats, data]):
        assert TrainingData.open(paths).tokenizer.chat_template == template
    prepare([data.parent / "texts"], tmp_path / "more", tokenizer=str(tmp_path / "others"))
    with pytest.raises(DataError, match=r"chats and .*more have different chat templates"):
        TrainingData.open([chats, tmp_path / "more"])
