"""Writing a checkpoint as GGUF, as llama.cpp and what builds on it expect it.

One tensor is in memory at a time. Vectors (norms, biases) stay float32. With Q4_0 and Q4_1 the
table that makes the logits is Q8_0, as llama.cpp keeps it finer than the rest too (it takes Q6_K
where rows are multiples of 256). Rows that are no whole blocks become F16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from llamita.config import ModelConfig
from llamita.errors import ConfigError
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.gguf_config_write import architecture_for, check_config, config_entries
from llamita.formats.gguf_encode import PlannedTensor, encode_header, padding
from llamita.formats.gguf_rope import frequency_factors
from llamita.formats.gguf_tensors import EMBEDDING, FREQUENCY_FACTORS, OUTPUT
from llamita.formats.gguf_vocabulary import (
    fit_vocabulary,
    name_roles,
    role_entries,
    vocabulary_entries,
)
from llamita.formats.key_map import map_to_foreign
from llamita.formats.stored import StoredTensor
from llamita.formats.vocabulary import Vocabulary
from llamita.quantization.blocks import quantize
from llamita.quantization.kinds import KINDS, PLAIN_KINDS, Kind, fits_rows

QUANTIZATIONS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1")
_FINER_OUTPUT = {"Q4_0": "Q8_0", "Q4_1": "Q8_0"}
_FALLBACK = KINDS["F16"]
_QUANTIZATION_VERSION = 2
_FILE_TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 7,
    "Q5_0": 8,
    "Q5_1": 9,
    "Q2_K": 10,
    "Q3_K": 12,
    "Q4_K": 15,
    "Q5_K": 17,
    "Q6_K": 18,
    "BF16": 32,
}
"""llama.cpp's numbers for "mostly of this kind", for k-quants the medium mix."""


def check_gguf(config: ModelConfig, quantization: str | None) -> None:
    """Refuse, before anything is written, what a GGUF file cannot hold.

    Args:
        quantization: one of `QUANTIZATIONS`, or None for what the source has.

    Raises:
        ConfigError: it names the field and its value.
    """
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise ConfigError(
            f"GGUF is not written as {quantization!r}.",
            hint=f"Known are {', '.join(QUANTIZATIONS)}.",
        )
    check_config(config)


def write_gguf(
    checkpoint: Checkpoint,
    vocabulary: Vocabulary | None,
    destination: Path,
    quantization: str | None = None,
) -> list[str]:
    """Write the checkpoint to `destination`, and say which tensors fell back to another type.

    Args:
        vocabulary: the tokenizer; without one, the file has none and llama.cpp runs it on ids.
        quantization: one of `QUANTIZATIONS`. None keeps what the source has: its float type, or
            its blocks as they are.

    Returns:
        Notes for the user, one for each kind of tensor that falls back.

    Raises:
        ConfigError: the model or the tokenizer cannot be said in GGUF; nothing was written.
        CheckpointError: some numbers cannot be quantized.
    """
    checkpoint = checkpoint.with_end_ids(checkpoint.end_ids)
    check_gguf(checkpoint.config, quantization)
    config, architecture = checkpoint.config, architecture_for(checkpoint.config)
    tensors = map_to_foreign(architecture.rules, checkpoint.tensors, config)
    if config.rope_type == "llama3":
        tensors = {FREQUENCY_FACTORS: StoredTensor.of(frequency_factors(config)), **tensors}
    plan, notes = _plan(tensors, quantization)
    entries = _entries(checkpoint, vocabulary, plan)
    with destination.open("wb") as handle:
        handle.write(encode_header(entries, plan))
        for planned in plan:
            content = _encode(tensors[planned.name], planned)
            handle.write(content.numpy().data)
            handle.write(padding(planned.size))
            del content
    return notes


def _plan(
    tensors: Mapping[str, StoredTensor], quantization: str | None
) -> tuple[list[PlannedTensor], list[str]]:
    """The type of each tensor, and notes of those that cannot have the one asked for."""
    plan = []
    fallen: dict[tuple[int, str], list[str]] = {}
    head = OUTPUT if OUTPUT in tensors else EMBEDDING
    for name, tensor in tensors.items():
        kind = _kind_for(tensor, quantization, is_head=name == head)
        if not fits_rows(kind, tensor.shape):
            fallen.setdefault((tensor.shape[-1], kind.name), []).append(name)
            kind = _FALLBACK
        plan.append(PlannedTensor(name, tensor.shape, kind))
    notes = [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''} "
        f"became {_FALLBACK.name}: rows of {length} numbers are no multiple of "
        f"{KINDS[wanted].block_size}, as {wanted} needs."
        for (length, wanted), names in fallen.items()
    ]
    return plan, notes


def _kind_for(tensor: StoredTensor, quantization: str | None, is_head: bool) -> Kind:
    if len(tensor.shape) == 1:
        return KINDS["F32"]
    if quantization is not None:
        wanted = quantization.upper()
        return KINDS[_FINER_OUTPUT.get(wanted, wanted) if is_head else wanted]
    if tensor.blocks is not None:
        return KINDS[tensor.kind]
    return KINDS["F32" if tensor.dtype == torch.float64 else PLAIN_KINDS[tensor.dtype]]


def _encode(tensor: StoredTensor, planned: PlannedTensor) -> torch.Tensor:
    """A tensor's bytes; blocks of the right kind are taken over, since requantizing loses."""
    if tensor.blocks is not None and tensor.kind == planned.kind.name:
        return tensor.blocks().contiguous()
    return quantize(tensor.read().to("cpu"), planned.kind.name, planned.name)


def _entries(
    checkpoint: Checkpoint, vocabulary: Vocabulary | None, plan: list[PlannedTensor]
) -> dict[str, Any]:
    sizes: Counter[str] = Counter()
    for planned in plan:
        if len(planned.shape) > 1 and planned.name not in (EMBEDDING, OUTPUT):
            sizes[planned.kind.name] += planned.size
    [(mostly, _)] = sizes.most_common(1)
    entries = {
        "general.architecture": architecture_for(checkpoint.config).name,
        "general.type": "model",
        "general.name": checkpoint.name or checkpoint.path.resolve().stem,
        "general.license": checkpoint.license,
        "general.file_type": _FILE_TYPES[mostly],
        "general.quantization_version": _QUANTIZATION_VERSION,
        **config_entries(checkpoint.config),
    }
    if vocabulary is None:
        entries["tokenizer.ggml.model"] = "none"
        entries.update(role_entries(name_roles({}, checkpoint.config)))
    else:
        entries.update(vocabulary_entries(fit_vocabulary(vocabulary, checkpoint.config)))
    return {key: value for key, value in entries.items() if value is not None}
