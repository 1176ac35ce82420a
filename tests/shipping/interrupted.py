"""Conversions that are killed, or find the disk full, at every step of their writing.

`python -m tests.shipping.interrupted FOLDER TARGET` prints one line for each thing that went wrong.
The processes are forked, so that torch is imported once.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from pathlib import Path

import torch

from llamita.config import ModelConfig
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.shipping.convert import Conversion, convert

FILES = {"hermes": "model.pt", "armgpt": "model.pt", "gguf": "model.gguf"}
_STEPS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "os.chmod")


def run(source: Path, destination: Path, target: str, die_at: int, room: int) -> int:
    """Convert in a process of its own; how it ended.

    Args:
        die_at: the number of the step under the destination's folder at which it is killed.
        room: bytes that a file may grow to.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    steps = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal steps
        if event in _STEPS and str(destination.parent) in str(arguments[0]):
            steps += 1
            if steps == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        convert(Conversion(source, destination, target, verify=False, overwrite=True))
    except OSError as error:
        os._exit(2 if error.errno in (errno.EFBIG, errno.ENOSPC) else 3)
    except BaseException:
        os._exit(4)
    os._exit(0)


def main() -> None:
    folder, target = Path(sys.argv[1]), sys.argv[2]
    config = ModelConfig(40, 16, 64, 1, 2, max_position_embeddings=32)
    if target == "meta":
        config = config.with_changes(tie_word_embeddings=False)
    for name, seed in (("old", 0), ("new", 1)):
        save_model_directory(Transformer(config).initialize(seed), folder / name)
    unlimited = resource.RLIM_INFINITY
    destination = folder / "out" / FILES.get(target, "model")
    destination.parent.mkdir()

    def kept() -> str:
        """Which model lies at the destination, read whole."""
        if not destination.exists():
            return "none"
        table = load_checkpoint(destination).tensors["model.embed_tokens.weight"].read()
        for name in ("old", "new"):
            if torch.equal(
                table, load_checkpoint(folder / name).tensors["model.embed_tokens.weight"].read()
            ):
                return name
        return "neither"

    for before in ("none", "old"):
        endings = set()
        for die_at in range(1, 400):
            remove(destination)
            if before == "old" and run(folder / "old", destination, target, 0, unlimited):
                print(f"{target}: the first conversion fails")
            ending = run(folder / "new", destination, target, die_at, unlimited)
            endings.add(ending)
            if ending not in (0, -signal.SIGKILL) or kept() not in (before, "new"):
                print(f"{target}: killed at step {die_at} over {before}: {ending}, {kept()}")
            if ending == 0:
                break
        if -signal.SIGKILL not in endings or 0 not in endings:
            print(f"{target}: nothing was killed, or everything: {endings}")
        for room in (0, 100, 3000):
            remove(destination)
            if before == "old":
                run(folder / "old", destination, target, 0, unlimited)
            ending = run(folder / "new", destination, target, 0, room)
            if ending == 0 or kept() != before:
                print(f"{target}: a disk full at {room} over {before}: {ending}, {kept()}")
    if run(folder / "new", destination, target, 0, unlimited) or kept() != "new":
        print(f"{target}: the next conversion fails")
    left = [path.name for path in destination.parent.iterdir() if path.name.endswith(".tmp")]
    if left:
        print(f"{target}: the next conversion leaves {left}")


def remove(path: Path) -> None:
    """What an earlier round left under the final name; leftovers stay for the next round."""
    if path.is_dir():
        for inner in path.iterdir():
            inner.unlink()
        path.rmdir()
    for inner in path.parent.iterdir():
        if inner.is_file():
            inner.unlink()


if __name__ == "__main__":
    main()
