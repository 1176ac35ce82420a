"""What a case's number means: which base, which of its files, which damage."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.bases import BASES, Base, copy_base
from tests.fuzz.raw import RAW
from tests.fuzz.structured import structured_for

SEED = "llamita"
STRUCTURED_SHARE = 0.6


@dataclass(frozen=True)
class Case:
    """One damaged checkpoint on disk."""

    number: int
    base: Base
    folder: Path
    structured: bool
    what: str

    @property
    def target(self) -> Path:
        """What the user names as MODEL."""
        return self.folder / self.base.target


def is_structured(number: int) -> bool:
    """Whether the damage of this case understands the file's structure."""
    return random.Random(f"{SEED}:{number}").random() < STRUCTURED_SHARE


def make_case(number: int, bases: Path, folder: Path) -> Case:
    """Copy a base into `folder`, which must not exist, and spoil one of its files."""
    draw = random.Random(f"{SEED}:{number}")
    structured = draw.random() < STRUCTURED_SHARE
    base = BASES[number % len(BASES)]
    copy_base(base, bases, folder)
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    path = draw.choice(paths)
    data = path.read_bytes()
    if structured:
        spoil = structured_for(path, data)
    else:
        spoil = draw.choice(RAW)
    path.write_bytes(spoil(draw, data))
    what = f"{base.name}/{path.name}: {spoil.__name__}"
    return Case(number, base, folder, structured, what)
