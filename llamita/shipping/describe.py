"""What lies at a path: a checkpoint, prepared data or a training run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from llamita.config import ModelConfig
from llamita.data.folder import DataFolder
from llamita.data.manifest import Manifest
from llamita.data.token_bins import find_token_bins
from llamita.formats.detect import LATEST, RECIPE, is_data, is_run, load_checkpoint
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.files import has_tokenizer
from llamita.tokenizer.load import checkpoint_tokenizer, load_tokenizer
from llamita.training.records.metrics import METRICS_NAME, read_metrics
from llamita.training.settings.recipe_file import load_recipe


def describe(
    path: Path,
    overrides: dict[str, Any],
    *,
    preset: str | None = None,
    tokenizer: Path | None = None,
) -> dict[str, Any]:
    """What `path` holds. `config`, `parameters` and `tokenizer` are None where it has none.

    Besides: a model's `dtype` and `bytes`, a RUN's `run`, a DATA folder's `data` (of token bins as
    well, which are read through for it).

    Args:
        overrides, preset, tokenizer: as for `load_checkpoint`.

    Raises:
        LlamitaError: it is nothing that llamita knows, or damaged.
    """
    if is_data(path):
        return {
            "format": "data",
            "config": None,
            "parameters": None,
            "tokenizer": load_tokenizer(path).summary() if has_tokenizer(path) else None,
            "data": Manifest.load(path).model_dump(mode="json"),
        }
    if not _has_model(path) and find_token_bins(path) is not None:
        folder = DataFolder.open(path)
        return {
            "format": folder.manifest.kind,
            "config": None,
            "parameters": None,
            "tokenizer": folder.tokenizer.summary(),
            "data": folder.manifest.model_dump(mode="json"),
        }
    state = _describe_run(path) if is_run(path) else None
    if state is not None and not (path / LATEST).exists():
        return {
            "format": "run",
            "config": None,
            "parameters": None,
            "tokenizer": None,
            "run": state,
        }
    checkpoint = load_checkpoint(path, overrides, preset=preset, tokenizer=tokenizer)
    tensors = checkpoint.tensors.values()
    found = {
        "format": checkpoint.format if state is None else "run",
        "config": _describe_config(checkpoint.config),
        "parameters": sum(tensor.numel() for tensor in tensors),
        "dtype": str(checkpoint.dtype).removeprefix("torch."),
        "bytes": sum(tensor.stored_bytes for tensor in tensors),
        "tokenizer": _describe_tokenizer(checkpoint_tokenizer(checkpoint)),
    }
    return found if state is None else {**found, "run": state}


def _has_model(path: Path) -> bool:
    """Whether a folder holds a model as well; token bins are then asked for by their file."""
    return any(next(path.glob(name), None) for name in ("config.json", "*.pt", "*.pth", "*.gguf"))


def _describe_config(config: ModelConfig) -> dict[str, Any]:
    return {
        spec.name: getattr(config, spec.name) for spec in dataclasses.fields(config) if spec.init
    }


def _describe_tokenizer(tokenizer: Tokenizer | None) -> dict[str, Any] | None:
    return None if tokenizer is None else tokenizer.summary()


def _describe_run(run: Path) -> dict[str, Any]:
    lines = read_metrics(run / METRICS_NAME)
    losses = [
        line["validation_bits_per_byte"] for line in lines if "validation_bits_per_byte" in line
    ]
    return {
        "step": lines[-1]["step"] if lines else 0,
        "steps": load_recipe(run / RECIPE).length.steps,
        "validation_bits_per_byte": losses[-1] if losses else None,
        "best_validation_bits_per_byte": min(losses, default=None),
    }
