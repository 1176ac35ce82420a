"""Writing a run's adapters: merged into the model for everyone, and alone in PEFT's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llamita.files import replace_directory, write_json
from llamita.formats.checkpoint import EMBEDDING, HEAD, strip_wrappers
from llamita.formats.huggingface import SavesItself
from llamita.formats.peft import PREFIX
from llamita.formats.peft_config import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from llamita.formats.safetensors_file import write_safetensors_file
from llamita.formats.stored import StoredTensor
from llamita.model.lora import DOWN, UP, merged


@dataclass(frozen=True)
class Adapter:
    """What a folder of PEFT says of an adapter.

    base: the model it is for. tokens: ids whose rows of the tables are its own.
    """

    base: str
    rank: int
    alpha: float
    dropout: float
    targets: Sequence[str]
    tokens: Sequence[int] = ()

    @property
    def scale(self) -> float:
        """What B A is multiplied by."""
        return self.alpha / self.rank


def merge_adapters(weights: Mapping[str, StoredTensor], scale: float) -> dict[str, StoredTensor]:
    """The tensors of a state dict with each adapter in its weight, when that is read."""
    plain = {strip_wrappers(name): tensor for name, tensor in weights.items()}
    whole = {}
    for name, tensor in plain.items():
        module, _, leaf = name.rpartition(".")
        if leaf in (DOWN, UP):
            continue
        down, up = plain.get(f"{module}.{DOWN}"), plain.get(f"{module}.{UP}")
        if leaf == "weight" and down is not None and up is not None:
            tensor = replace(
                tensor.then(partial(_merged, down, up, scale)), dtype=torch.float32, kind="float32"
            )
        whole[name] = tensor
    return whole


def _merged(down: StoredTensor, up: StoredTensor, scale: float, weight: Tensor) -> Tensor:
    return merged(weight, down.read(), up.read(), scale)


def write_adapter(
    directory: Path,
    weights: Mapping[str, StoredTensor],
    adapter: Adapter,
    tokenizer: SavesItself,
    *,
    is_tied: bool,
) -> None:
    """Write the adapters of a state dict as a folder of PEFT, whole or not at all.

    is_tied: the head is the embedding, and the rows of new tokens stand there once.
    """
    plain = {strip_wrappers(name): tensor for name, tensor in weights.items()}
    tensors = {
        f"{PREFIX}{name}.weight": tensor
        for name, tensor in plain.items()
        if name.endswith((f".{DOWN}", f".{UP}"))
    }
    if adapter.tokens:
        ids, columns = list(adapter.tokens), plain[EMBEDDING].shape[1]
        for name in (EMBEDDING,) if is_tied else (EMBEDDING, HEAD):
            module = name.removesuffix(".weight")
            rows = plain[name].then(lambda table: table[ids], (len(ids), columns))
            tensors[f"{PREFIX}{module}.token_adapter.trainable_tokens_delta"] = rows
    with replace_directory(directory) as temporary:
        write_safetensors_file(tensors, temporary / ADAPTER_WEIGHTS)
        tokenizer.save(temporary)
        write_json(temporary / ADAPTER_CONFIG, _config(adapter, is_tied))


def _config(adapter: Adapter, is_tied: bool) -> dict[str, Any]:
    tokens: Any = list(adapter.tokens) or None
    if tokens and not is_tied:
        tokens = {"embed_tokens": tokens, "lm_head": tokens}
    alpha = adapter.alpha
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": adapter.base,
        "inference_mode": True,
        "r": adapter.rank,
        "lora_alpha": int(alpha) if float(alpha).is_integer() else alpha,
        "lora_dropout": adapter.dropout,
        "target_modules": list(adapter.targets),
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "modules_to_save": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "use_dora": False,
        "use_rslora": False,
        "trainable_token_indices": tokens,
    }
