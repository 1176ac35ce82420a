"""A killed conversion and a full disk leave the old result whole, or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize(
    "target",
    # A folder, and a file with others beside it; the rest are of one of these kinds.
    [
        "hf",
        "hermes",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("meta", "armgpt", "gguf")),
    ],
)
def test_a_conversion_that_is_killed_or_finds_the_disk_full_leaves_no_half(
    target: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.shipping.interrupted", str(tmp_path), target],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == ""
