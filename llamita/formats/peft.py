"""Adapters in PEFT's file format: a folder with `adapter_config.json` and its tensors.

Read, an adapter is the model that it makes of its base: each tensor is merged when it is asked for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from llamita.errors import CheckpointError
from llamita.formats.checkpoint import EMBEDDING, HEAD, Checkpoint, strip_wrappers
from llamita.formats.key_map import listing
from llamita.formats.peft_config import (
    ADAPTER_CONFIG,
    ADAPTER_PICKLE,
    ADAPTER_WEIGHTS,
    AdapterConfig,
)
from llamita.formats.safetensors_file import read_safetensors
from llamita.formats.stored import StoredTensor
from llamita.formats.torch_file import read_torch_state_dict
from llamita.model.lora import merged

PREFIX = "base_model.model."
_KINDS = (
    ("low_rank", re.compile(r"(.+)\.lora_(A|B)(?:\.default)?\.weight")),
    ("embedding", re.compile(r"(.+)\.lora_embedding_(A|B)(?:\.default)?")),
    ("lengths", re.compile(r"(.+)\.lora_magnitude_vector(?:\.default)?(?:\.weight)?()")),
    ("rows", re.compile(r"(.+)\.token_adapter\.trainable_tokens_delta(?:\.default)?()")),
    ("whole", re.compile(r"(.+?)(?:\.modules_to_save(?:\.default)?|\.base_layer)?\.(weight|bias)")),
)
_TOKENIZERS = ("tokenizer.json", "tokenizer.model")


def is_adapter(path: Path) -> bool:
    """Whether a folder holds an adapter, and no whole model beside it."""
    if not (path / ADAPTER_CONFIG).is_file():
        return False
    names = ("model.safetensors", "model.safetensors.index.json")
    return not any((path / name).is_file() for name in names)


def read_adapter(path: Path, base: Checkpoint, config: AdapterConfig) -> Checkpoint:
    """The model that the adapter in the folder `path` makes of its base.

    Raises:
        CheckpointError: it is damaged, or belongs to another base.
    """
    parts = _sorted(path)
    tensors = dict(base.tensors)
    for (module, leaf), tensor in parts["whole"].items():
        name = _native(f"{module}.{leaf}", tensors, base, path)
        stored = tensors[name]
        tensors[name] = StoredTensor.of(tensor)
        free = 1 if name in (EMBEDDING, HEAD) else 0  # a table may have got more rows
        if tensor.dim() != len(stored.shape) or tensor.shape[free:] != stored.shape[free:]:
            raise _other_base(path, base, name, tensor, stored)
    for module, pair in _pairs(parts["low_rank"], path).items():
        name = _native(f"{module}.weight", tensors, base, path)
        if name == HEAD and base.config.tie_word_embeddings:
            raise CheckpointError(
                f"{path} adapts {HEAD} alone, which in {base.path} is the embedding as well."
            )
        lengths = parts["lengths"].pop((module, ""), None)
        if config.is_decomposed != (lengths is not None):
            raise CheckpointError(
                f"{path}: {module} has {'no' if lengths is None else 'a'} lora_magnitude_vector, "
                f"and use_dora is {str(config.is_decomposed).lower()}."
            )
        tensors[name] = _adapted(tensors[name], pair, lengths, config, module, path, base)
    for module, pair in _pairs(parts["embedding"], path).items():
        name = _native(f"{module}.weight", tensors, base, path)
        turned = (pair[1].mT, pair[0].mT)  # of a table, which is read by rows
        tensors[name] = _adapted(tensors[name], turned, None, config, module, path, base)
    for (module, _), rows in parts["rows"].items():
        name = _native(f"{module}.weight", tensors, base, path)
        ids = config.tokens.get(module.rpartition(".")[2], [])
        tensors[name] = _with_rows(tensors[name], ids, rows, path)
    if parts["lengths"]:
        raise CheckpointError(f"{path} has lora_magnitude_vector without lora_A and lora_B.")
    size = tensors[EMBEDDING].shape[0]
    if HEAD in tensors and tensors[HEAD].shape[0] != size:
        raise CheckpointError(
            f"{path} makes {EMBEDDING} have {size:,} rows and {HEAD} {tensors[HEAD].shape[0]:,}."
        )
    made = replace(base, config=base.config.with_changes(vocab_size=size), tensors=tensors)
    if any((path / name).is_file() for name in _TOKENIZERS):
        return replace(made, path=path, tokenizer=path)
    return made  # whose tokenizer is found beside the base


def _sorted(path: Path) -> dict[str, dict[tuple[str, str], Tensor]]:
    """The tensors of a folder by what they are, then by module and last name."""
    if (path / ADAPTER_WEIGHTS).is_file():
        source = path / ADAPTER_WEIGHTS
        found = read_safetensors(source)
    elif (path / ADAPTER_PICKLE).is_file():
        source = path / ADAPTER_PICKLE
        found = read_torch_state_dict(source)
    else:
        raise CheckpointError(f"{path} has an {ADAPTER_CONFIG} but no {ADAPTER_WEIGHTS}.")
    parts: dict[str, dict[tuple[str, str], Tensor]] = {kind: {} for kind, _ in _KINDS}
    unknown = []
    for name, tensor in found.items():
        plain = strip_wrappers(name).removeprefix(PREFIX)
        matches = ((kind, pattern.fullmatch(plain)) for kind, pattern in _KINDS)
        kind, match = next(((k, m) for k, m in matches if m), ("", None))
        if match is None or not name.startswith(PREFIX):
            unknown.append(name)
        else:
            parts[kind][match[1], match[2]] = tensor
    if unknown or not found:
        what = f"tensors that llamita cannot apply: {listing(unknown)}" if unknown else "no tensors"
        raise CheckpointError(f"{source} holds {what}.")
    return parts


def _native(name: str, tensors: dict[str, StoredTensor], base: Checkpoint, path: Path) -> str:
    """The base's tensor of this name; a tied head is the embedding."""
    if name in tensors:
        return name
    if name == HEAD and base.config.tie_word_embeddings:
        return EMBEDDING
    raise CheckpointError(
        f"{path} adapts {name.rpartition('.')[0]}, which {base.path} does not have.",
        hint="It belongs to another base. Name that: llamita merge ADAPTER -o DIR --base MODEL",
    )


def _pairs(parts: dict[tuple[str, str], Tensor], path: Path) -> dict[str, tuple[Tensor, Tensor]]:
    found: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for (module, side), tensor in parts.items():
        found[module][side] = tensor
    for module, sides in found.items():
        if len(sides) < 2:
            raise CheckpointError(f"{path}: of {module} only lora_{next(iter(sides))} is there.")
    return {module: (sides["A"], sides["B"]) for module, sides in found.items()}


def _adapted(
    weight: StoredTensor,
    pair: tuple[Tensor, Tensor],
    lengths: Tensor | None,
    config: AdapterConfig,
    module: str,
    path: Path,
    base: Checkpoint,
) -> StoredTensor:
    down, up = pair
    rank, scale = config.rank_of(module), config.scale_of(module)
    expected = (torch.Size((rank, weight.shape[1])), torch.Size((weight.shape[0], rank)))
    if (down.shape, up.shape) != expected:
        raise CheckpointError(
            f"{path}: the adapter of {module} is {list(down.shape)} and {list(up.shape)}; of rank "
            f"{rank} for {base.path} it is {list(expected[0])} and {list(expected[1])}.",
            hint="It belongs to another base. Name that: llamita merge ADAPTER -o DIR --base MODEL",
        )

    def apply(stored: Tensor) -> Tensor:
        whole = merged(stored, down, up, scale)
        if lengths is None:
            return whole
        lengthened: Tensor = whole * (lengths.float().view(-1) / whole.norm(dim=1))[:, None]
        return lengthened

    return replace(weight.then(apply), dtype=torch.float32, kind="float32")


def _with_rows(weight: StoredTensor, ids: list[int], rows: Tensor, path: Path) -> StoredTensor:
    old, columns = weight.shape
    size = max([old - 1, *ids]) + 1
    missing = sorted(set(range(old, size)) - set(ids))
    if rows.shape != (len(ids), columns) or missing:
        raise CheckpointError(
            f"{path} replaces rows of tokens by a table of {list(rows.shape)} for {len(ids)} ids "
            f"of {old:,} rows and {columns} columns"
            + (f"; the row of token {missing[0]:,} is nowhere." if missing else "."),
            hint="It belongs to another base. Name that: llamita merge ADAPTER -o DIR --base MODEL",
        )

    def apply(stored: Tensor) -> Tensor:
        table = stored.new_zeros(size, columns, dtype=torch.float32)
        table[:old] = stored
        table[ids] = rows.float()
        return table

    made = weight.then(apply, (size, columns))
    return replace(made, dtype=torch.float32, kind="float32")


def _other_base(
    path: Path, base: Checkpoint, name: str, tensor: Tensor, stored: StoredTensor
) -> CheckpointError:
    return CheckpointError(
        f"{path} has a {name} of {list(tensor.shape)}; in {base.path} it is {list(stored.shape)}.",
        hint="It belongs to another base. Name that: llamita merge ADAPTER -o DIR --base MODEL",
    )


def base_path(path: Path, config: AdapterConfig) -> Path:
    """Where the base of an adapter lies, as its config says.

    Raises:
        CheckpointError: it says none, or none that is on this machine.
    """
    hint = f"Name it: llamita merge {path} -o DIR --base MODEL, or llamita.load(…, base=MODEL)."
    if config.base is None:
        raise CheckpointError(f"{path} is an adapter that names no base.", hint=hint)
    for candidate in (Path(config.base), path / config.base, path.parent / config.base):
        if candidate.exists() and candidate.resolve() != path.resolve():
            return candidate
    raise CheckpointError(
        f"{path} is an adapter of {config.base!r}, which is not on this machine.", hint=hint
    )
