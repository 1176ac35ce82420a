"""What a plan is measured on: DATA as it lies, or text prepared for the time being."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamita.data.manifest import Manifest
from llamita.errors import DataError
from llamita.training.planning import data as plan_data
from llamita.training.planning.data import ready_to_measure
from tests.conftest import write_documents


def _ignore(text: str) -> None:
    pass


def test_prepared_data_is_taken_as_it_is_and_named_with_its_hash(
    data: Path, other_data: Path, tmp_path: Path
) -> None:
    ready = ready_to_measure([data, other_data], None, tmp_path, _ignore)
    assert [Path(source.path) for source in ready.sources] == [data, other_data]
    assert ready.preparation == {}
    assert ready.recipe_data["data"][0]["fingerprint"] == Manifest.load(data).fingerprint
    assert list(tmp_path.iterdir()) == []


def test_text_is_prepared_as_the_options_say(tmp_path: Path) -> None:
    texts = write_documents(tmp_path / "texts", 5, seed=0)
    ready = ready_to_measure([texts], None, tmp_path, _ignore)
    settings = Manifest.load(Path(ready.sources[0].path)).settings
    assert settings is not None
    assert ready.text_share == 1.0
    assert ready.recipe_data == {}
    assert ready.preparation == {
        "tokenizer": settings.tokenizer,
        "max_document_chars": settings.max_document_chars,
    }


def test_a_tokenizer_for_prepared_data_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--tokenizer is char, but"):
        ready_to_measure([data], "char", tmp_path, _ignore)


def test_a_text_of_one_piece_is_told_with_a_way_that_plan_has(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One short text, and no more.")
    with pytest.raises(DataError, match="the only document falls") as caught:
        ready_to_measure([tmp_path / "text.txt"], "char", tmp_path / "work", _ignore)
    assert "llamita prepare TEXT" in (caught.value.hint or "")


def test_of_a_large_text_a_sample_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = write_documents(tmp_path / "texts", 40, seed=0)
    monkeypatch.setattr(plan_data, "SAMPLE_BYTES", 12_000)
    said: list[str] = []
    ready = ready_to_measure([texts], "bpe:300", tmp_path, said.append)
    manifest = Manifest.load(Path(ready.sources[0].path))
    size = sum(path.stat().st_size for path in texts.iterdir())
    assert ready.text_share == pytest.approx(12_000 / size, rel=0.1)
    assert manifest.train.bytes + manifest.val.bytes == pytest.approx(12_000, rel=0.2)
    assert ready.preparation == {"tokenizer": "bpe:300"}
    assert "of the text" in said[0]
