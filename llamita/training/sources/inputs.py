"""The DATA of a run: from the command line, from a recipe that is replayed, or from the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from llamita.data.folder import bytes_to_check
from llamita.data.training_data import TrainingData
from llamita.errors import TrainingError
from llamita.formats.detect import RECIPE
from llamita.training.ranks.world import World
from llamita.training.records.manifest import RunManifest
from llamita.training.settings.recipe import Recipe, Source
from llamita.training.settings.recipe_file import load_recipe

_WORTH_A_LINE = 1 << 30


def given_sources(paths: Sequence[Path], weights: str | None) -> tuple[Source, ...]:
    """DATA of a command line, and its weights as "0.7,0.3".

    Raises:
        TrainingError: the weights are no numbers above 0, one for each DATA.
    """
    if weights is None:
        return tuple(Source(path=str(path)) for path in paths)
    if not paths:
        raise TrainingError(
            f"--weights is {weights!r}, but no DATA is given.",
            hint="Give the DATA that they are for, in their order.",
        )
    try:
        numbers = [float(weight) for weight in weights.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != len(paths) or not all(0 < number < math.inf for number in numbers):
        raise TrainingError(
            f"--weights is {weights!r}, which is not {len(paths)} numbers above 0.",
            hint="Give one for each DATA, as in --weights 0.7,0.3; their proportions count.",
        )
    return tuple(
        Source(path=str(path), weight=weight) for path, weight in zip(paths, numbers, strict=True)
    )


def recorded_sources(
    data: Path | Sequence[Source] | None, requested: Recipe | None, run: Path | None
) -> tuple[Source, ...]:
    """What to read: as given, else as the requested recipe says, else as the run `run` says.

    Raises:
        TrainingError: nobody says it.
    """
    if isinstance(data, Path):
        return (Source(path=str(data)),)
    if data:
        return tuple(data)
    if requested is not None and requested.data:
        return requested.data
    if run is not None:
        own = load_recipe(run / RECIPE).data
        return own or (Source(path=RunManifest.load(run).data),)
    raise TrainingError(
        "there is no DATA to train on.",
        hint="Give it: llamita train DATA -o RUN. A recipe needs none only where it names its own.",
    )


def open_sources(
    sources: Sequence[Source], report: Callable[[str], None], *, check: bool = True
) -> TrainingData:
    """The data of sources, checked against its hashes; DataError where one is missing or damaged,
    or they do not fit. Of several ranks of one machine, one is enough to `check` them."""
    weights = [source.weight for source in sources if source.weight is not None]
    paths = [Path(source.path) for source in sources]
    size = sum(map(bytes_to_check, paths))
    if size >= _WORTH_A_LINE:
        report(f"checking {size / 1e9:,.1f} GB of tokens")
    data = TrainingData.open(paths, weights or None)
    for folder in data.folders if check else ():
        folder.check_content()
    return data


def check_same(name: str, fingerprint: str, world: World) -> None:
    """Make sure that all ranks read the same `name`: each machine may have a copy of its own.

    Raises:
        TrainingError: one reads something else.
    """
    prints, name = world.gather(fingerprint), world.from_first(name)
    others = [rank for rank, found in enumerate(prints) if found != prints[0]]
    if others:
        raise TrainingError(
            f"rank {others[0]} reads another {name} than rank 0.",
            hint="Give all machines the same: copies of it, or one on a shared file system.",
        )


def check_fingerprints(
    sources: Sequence[Source],
    data: TrainingData,
    allow_changed: bool,
    report: Callable[[str], None],
) -> None:
    """Refuse data that is not what a recipe was made with, where that is not allowed.

    Raises:
        TrainingError: naming the data and the way to begin all the same.
    """
    for source, folder in zip(sources, data.folders, strict=True):
        if source.fingerprint in (None, folder.manifest.fingerprint):
            continue
        if not allow_changed:
            raise TrainingError(
                f"{source.path} holds other data than the recipe was made with.",
                hint="Put that data back, or begin with this one anyway: --allow-changed-data",
            )
        report(f"{source.path} holds other data than the recipe was made with: taking it as it is")


def pack_chats(recipe: Recipe, data: TrainingData, report: Callable[[str], None]) -> Recipe:
    """The recipe with whole documents in its rows where there are chats and nothing else is asked
    for: a chat cut anywhere has an answer without its question."""
    chats = sum(folder.manifest.chats for folder in data.folders)
    if not chats or "packing" in recipe.batch.model_fields_set:
        return recipe
    report(f"{chats:,} chats: rows hold whole documents (batch.packing=documents)")
    batch = recipe.batch.model_copy(update={"packing": "documents"})
    return recipe.model_copy(update={"batch": batch})


def with_sources(recipe: Recipe, data: TrainingData) -> Recipe:
    """The recipe with what is really read, so that it can be replayed from any folder."""
    weights = data.weights or (None,) * len(data.folders)
    sources = tuple(
        Source(
            path=str(folder.path.absolute()),
            weight=weight,
            fingerprint=folder.manifest.fingerprint,
        )
        for folder, weight in zip(data.folders, weights, strict=True)
    )
    return recipe.model_copy(update={"data": sources})
