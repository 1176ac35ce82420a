"""`torchrun … -m llamita train`: the real command line, told as one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llamita.training.records.metrics import read_metrics
from llamita.training.settings.recipe_file import save_recipe
from tests.training.recipes import small_recipe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names its network's device")


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "llamita", "train", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed on stdout and stderr."""
    try:
        return process.communicate(timeout=120)
    finally:
        process.kill()


def test_two_ranks_train_one_run_and_speak_with_one_voice(data: Path, tmp_path: Path) -> None:
    save_recipe(small_recipe(), tmp_path / "recipe.toml")
    process = start(data, "-o", tmp_path / "run", "--config", tmp_path / "recipe.toml", "--json")
    out, err = ended(process)
    assert process.returncode == 0, err
    assert json.loads(out)["steps"] == 6
    assert err.count("2 ranks, ddp (whole models take ") == 1
    assert err.count("step 6/6  validation loss") == 1
    steps = [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert steps == [1, 2, 3, 3, 4, 5, 6, 6]
    assert (tmp_path / "run" / "checkpoints" / "step-0000006" / "__1_0.distcp").exists()


def test_a_mistake_in_the_command_is_told_once(data: Path, tmp_path: Path) -> None:
    process = start(data, "-o", tmp_path / "run", "--set", "optimizer.nam=adamw")
    _, err = ended(process)
    assert process.returncode != 0
    assert err.count("llamita: ") == 1
    assert "did you mean" in err
    assert not (tmp_path / "run").exists()


def test_ctrl_c_to_torchrun_saves_the_same_step_of_all_ranks(data: Path, tmp_path: Path) -> None:
    save_recipe(small_recipe(steps=1_000_000), tmp_path / "recipe.toml")
    run = tmp_path / "run"
    process = start(data, "-o", run, "--config", tmp_path / "recipe.toml")
    deadline = time.monotonic() + 60
    while not read_metrics(run / "metrics.jsonl") and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = ended(process)
    assert err.count("everything is saved.") == 1, err
    last = read_metrics(run / "metrics.jsonl")[-1]["step"]
    assert f"stopped after step {last} of 1000000" in err
    checkpoint = run / "checkpoints" / f"step-{last:07d}"
    assert sorted(path.suffix for path in checkpoint.iterdir()) == [
        "",
        ".distcp",
        ".distcp",
        ".json",
    ]
