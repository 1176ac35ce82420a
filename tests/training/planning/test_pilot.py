"""Short real runs: what is measured of them, and what ends them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from llamita.errors import Interrupted
from llamita.training.machine.disk import DiskError
from llamita.training.memory.room import Room
from llamita.training.planning.pilot import measure
from llamita.training.settings.recipe import Source
from llamita.training.trainer import Trainer
from tests.training.recipes import small_recipe


def test_ctrl_c_in_a_pilot_is_no_stopped_run(
    monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path
) -> None:
    def stopped(*arguments: Any, **settings: Any) -> None:
        raise Interrupted("stopped after step 3 of 6; everything is saved.")

    monkeypatch.setattr("llamita.training.planning.pilot.train", stopped)
    with pytest.raises(KeyboardInterrupt):
        measure([Source(path=str(data))], small_recipe(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_the_last_step_of_a_pilot_is_no_finished_one(
    monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path
) -> None:
    look = Trainer.look

    def stopped(self: Trainer, log: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        look(self, log)

    monkeypatch.setattr(Trainer, "look", stopped)
    with pytest.raises(KeyboardInterrupt):
        measure([Source(path=str(data))], small_recipe("watch.validations=1"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_too_small_for_a_pilot_is_told_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path
) -> None:
    full = Room(1, "free on a disk")
    monkeypatch.setattr("llamita.training.memory.check.free_disk", lambda path: full)
    with pytest.raises(DiskError, match="a pilot run has no room") as caught:
        measure([Source(path=str(data))], small_recipe("watch.validations=1"), tmp_path)
    assert "TMPDIR" in (caught.value.hint or "")


def test_what_is_measured_is_what_a_run_did(data: Path, tmp_path: Path) -> None:
    measured = measure([Source(path=str(data))], small_recipe("watch.validations=1"), tmp_path)
    assert measured.tokens == 6 * 4 * 32
    assert 0 < measured.step_seconds < measured.startup_seconds + measured.look_seconds + 5
    assert measured.bits_per_byte is not None
    assert 1 < measured.bits_per_byte < 8
    assert measured.recipe.machine.device != "auto"
    assert list(tmp_path.iterdir()) == []
