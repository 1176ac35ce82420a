"""docs/scaling.md is what the program says, and its estimates hold to what was measured."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def _benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_estimates_hold_to_the_peaks_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = _benchmark("train_memory", monkeypatch)
    measured = benchmark.json.loads(benchmark.MEASURED.read_text())
    assert measured.keys() == benchmark.RUNS.keys()
    for row in benchmark.compared(measured):
        assert -0.05 <= row["error"] <= 0.15, row


def test_the_page_on_scaling_is_what_the_program_says(monkeypatch: pytest.MonkeyPatch) -> None:
    _benchmark("train_memory", monkeypatch)
    benchmark = _benchmark("scaling_page", monkeypatch)
    written = benchmark.PAGE.read_text(encoding="utf-8")
    assert written == benchmark.page(), "run python benchmarks/scaling_page.py"
