"""Conversions that are killed, or find the disk full, at every step of their writing.

`python -m tests.shipping.interrupted FOLDER TARGET` prints one line for each thing that went wrong:
where there is half a model, where its tokenizer is not its own although the report vouches for it,
where the next conversion cannot put it right. The processes are forked, so that torch is imported
once; what they write is not verified, but reported as if it were.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from pathlib import Path

from llamita.config import ModelConfig
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.shipping import convert as conversion
from llamita.shipping.convert import Conversion, convert
from llamita.shipping.report import read_reports
from llamita.shipping.verify_conversion import SELF_CHECK, UNVERIFIED, Verification
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.load import checkpoint_tokenizer
from llamita.tokenizer.train import train_tokenizer

FILES = {"hermes": "model.pt", "armgpt": "model.pt", "gguf": "model.gguf"}
DISK_FULL = 2
"""How a process ends that the system tells so."""
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
        convert(Conversion(source, destination, target, overwrite=True))
    except OSError as error:
        os._exit(DISK_FULL if error.errno in (errno.EFBIG, errno.ENOSPC) else 3)
    except BaseException:
        os._exit(4)
    os._exit(0)


def tokenizers(target: str) -> list[Tokenizer | None]:
    """Of the old and the new model: Hermes' weights and tokenizer are two files."""
    if target != "hermes":
        return [None, None]
    words = ("one two three four ", "alpha beta gamma delta ")
    return [train_tokenizer([text * 40], "spm:290") for text in words]


def main() -> None:
    folder, target = Path(sys.argv[1]), sys.argv[2]
    conversion.verify_conversion = lambda *_: Verification(SELF_CHECK)  # type: ignore[assignment]
    own = tokenizers(target)
    config = ModelConfig(
        40 if own[0] is None else 290, 16, 64, 1, 2, max_position_embeddings=32
    ).with_changes(tie_word_embeddings=target != "meta")
    for seed, name in enumerate(("old", "new")):
        save_model_directory(Transformer(config).initialize(seed), folder / name, own[seed])
    prints = {name: content(folder / name) for name in ("old", "new")}
    unlimited = resource.RLIM_INFINITY
    destination = folder / "out" / FILES.get(target, "model")
    destination.parent.mkdir()

    def kept() -> str:
        """Which model lies at the destination, read whole; a pair that is none has to say so."""
        if not destination.exists():
            return "none"
        found = content(destination)
        for name, wanted in prints.items():
            if found == wanted:
                return name
        is_file = destination.is_file()
        report = read_reports(destination.parent if is_file else destination)
        status = report[destination.name if is_file else None]["status"]
        parts = {found[i] == wanted[i] for i in (0, 1) for wanted in prints.values()}
        return "pair" if status == UNVERIFIED and is_file and True in parts else f"a {status} pair"

    for before in ("none", "old"):
        endings = set()
        for die_at in range(1, 400):
            remove(destination)
            if before == "old" and run(folder / "old", destination, target, 0, unlimited):
                print(f"{target}: the first conversion fails")
            ending = run(folder / "new", destination, target, die_at, unlimited)
            endings.add(ending)
            fine = (before, "new", "pair") if ending else ("new",)
            if ending not in (0, -signal.SIGKILL) or kept() not in fine:
                print(f"{target}: killed at step {die_at} over {before}: {ending}, {kept()}")
            if ending == 0:
                break
            if kept() == "pair" and run(folder / "old", destination, target, 0, unlimited):
                print(f"{target}: killed at step {die_at} over {before}, nothing puts it right")
        if -signal.SIGKILL not in endings or 0 not in endings:
            print(f"{target}: nothing was killed, or everything: {endings}")
        for room in (0, 100, 3000):
            remove(destination)
            if before == "old":
                run(folder / "old", destination, target, 0, unlimited)
            ending = run(folder / "new", destination, target, 0, room)
            if ending != DISK_FULL or kept() != before:
                print(f"{target}: a disk full at {room} over {before}: {ending}, {kept()}")
    if run(folder / "new", destination, target, 0, unlimited) or kept() != "new":
        print(f"{target}: the next conversion fails")
    left = [path.name for path in destination.parent.iterdir() if path.name.endswith(".tmp")]
    if left:
        print(f"{target}: the next conversion leaves {left}")


def content(path: Path) -> tuple[list[float], list[int]]:
    """The numbers of one tensor, and the ids of a text."""
    checkpoint = load_checkpoint(path)
    table = checkpoint.tensors["model.embed_tokens.weight"].read()
    tokenizer = checkpoint_tokenizer(checkpoint)
    return table.flatten().tolist(), [] if tokenizer is None else tokenizer.encode("one beta")


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
