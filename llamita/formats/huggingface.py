"""The native format: a HuggingFace model directory.

`config.json`, `model.safetensors` (whole or in shards), `generation_config.json` and the
tokenizer's files. What is saved here, `transformers` reads without a conversion step.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from llamita.config import ModelConfig
from llamita.errors import CheckpointError
from llamita.files import read_json, replace_directory, write_json
from llamita.formats.checkpoint import HEAD, Checkpoint, match_tensors, strip_wrappers
from llamita.formats.config_read import parse_config
from llamita.formats.config_write import config_to_json
from llamita.formats.safetensors_file import (
    INDEX,
    SINGLE,
    read_safetensors,
    read_sharded,
    write_safetensors,
)
from llamita.formats.stored import StoredTensor
from llamita.formats.torch_file import read_torch_state_dict
from llamita.model.transformer import Transformer

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TORCH_SINGLE, TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


class SavesItself(Protocol):
    """A tokenizer, as far as saving a model goes."""

    def save(self, directory: Path) -> None:
        """Write its files into `directory`."""


def read_model_directory(directory: Path, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a model directory; the tensors stay memory-mapped.

    Raises:
        CheckpointError, ConfigError: something is missing, damaged, or does not fit together.
    """
    config, generation = read_model_config(directory, overrides)
    stored = {name: StoredTensor.of(t) for name, t in _read_tensors(directory).items()}
    return Checkpoint(
        config,
        match_tensors(config, stored, directory),
        directory,
        generation,
        tokenizer=directory,
    )


def read_model_config(
    directory: Path, overrides: Mapping[str, Any] | None = None
) -> tuple[ModelConfig, dict[str, Any]]:
    """A model directory's `ModelConfig` and its `generation_config.json` ({} if there is none)."""
    raw = _read_object(directory / CONFIG)
    path = directory / GENERATION_CONFIG
    generation = _read_object(path) if path.exists() else {}
    if "eos_token_id" in (overrides or {}):
        generation.pop("eos_token_id", None)
    return parse_config(raw, overrides, generation), generation


def _read_object(path: Path) -> dict[str, Any]:
    content = read_json(path, CheckpointError)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object.")
    return content


def _read_tensors(directory: Path) -> dict[str, Tensor]:
    """Safetensors before pickles, one file before shards: the order of HuggingFace's loader."""
    if (directory / SINGLE).exists():
        return read_safetensors(directory / SINGLE)
    if (directory / INDEX).exists():
        return read_sharded(directory / INDEX)
    if (directory / TORCH_SINGLE).exists():
        return read_torch_state_dict(directory / TORCH_SINGLE)
    if (directory / TORCH_INDEX).exists():
        return read_sharded(directory / TORCH_INDEX, read_torch_state_dict)
    raise CheckpointError(
        f"{directory} has a {CONFIG} but no weights.",
        hint=f"Weights are in {SINGLE}, or in shards beside {INDEX}.",
    )


def save_model_directory(
    model: Transformer,
    directory: Path,
    tokenizer: SavesItself | None = None,
    dtype: torch.dtype | None = None,
    generation: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model directory, whole or not at all; an older one there is replaced.

    Args:
        dtype: of the weights on disk; left out, the model's own.
        generation: settings for `generation_config.json`, as read from another checkpoint; they
            win over the model's own token ids.
        overwrite: replace whatever lies in `directory`, not only a model.

    Raises:
        ConfigError: no HuggingFace architecture expresses the model.
        CheckpointError: `directory` holds something else than a model.
    """
    weights = {name: StoredTensor.of(tensor) for name, tensor in model.state_dict().items()}
    save_weights(model.config, weights, directory, tokenizer, dtype, generation, overwrite)


def save_weights(
    config: ModelConfig,
    weights: Mapping[str, StoredTensor],
    directory: Path,
    tokenizer: SavesItself | None = None,
    dtype: torch.dtype | None = None,
    generation: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """As `save_model_directory`, from what a model's state dict names, one tensor at a time."""
    directory = Path(directory)
    tensors = {strip_wrappers(name): tensor for name, tensor in weights.items()}
    if config.tie_word_embeddings:
        tensors.pop(HEAD, None)
    config_to_json(config, dtype="float32")  # what cannot be said is refused before writing
    with replace_directory(directory) as temporary:
        write_model_files(config, tensors, temporary, dtype, generation)
        if tokenizer is not None:
            tokenizer.save(temporary)
        if not overwrite:
            check_replaceable(directory, temporary)


def write_model_files(
    config: ModelConfig,
    tensors: Mapping[str, StoredTensor],
    directory: Path,
    dtype: torch.dtype | None = None,
    generation: Mapping[str, Any] | None = None,
) -> None:
    """Write weights and configs into `directory`, one tensor in memory at a time.

    Args:
        tensors: by HuggingFace's names, the head left out where it is tied.
        dtype, generation: as for `save_model_directory`.

    Raises:
        ConfigError: no HuggingFace architecture expresses the model; nothing was written.
    """
    dtypes = {str(dtype or t.dtype).removeprefix("torch.") for t in tensors.values()}
    content = config_to_json(config, dtype=dtypes.pop() if len(dtypes) == 1 else "float32")
    write_safetensors(tensors, directory, dtype=dtype)
    write_json(directory / GENERATION_CONFIG, _generation_content(content, generation))
    write_json(directory / CONFIG, content)


def check_replaceable(directory: Path, written: Path) -> None:
    """Refuse to replace a directory that holds more than weights and what is `written` anew.

    Raises:
        CheckpointError: `directory` is a file, or something in it would be lost.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is a file; a model is saved as a directory.")
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        is_weights = path.name == INDEX or path.suffix == ".safetensors"
        if path.is_file() and not is_weights and not (written / name).is_file():
            raise CheckpointError(
                f"{directory} holds other things than a model ({name}); saving would replace it.",
                hint="Name a new directory.",
            )


def _generation_content(
    config: Mapping[str, Any], generation: Mapping[str, Any] | None
) -> dict[str, Any]:
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return {**{key: value for key, value in ids.items() if value is not None}, **(generation or {})}
