"""Whatever is done to a checkpoint, opening it ends well or with one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.bases import make_bases
from tests.fuzz.cases import is_structured
from tests.fuzz.harness import SECONDS, run_cases

CASES = 2240
PARTS = 8


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "bases"
    make_bases(folder)
    return folder


def test_half_of_the_damage_understands_the_structure_of_what_it_damages() -> None:
    assert CASES >= 2000
    assert sum(map(is_structured, range(CASES))) >= CASES / 2


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_checkpoints_are_refused_in_one_clear_message_or_are_whole(
    part: int, bases: Path, tmp_path: Path
) -> None:
    result = run_cases(range(part, CASES, PARTS), bases, tmp_path)
    assert not result.faults, "see with `python -m tests.fuzz --case N`:\n" + "\n".join(
        result.faults
    )
    # Damage that is never noticed, or always, would test nothing.
    assert result.outcomes["ok"] > 20
    assert result.outcomes["refused"] > 60


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        ("raises", "ValueError: planted"),
        ("spins", "computes forever"),
        ("allocates", "MemoryError"),
        ("crashes", "SIGABRT"),
        ("mumbles", "names no file"),
    ],
)
def test_the_harness_notices_a_reader_that(
    planted: str, words: str, bases: Path, tmp_path: Path
) -> None:
    seconds = 1 if planted == "spins" else SECONDS
    result = run_cases([0, 1], bases, tmp_path, seconds, planted)
    assert result.outcomes == {"fault": 2}
    assert all(words in fault for fault in result.faults)
