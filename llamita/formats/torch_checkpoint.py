"""A PyTorch checkpoint file, opened as far as all layouts share it: tensors and a config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llamita.errors import CheckpointError
from llamita.formats.checkpoint import strip_wrappers
from llamita.formats.key_map import listing
from llamita.formats.stored import StoredTensor
from llamita.formats.torch_file import read_torch_file


@dataclass(frozen=True)
class TorchCheckpoint:
    """What lies in one file.

    Attributes:
        tensors: of the model, by the file's names without what compiling or distributing put
            into them.
        config: the file's own, or None where it holds weights alone.
    """

    path: Path
    tensors: dict[str, StoredTensor]
    config: dict[str, Any] | None


def open_torch_checkpoint(path: Path) -> TorchCheckpoint:
    """Open `{"model": state dict, "config": …}` or a bare state dict.

    Raises:
        CheckpointError: it is neither, or cannot be read.
    """
    content = read_torch_file(path)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a model's weights.")
    if not content:
        raise CheckpointError(f"{path} is empty: it holds no weights.")
    state, config = content, None
    if isinstance(content.get("model"), dict):
        state, config = content["model"], content.get("config")
        if config is not None and not isinstance(config, dict):
            raise CheckpointError(
                f"the config in {path} is a {type(config).__name__}, not a dictionary."
            )
    elif not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(
            f"{path} is no checkpoint known here: it holds {listing([*map(str, content)])}.",
            hint='Read are {"model": state dict, "config": {…}} and bare state dicts.',
        )
    return TorchCheckpoint(path, stored_tensors(state, path), config)


def stored_tensors(state: Mapping[Any, Any], source: Path) -> dict[str, StoredTensor]:
    """The tensors of a state dict under their plain names.

    Raises:
        CheckpointError: it holds something else, or one name twice.
    """
    tensors: dict[str, StoredTensor] = {}
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise CheckpointError(
                f"{source} holds {str(name)!r}, a {type(value).__name__}, among its weights."
            )
        if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
            raise CheckpointError(f"{name} in {source} is no plain tensor of numbers.")
        plain = strip_wrappers(name)
        if plain in tensors:
            raise CheckpointError(f"{source} holds {plain} twice, once as {name}.")
        tensors[plain] = StoredTensor.of(value.detach())
    return tensors


def layout_of(names: Iterable[str]) -> str | None:
    """Which layout has such names: "hermes", "armgpt", "meta", "hf", or None."""
    for name in names:
        if name.startswith(("transformer.blocks.", "transformer.wte.")):
            return "armgpt"
        if name.startswith("tok_embeddings.") or ".feed_forward.w" in name:
            return "meta"
        if name.startswith(("model.layers.", "model.embed_tokens.")):
            return "hf"
        if name.startswith("embed_tokens.") or (
            name.startswith("layers.") and (".self_attn." in name or ".mlp." in name)
        ):
            return "hermes"
    return None


def shape_of(tensors: Mapping[str, StoredTensor], name: str, source: Path) -> tuple[int, int]:
    """The shape of a matrix that a model in this layout must have.

    Raises:
        CheckpointError: it is not there, or no matrix.
    """
    if name not in tensors:
        raise CheckpointError(f"{source} holds no {name}, so it is not a whole model.")
    shape = tensors[name].shape
    if len(shape) != 2 or 0 in shape:
        raise CheckpointError(f"{name} in {source} has the shape {list(shape)}; it is no matrix.")
    return shape[0], shape[1]


def count_layers(names: Iterable[str], prefix: str, suffix: str) -> int:
    """How many layers there are, counted by a tensor that each has; gaps are found later."""
    return sum(name.startswith(prefix) and name.endswith(suffix) for name in names)
