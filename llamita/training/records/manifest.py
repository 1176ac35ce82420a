"""`RUN/manifest.json`: what a run was begun with, and whether it is still the same."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from llamita.config import FIELD_NAMES, ModelConfig
from llamita.data.training_data import TrainingData
from llamita.errors import TrainingError
from llamita.files import read_json, write_json
from llamita.training.settings.recipe import Recipe
from llamita.training.settings.settling import CHANGEABLE, asks_for_changeable_alone

RUN_MANIFEST_NAME = "manifest.json"

_SOURCES_NAMED = 5


class RunManifest(BaseModel):
    """`requested` are the settings asked for, `settled` those with nothing left open.

    `earlier_data` are the fingerprints of what was read before the data was changed on the way:
    such a run is not what its recipe alone would give. `sources` says of each DATA, by its path,
    what is in it, for reports: the data may be gone by then. `model` is the shape it was begun
    with, whatever a preset or the model it came from may be today.
    """

    kind: Literal["run"] = "run"
    llamita_version: str
    data: str
    data_fingerprint: str
    earlier_data: list[str] = []
    sources: dict[str, dict[str, Any]] = {}
    tokenizer_fingerprint: str
    parameters: int
    model: dict[str, Any] = {}
    requested: dict[str, Any]
    settled: dict[str, Any]

    def save(self, run: Path) -> None:
        write_json(run / RUN_MANIFEST_NAME, self.model_dump(mode="json"))

    @classmethod
    def load(cls, run: Path) -> RunManifest:
        """Read a run's manifest.

        Raises:
            TrainingError: it is missing or damaged.
        """
        path = run / RUN_MANIFEST_NAME
        try:
            return cls.model_validate(read_json(path, TrainingError))
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            raise TrainingError(
                f"{path} is not the manifest of a run: {place or 'it'} is missing or wrong.",
                hint="Start a new run with another -o.",
            ) from None

    @property
    def shape(self) -> ModelConfig | None:
        """The model's; None for runs of before it was written down."""
        fields = {name: value for name, value in self.model.items() if name in FIELD_NAMES}
        return ModelConfig(**fields) if fields else None

    def check_settings(self, run: Path, recipe: Recipe, requested: Recipe | None) -> None:
        """Refuse an edited `recipe.toml`, and settings that are not those the run was begun with.

        Raises:
            TrainingError: naming each difference.
        """
        edits = _differences(_settings(self.settled), _settings(recipe))
        if edits:
            raise TrainingError(
                f"{run / 'recipe.toml'} was edited after the run began: {'; '.join(edits)}.",
                hint="Undo that, or start a new run with --config and another -o.",
            )
        if requested is None or asks_for_changeable_alone(requested):
            return
        differences = _differences(_settings(self.requested), _settings(requested))
        if differences:
            raise TrainingError(
                f"{run} was begun with other settings: {'; '.join(differences)}.",
                hint="Leave the settings out to go on as it was begun, or start a new run "
                "with another -o.",
            )

    def check_data(self, run: Path, data: TrainingData, allow_changed: bool) -> None:
        """Refuse another tokenizer, and other data where that is not allowed.

        Raises:
            TrainingError: naming the way to go on.
        """
        if self.tokenizer_fingerprint != data.tokenizer.fingerprint:
            raise TrainingError(
                f"{run} was begun with another tokenizer; its embeddings mean other tokens.",
                hint="Give the data it was begun with, or start a new run with another -o.",
            )
        if self.data_fingerprint != data.fingerprint and not allow_changed:
            raise TrainingError(
                f"{run} was begun with other data or weights ({self.data}).",
                hint="Give those, or go on with this one anyway: --allow-changed-data",
            )

    def with_data(self, data: TrainingData) -> RunManifest:
        """The same run, going on with this data."""
        changed = self.data_fingerprint != data.fingerprint
        earlier = [*self.earlier_data, self.data_fingerprint] if changed else self.earlier_data
        return self.model_copy(
            update={
                "data": data.described,
                "data_fingerprint": data.fingerprint,
                "earlier_data": earlier,
                "sources": sources_of(data),
            }
        )


def sources_of(data: TrainingData) -> dict[str, dict[str, Any]]:
    """The manifest of each DATA by its path, without the lists that grow with its size."""
    shown = {}
    for folder in data.folders:
        manifest = folder.manifest.model_dump(
            mode="json", exclude={"shards", "held_out", "stages", "sources"}
        )
        files = [source.path for source in folder.manifest.sources]
        manifest["sources"] = [{"path": path} for path in files[:_SOURCES_NAMED]]
        shown[str(folder.path.absolute())] = {**manifest, "source_files": len(files)}
    return shown


def _settings(recipe: Recipe | dict[str, Any]) -> dict[str, Any]:
    """Settings to compare: those that came later than the run have their defaults, which is how
    it was begun. DATA is left out: it may have been moved, and is told by its fingerprint; so is
    what every call of a run may choose for itself."""
    if not isinstance(recipe, Recipe):
        with contextlib.suppress(ValidationError):  # of a later version: compared as it stands
            recipe = Recipe.model_validate(recipe)
    plain = recipe.model_dump(mode="json") if isinstance(recipe, Recipe) else recipe
    for table, changeable in CHANGEABLE.items():
        values = plain.get(table)
        if isinstance(values, dict):
            kept = {name: value for name, value in values.items() if name not in changeable}
            plain = {**plain, table: kept}
    return {name: value for name, value in plain.items() if name != "data"}


def _differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name in sorted(set(before) | set(now)):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{prefix}{name}.")
        elif old != new:
            found.append(f"{prefix}{name} was {old!r} and is now {new!r}")
    return found
