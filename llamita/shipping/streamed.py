"""A model that is larger than the memory for it: each part is read when its turn comes.

Verifying must not need more memory than converting. A pass reads every weight anew, part by part
in float32, and lets it go, so it costs the time of reading the file and the memory of one layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from llamita.formats.checkpoint import EMBEDDING, HEAD, Checkpoint
from llamita.model.transformer import Transformer

_BYTES = torch.float32.itemsize


def whole_bytes(checkpoint: Checkpoint) -> int:
    """The memory that all of a model's weights take in float32."""
    return _BYTES * sum(tensor.numel() for tensor in checkpoint.tensors.values())


def streamed_bytes(checkpoint: Checkpoint) -> int:
    """The memory that the largest part of a model takes in float32, once and as it is read."""
    parts: dict[str, int] = {}
    for name, tensor in checkpoint.tensors.items():
        part = ".".join(name.split(".")[:3]) if name.startswith("model.layers.") else name
        parts[part] = parts.get(part, 0) + tensor.numel()
    return 2 * _BYTES * max(parts.values())


def streamed_model(checkpoint: Checkpoint) -> Transformer:
    """The checkpoint's model in float32, whose weights are read at each pass.

    Its parameters have the right shapes, but hold numbers only while their part runs.
    """
    with torch.device("meta"):
        model = Transformer(checkpoint.config)
    for prefix, part in _parts(model):
        names = [name for name, _ in part.named_parameters()]
        _empty(part, names)
        part.register_forward_pre_hook(_reader(checkpoint, prefix, names))
        part.register_forward_hook(lambda part, *_, names=names: _empty(part, names))
    return model.eval()


def _parts(model: Transformer) -> Iterator[tuple[str, nn.Module]]:
    yield "model.embed_tokens", model.model.embed_tokens
    for number, layer in enumerate(model.model.layers):
        yield f"model.layers.{number}", layer
    yield "model.norm", model.model.norm
    yield "lm_head", model.lm_head


def _reader(checkpoint: Checkpoint, prefix: str, names: list[str]) -> Any:
    def read(part: nn.Module, _: Any) -> None:
        for name in names:
            full = f"{prefix}.{name}"
            if full == HEAD and checkpoint.config.tie_word_embeddings:
                full = EMBEDDING
            _set(part, name, checkpoint.tensors[full].read().to(torch.float32))

    return read


def _empty(part: nn.Module, names: list[str]) -> None:
    """Parameters of the right shape that take no memory: one zero, seen many times."""
    for name in names:
        shape = part.get_parameter(name).shape
        _set(part, name, torch.zeros(()).expand(shape))


def _set(part: nn.Module, name: str, numbers: torch.Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    setattr(part.get_submodule(owner), leaf, nn.Parameter(numbers, requires_grad=False))
