"""Reading a GGUF file as a checkpoint; tensors become numbers one by one, when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llamita.formats.checkpoint import Checkpoint, match_tensors
from llamita.formats.gguf_config import architecture_of, read_gguf_config
from llamita.formats.gguf_header import GGUFHeader, TensorInfo, read_gguf_header
from llamita.formats.gguf_tensors import FREQUENCY_FACTORS
from llamita.formats.gguf_vocabulary import VOCABULARY_KEYS, read_vocabulary
from llamita.formats.key_map import map_to_native
from llamita.formats.stored import StoredTensor
from llamita.quantization.blocks import as_plain_numbers, dequantize


def read_gguf(path: Path, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """The model, the tokenizer and the chat template of the GGUF file at `path`.

    Args:
        overrides: `ModelConfig` fields, or keys of the file's metadata, that win over it; null
            drops a key.

    Raises:
        CheckpointError: the file is damaged, of an architecture that is not read, or its parts
            do not fit together. ConfigError: its config cannot be.
    """
    header = read_gguf_header(path)
    overrides = _apply_to_metadata(header, overrides or {})
    architecture = architecture_of(header)
    config = read_gguf_config(header, architecture, overrides)
    stored = {name: _stored(header, info) for name, info in header.tensors.items()}
    natives = map_to_native(architecture.rules, stored, config, path, ignored=(FREQUENCY_FACTORS,))
    return Checkpoint(
        config,
        match_tensors(config, natives, path, described_by="its metadata"),
        path,
        format="gguf",
        tokenizer=read_vocabulary(header.metadata, path),
        name=_text(header, "general.name"),
        license=_text(header, "general.license"),
    )


def _apply_to_metadata(header: GGUFHeader, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Set or drop keys of the tokenizer and of `general`; the others are returned."""
    rest = {}
    for key, value in overrides.items():
        if key not in VOCABULARY_KEYS and not (
            key in header.metadata and key.startswith(("general.", "tokenizer."))
        ):
            rest[key] = value
        elif value is None:
            header.metadata.pop(key, None)
        else:
            header.metadata[key] = value
    return rest


def _stored(header: GGUFHeader, info: TensorInfo) -> StoredTensor:
    kind = info.kind
    plain = kind.dtype

    def read() -> Tensor:
        if plain is not None:
            return as_plain_numbers(header.bytes_of(info), kind, info.shape)
        return dequantize(header.bytes_of(info), kind.name, info.shape)

    def blocks() -> Tensor:
        return header.bytes_of(info).view(*info.shape[:-1], -1)

    shape, dtype = torch.Size(info.shape), plain or torch.float32
    return StoredTensor(shape, dtype, read, kind.name, info.size, blocks if plain is None else None)


def _text(header: GGUFHeader, key: str) -> str | None:
    value = header.metadata.get(key)
    return value if isinstance(value, str) and value else None
