"""`adapter_config.json` of PEFT: which adapter it is, and what llamita honours of it.

PEFT's settings are many, and most variants compute something else than W + (alpha / r) B A. What
changes the function is honoured or refused by name; a setting that is not known here and says
anything is refused too, since it may.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llamita.errors import CheckpointError
from llamita.files import read_json

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS, ADAPTER_PICKLE = "adapter_model.safetensors", "adapter_model.bin"

# How an adapter was begun, trained or named: it computes the same.
_HARMLESS = frozenset(
    {
        *("auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "task_type"),
        *("peft_type", "peft_version", "target_modules", "exclude_modules", "lora_dropout"),
        *("layers_to_transform", "layers_pattern", "loftq_config", "eva_config", "corda_config"),
        *("lora_ga_config", "megatron_core", "ensure_weight_tying", "qalora_group_size"),
        *("runtime_config", "init_lora_weights", "modules_to_save", "bias", "r", "lora_alpha"),
        *("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "trainable_token_indices"),
    }
)
# Begun so, the base itself was changed: the weights that the adapter belongs to are not on disk.
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


@dataclass(frozen=True)
class AdapterConfig:
    """What an adapter's tensors mean.

    Attributes:
        base: the model it belongs to, by path or by its name on the hub, if it says so.
        rank, alpha: unless `ranks` or `alphas` say otherwise, by regular expression.
        is_rank_stabilized: scaled by alpha / √r (arXiv:2312.03732).
        is_decomposed: DoRA (arXiv:2402.09353), which scales each row to a length of its own.
        tokens: by the table's name, the ids whose rows are replaced.
    """

    base: str | None
    rank: int
    alpha: float
    ranks: dict[str, int] = field(default_factory=dict)
    alphas: dict[str, float] = field(default_factory=dict)
    is_rank_stabilized: bool = False
    is_decomposed: bool = False
    tokens: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> AdapterConfig:
        """Read the config of an adapter's folder.

        Raises:
            CheckpointError: it is damaged, or the adapter is none that llamita can apply.
        """
        path = directory / ADAPTER_CONFIG
        raw = read_json(path, CheckpointError)
        if not isinstance(raw, dict):
            raise CheckpointError(f"{path} holds no JSON object.")
        _refuse_variants(raw, path)
        base = raw.get("base_model_name_or_path")
        return cls(
            base=base if isinstance(base, str) and base else None,
            rank=_number(raw, "r", 8, int, path),
            alpha=_number(raw, "lora_alpha", 8, (int, float), path),
            ranks=_pattern(raw, "rank_pattern", int, path),
            alphas=_pattern(raw, "alpha_pattern", (int, float), path),
            is_rank_stabilized=bool(raw.get("use_rslora")),
            is_decomposed=bool(raw.get("use_dora")),
            tokens=_tokens(raw.get("trainable_token_indices"), path),
        )

    def scale_of(self, module: str) -> float:
        """What B A of a module, by its full name, is multiplied by."""
        rank, alpha = self.rank_of(module), float(self._of(self.alphas, module, self.alpha))
        return alpha / (math.sqrt(rank) if self.is_rank_stabilized else rank)

    def rank_of(self, module: str) -> int:
        """The rank of a module's adapter."""
        return int(self._of(self.ranks, module, self.rank))

    @staticmethod
    def _of(patterns: dict[str, Any], module: str, default: Any) -> Any:
        for pattern, value in patterns.items():
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        return default


def _refuse_variants(raw: dict[str, Any], path: Path) -> None:
    kind = raw.get("peft_type")
    if kind != "LORA":
        raise CheckpointError(
            f"{path} is an adapter of the type {kind!r}; llamita knows LORA alone.",
            hint="Merge it into its base with PEFT (merge_and_unload), and take what that saves.",
        )
    begun = raw.get("init_lora_weights", True)
    if isinstance(begun, str) and begun.startswith(_CHANGES_BASE):
        raise CheckpointError(
            f"{path} says init_lora_weights = {begun!r}: the adapter belongs to a base that was "
            "changed when it was begun.",
            hint="Save it with PEFT as a plain one (path_initial_model_for_weight_conversion).",
        )
    for name, value in raw.items():
        if name not in _HARMLESS and value not in (None, False, "", [], {}):
            raise CheckpointError(
                f"{path} says {name} = {value!r}, which llamita does not know how to apply.",
                hint="Merge it into its base with PEFT (merge_and_unload), and take what it saves.",
            )


def _number(raw: dict[str, Any], name: str, default: int, kind: Any, path: Path) -> Any:
    value = raw.get(name, default)
    if isinstance(value, bool) or not isinstance(value, kind) or not 0 < value < 1e9:
        raise CheckpointError(f"{path} says {name} = {value!r}; it must be a number above 0.")
    return value


def _pattern(raw: dict[str, Any], name: str, kind: Any, path: Path) -> dict[str, Any]:
    patterns = raw.get(name) or {}
    if not isinstance(patterns, dict):
        raise CheckpointError(f"{path} says {name} = {patterns!r}; it must be an object.")
    for pattern in patterns:
        _number(patterns, pattern, 0, kind, path)
        try:
            re.compile(pattern)
        except re.error as error:
            raise CheckpointError(f"{path}: {name} has the pattern {pattern!r}: {error}.") from None
    return patterns


def _tokens(value: Any, path: Path) -> dict[str, list[int]]:
    named = value if isinstance(value, dict) else {"embed_tokens": value} if value else {}
    for ids in named.values():
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < 1 << 22 for i in ids):
            raise CheckpointError(
                f"{path} says trainable_token_indices = {value!r}; they must be token ids."
            )
    return {name.rpartition(".")[2]: ids for name, ids in named.items()}
