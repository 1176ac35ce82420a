"""What a path is, told by what it holds and not by its name; and loading whatever it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llamita.errors import CheckpointError, ConfigError
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.huggingface import CONFIG, read_model_directory

RECIPE, LATEST, BEST = "recipe.toml", "latest", "best"
_HINT = "MODEL is a HuggingFace model directory (config.json and safetensors) or a training RUN."


def load_checkpoint(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    tokenizer: Path | None = None,
) -> Checkpoint:
    """Read the model at `path`: a HuggingFace directory, or a training RUN's latest.

    Args:
        overrides: `ModelConfig` fields or keys of the foreign config that win over the file's.
        preset: the name of the shape, for a file that holds weights alone.
        tokenizer: the model's tokenizer, where it does not lie where it usually does.

    Raises:
        CheckpointError: there is no model, or it is damaged. ConfigError: its config cannot be.
    """
    if preset is not None:
        raise ConfigError(
            f"{path} says its shape itself; the preset {preset!r} is for a file of bare weights.",
            hint="Leave --preset out; --override KEY=VALUE changes single settings.",
        )
    checkpoint = read_model_directory(find_model_directory(Path(path)), overrides)
    return checkpoint if tokenizer is None else replace(checkpoint, tokenizer=tokenizer)


def find_model_directory(path: Path) -> Path:
    """The HuggingFace directory that `path` means: itself, or the latest of a RUN.

    Raises:
        CheckpointError: it is neither; the message says what it is.
    """
    if not path.exists():
        raise CheckpointError(f"there is nothing at {path}.", hint=_HINT)
    if not path.is_dir():
        raise CheckpointError(f"{path} is a file, not a model.", hint=_HINT)
    if (path / CONFIG).is_file():
        return path
    if is_run(path):
        if (path / LATEST / CONFIG).is_file():
            return path / LATEST
        raise CheckpointError(
            f"{path} is a training run that has not saved a model yet.",
            hint="Run the same `llamita train` command again to go on with it.",
        )
    if is_data(path):
        raise CheckpointError(
            f"{path} is a DATA folder (token shards), not a model.",
            hint=f"Train one from it: llamita train {path} -o RUN",
        )
    if not any(path.iterdir()):
        raise CheckpointError(f"{path} is an empty folder.", hint=_HINT)
    raise CheckpointError(f"{path} holds no model: it has no {CONFIG}.", hint=_HINT)


def is_run(path: Path) -> bool:
    """Whether `path` is a training RUN."""
    return (path / RECIPE).is_file() and not (path / CONFIG).exists()


def is_data(path: Path) -> bool:
    """Whether `path` is a DATA folder of token shards."""
    return (path / "manifest.json").is_file() and any(path.glob("train-*.bin"))
