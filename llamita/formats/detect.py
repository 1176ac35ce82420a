"""What a path is, told by what it holds and not by its name; and loading whatever it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llamita.errors import CheckpointError, ConfigError, naming
from llamita.formats.armgpt import read_armgpt
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.hermes import PRESETS, find_preset, read_hermes
from llamita.formats.huggingface import CONFIG, read_model_directory
from llamita.formats.key_map import listing
from llamita.formats.meta import read_meta
from llamita.formats.meta_params import PARAMS
from llamita.formats.meta_shards import is_meta_directory
from llamita.formats.peft import base_path, is_adapter, read_adapter
from llamita.formats.peft_config import AdapterConfig
from llamita.formats.sniff import GGUF, MODEL_HINT, SAFETENSORS, TORCH, kind_of, refusal
from llamita.formats.torch_checkpoint import TorchCheckpoint, layout_of, open_torch_checkpoint

RECIPE, LATEST, BEST = "recipe.toml", "latest", "best"


def load_checkpoint(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    tokenizer: Path | None = None,
    base: Path | None = None,
) -> Checkpoint:
    """Read the model at `path`, whatever it is; its tensors are read when they are needed.

    An adapter in PEFT's format is the model that it makes of its base.

    Args:
        overrides: `ModelConfig` fields or keys of the foreign config that win over the file's.
        preset: the name of the shape, for a Hermes file that holds weights alone.
        tokenizer: the model's tokenizer, where it does not lie where it usually does.
        base: of an adapter, instead of the one that it names.

    Raises:
        CheckpointError: there is no model, or it is damaged. ConfigError: its config cannot be.
    """
    if preset is not None:
        find_preset(preset)
    with naming(Path(path)):
        found = find_model(Path(path))
        if is_adapter(found):
            checkpoint = _read_adapted(found, overrides, preset, base)
        elif base is not None:
            raise ConfigError(
                f"{path} is a whole model; the base {base} is for an adapter.", hint="Leave it out."
            )
        else:
            checkpoint = _read(found, overrides, preset)
    return checkpoint if tokenizer is None else replace(checkpoint, tokenizer=tokenizer)


def find_model(path: Path) -> Path:
    """What `path` means: itself, the latest of a RUN, or the one checkpoint file in a folder.

    Raises:
        CheckpointError: it means no model; the message says what it is.
    """
    if not path.exists():
        # Two names: how models are called on the hub.
        is_hub_id = not path.is_absolute() and len(path.parts) == 2 and path.parts[0] != ".."
        hint = f"It must be on this machine: llamita downloads nothing. {MODEL_HINT}"
        raise CheckpointError(
            f"there is nothing at {path}.", hint=hint if is_hub_id else MODEL_HINT
        )
    if not path.is_dir() or (path / CONFIG).is_file() or is_meta_directory(path):
        return path
    if is_adapter(path):
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
        raise CheckpointError(f"{path} is an empty folder.", hint=MODEL_HINT)
    return _only_checkpoint(path)


def is_run(path: Path) -> bool:
    """Whether `path` is a training RUN."""
    return (path / RECIPE).is_file() and not (path / CONFIG).exists()


def is_data(path: Path) -> bool:
    """Whether `path` is a DATA folder of token shards."""
    return (path / "manifest.json").is_file() and any(path.glob("train-*.bin"))


def _only_checkpoint(directory: Path) -> Path:
    """The one checkpoint file of a folder that is no model directory."""
    if any(directory.glob("*.distcp")):
        raise CheckpointError(
            f"{directory} is a distributed checkpoint for resuming, not a model.",
            hint="MODEL is the RUN that holds it.",
        )
    kinds = {
        path: kind_of(path)
        for path in sorted(directory.iterdir())
        if path.is_file() and not path.name.startswith(".")
    }
    # Safetensors alone say no shape, so beside a whole checkpoint they are something else.
    files = [path for path, kind in kinds.items() if kind in (GGUF, TORCH)]
    files = files or [path for path, kind in kinds.items() if kind == SAFETENSORS]
    if len(files) > 1:
        raise CheckpointError(
            f"{directory} has no {CONFIG} and holds {len(files)} checkpoint files: "
            f"{listing([path.name for path in files])}.",
            hint="Name one of them as MODEL.",
        )
    if not files:
        missing = (
            "it has no consolidated.00.pth"
            if (directory / PARAMS).is_file()
            else (f"it has no {CONFIG}")
        )
        raise CheckpointError(f"{directory} holds no model: {missing}.", hint=MODEL_HINT)
    return files[0]


def _read_adapted(
    path: Path, overrides: Mapping[str, Any] | None, preset: str | None, base: Path | None
) -> Checkpoint:
    """The model that an adapter makes of its base, which must be a whole model itself."""
    config = AdapterConfig.read(path)
    beneath = find_model(base_path(path, config) if base is None else base)
    if is_adapter(beneath):
        raise CheckpointError(
            f"the base of {path} is {beneath}, an adapter itself.",
            hint=f"Merge that first: llamita merge {beneath} -o DIR, and give --base DIR.",
        )
    with naming(beneath):
        whole = _read(beneath, overrides, preset)
    return read_adapter(path, whole, config)


def _read(path: Path, overrides: Mapping[str, Any] | None, preset: str | None) -> Checkpoint:
    if path.is_dir():
        _refuse_preset(path, preset)
        is_hf = (path / CONFIG).is_file()
        return read_model_directory(path, overrides) if is_hf else read_meta(path, overrides)
    kind = kind_of(path)
    if kind == TORCH:
        return _read_torch(open_torch_checkpoint(path), overrides, preset)
    _refuse_preset(path, preset)
    if kind == GGUF:
        from llamita.formats.gguf_read import read_gguf

        return read_gguf(path, overrides)
    if kind is None:
        raise refusal(path)
    raise _weights_alone(path, "safetensors weights")


def _read_torch(
    opened: TorchCheckpoint, overrides: Mapping[str, Any] | None, preset: str | None
) -> Checkpoint:
    path, layout = opened.path, layout_of(opened.tensors)
    if layout == "hermes":
        return read_hermes(opened, overrides, preset=preset)
    _refuse_preset(path, preset)
    if layout == "armgpt":
        return read_armgpt(opened, overrides)
    if layout == "meta":
        raise CheckpointError(
            f"{path} is a shard of a Meta folder.",
            hint=f"MODEL is the folder, with {PARAMS} in it.",
        )
    if layout == "hf":
        raise _weights_alone(path, "the weights of a HuggingFace model")
    raise CheckpointError(
        f"{path} holds tensors of no layout known here: {listing(list(opened.tensors))}.",
        hint=MODEL_HINT,
    )


def _weights_alone(path: Path, what: str) -> CheckpointError:
    """The error for weights that need a config which is elsewhere."""
    if (path.parent / CONFIG).is_file():
        hint = f"MODEL is the folder: {path.parent}"
    else:
        hint = f"Put them into a folder as model.safetensors or pytorch_model.bin, with {CONFIG}."
    return CheckpointError(f"{path} is {what} alone, without a config.", hint=hint)


def _refuse_preset(path: Path, preset: str | None) -> None:
    if preset is not None:
        raise ConfigError(
            f"{path} says its shape itself; the preset {preset!r} is for a file of bare weights.",
            hint=f"Leave --preset out ({', '.join(PRESETS)} are Hermes' shapes); "
            "--override KEY=VALUE changes single settings.",
        )
