"""What a model is: one frozen, self-checking description for the whole Llama family.

Field names are HuggingFace's, so `config.json` needs no translation. A wrong value raises a
`ConfigError` that names the field, the value and what would be right.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any

from llamita.errors import ConfigError

ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")

# The keys each scaling needs and may have, besides its type (HuggingFace's names).
_ROPE_REQUIRED: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor",),
}
_ROPE_OPTIONAL: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("original_max_position_embeddings",),
    "dynamic": ("original_max_position_embeddings",),
    "llama3": (),
    "yarn": (
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
}


@dataclass(frozen=True)
class ModelConfig:
    """The shape and the numbers of one model.

    `num_key_value_heads` and `head_dim` may be left out: as many as query heads, and
    `hidden_size / num_attention_heads`. `attention_output_bias` left out follows
    `attention_bias`; False beside `attention_bias=True` is Qwen2's layout (q, k and v biased, the
    output not). `rope_scaling` is HuggingFace's dictionary with `rope_type`, or None.
    `sliding_window` counts the positions a query sees, itself included.

    Raises:
        ConfigError: a value is out of range or does not fit another.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int = 0
    head_dim: int = 0
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = True
    sliding_window: int | None = None
    attention_bias: bool = False
    attention_output_bias: bool | None = None
    mlp_bias: bool = False
    use_qk_norm: bool = False
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    initializer_range: float = 0.02
    bos_token_id: int | None = None
    eos_token_id: int | tuple[int, ...] | None = None
    pad_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        if self.num_key_value_heads == 0:
            object.__setattr__(self, "num_key_value_heads", self.num_attention_heads)
        for name in _POSITIVE_INTEGERS:
            _check_integer(name, getattr(self, name), minimum=1)
        if self.head_dim == 0:
            self._set_default_head_dim()
        _check_integer("head_dim", self.head_dim, minimum=2)
        if self.head_dim % 2:
            raise ConfigError(
                f"head_dim is {self.head_dim}; rotary positions turn pairs, so it must be even."
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ConfigError(
                f"num_key_value_heads is {self.num_key_value_heads}; it must divide "
                f"num_attention_heads ({self.num_attention_heads})."
            )
        if self.attention_output_bias is None:
            object.__setattr__(self, "attention_output_bias", self.attention_bias)
        for name in _BOOLEANS:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ConfigError(f"{name} is {value!r}; it must be true or false.")
        for name, most in (("rope_theta", 1e18), ("rms_norm_eps", 1), ("initializer_range", 1e3)):
            value = getattr(self, name)
            # Whole numbers beyond 64 bits would not even fit into a tensor's arithmetic.
            wanted = f"a number above 0 and at most {most:g}"
            _check_number(name, value, lambda v, most=most: 0 < v <= most, wanted)
        for name in ("attention_dropout", "residual_dropout"):
            _check_number(name, getattr(self, name), lambda v: 0 <= v < 1, "at least 0 and below 1")
        if self.sliding_window is not None:
            _check_integer("sliding_window", self.sliding_window, minimum=1)
        self._check_token_ids()
        self._check_rope_scaling()

    def _set_default_head_dim(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size is {self.hidden_size}; without a head_dim it must be a multiple of "
                f"num_attention_heads ({self.num_attention_heads})."
            )
        object.__setattr__(self, "head_dim", self.hidden_size // self.num_attention_heads)

    def _check_token_ids(self) -> None:
        if isinstance(self.eos_token_id, list):
            object.__setattr__(self, "eos_token_id", tuple(self.eos_token_id))
        eos = self.eos_token_id
        eos_ids = eos if isinstance(eos, tuple) else () if eos is None else (eos,)
        for name, ids in (
            ("eos_token_id", eos_ids),
            ("bos_token_id", () if self.bos_token_id is None else (self.bos_token_id,)),
            ("pad_token_id", () if self.pad_token_id is None else (self.pad_token_id,)),
        ):
            for token_id in ids:
                if type(token_id) is not int or not 0 <= token_id < self.vocab_size:
                    raise ConfigError(
                        f"{name} is {token_id!r}; it must be an id from 0 to "
                        f"vocab_size - 1 ({self.vocab_size - 1}), or null."
                    )
        object.__setattr__(self, "eos_token_ids", eos_ids)

    def _check_rope_scaling(self) -> None:
        scaling = self.rope_scaling
        if scaling is None:
            return
        if not isinstance(scaling, dict):
            raise ConfigError(f"rope_scaling is {scaling!r}; it must be a table or null.")
        scaling = {("rope_type" if key == "type" else key): v for key, v in scaling.items()}
        kind = scaling.get("rope_type")
        if kind not in ROPE_TYPES:
            raise ConfigError(
                f"rope_scaling has rope_type {kind!r}; known are {', '.join(ROPE_TYPES)}."
            )
        required, optional = _ROPE_REQUIRED[kind], _ROPE_OPTIONAL[kind]
        missing = [key for key in required if key not in scaling]
        unknown = [key for key in scaling if key not in ("rope_type", *required, *optional)]
        if missing:
            raise ConfigError(f"rope_scaling of type {kind!r} lacks {', '.join(missing)}.")
        if unknown:
            raise ConfigError(
                f"rope_scaling of type {kind!r} does not know the key {', '.join(unknown)}."
            )
        scaling = {key: value for key, value in scaling.items() if value is not None}
        for key, value in scaling.items():
            if key in ("rope_type", "truncate"):
                continue
            _check_number(f"rope_scaling.{key}", value, lambda v: v > 0, "a number above 0")
        if kind == "llama3" and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
            raise ConfigError(
                f"rope_scaling.high_freq_factor is {scaling['high_freq_factor']}; it must be above "
                f"low_freq_factor ({scaling['low_freq_factor']})."
            )
        if kind == "dynamic" and self.head_dim <= 2:
            raise ConfigError(f"head_dim is {self.head_dim}; dynamic rope_scaling needs 4.")
        if kind == "yarn" and self.rope_theta <= 1:
            raise ConfigError(f"rope_theta is {self.rope_theta}; yarn rope_scaling needs above 1.")
        object.__setattr__(self, "rope_scaling", None if kind == "default" else scaling)

    @property
    def rope_type(self) -> str:
        """The kind of rotary scaling: one of `ROPE_TYPES`."""
        return "default" if self.rope_scaling is None else str(self.rope_scaling["rope_type"])

    def with_changes(self, **changes: Any) -> ModelConfig:
        """A copy with some fields changed, checked anew.

        Raises:
            ConfigError: a field does not exist or a value cannot be.
        """
        known = sorted(FIELD_NAMES)
        for name in changes:
            if name not in FIELD_NAMES:
                raise ConfigError(
                    f"there is no model setting {name!r}.", hint=f"Known are: {', '.join(known)}."
                )
        if {"hidden_size", "num_attention_heads"} & set(changes) and "head_dim" not in changes:
            changes["head_dim"] = 0 if self._has_default_head_dim() else self.head_dim
        if "num_attention_heads" in changes and "num_key_value_heads" not in changes:
            plain = self.num_key_value_heads == self.num_attention_heads
            changes["num_key_value_heads"] = 0 if plain else self.num_key_value_heads
        if "attention_bias" in changes and "attention_output_bias" not in changes:
            changes["attention_output_bias"] = None
        return replace(self, **changes)

    def _has_default_head_dim(self) -> bool:
        return self.head_dim * self.num_attention_heads == self.hidden_size

    def count_parameters(self) -> int:
        """How many numbers the model holds; a tied table counts once."""
        queries = self.num_attention_heads * self.head_dim
        keys = self.num_key_value_heads * self.head_dim
        attention = self.hidden_size * (2 * queries + 2 * keys)
        if self.attention_bias:
            attention += queries + 2 * keys
        if self.attention_output_bias:
            attention += self.hidden_size
        if self.use_qk_norm:
            attention += 2 * self.head_dim
        mlp = 3 * self.hidden_size * self.intermediate_size
        if self.mlp_bias:
            mlp += 2 * self.intermediate_size + self.hidden_size
        layer = attention + mlp + 2 * self.hidden_size
        tables = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * layer + tables + self.hidden_size


FIELD_NAMES = frozenset(
    name for name, spec in ModelConfig.__dataclass_fields__.items() if spec.init
)
_POSITIVE_INTEGERS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)
_BOOLEANS = (
    "tie_word_embeddings",
    "attention_bias",
    "attention_output_bias",
    "mlp_bias",
    "use_qk_norm",
)
_LARGEST_INTEGER = 2**31 - 1


def _check_integer(name: str, value: Any, minimum: int) -> None:
    if type(value) is not int or not minimum <= value <= _LARGEST_INTEGER:
        raise ConfigError(
            f"{name} is {value!r}; it must be a whole number from {minimum} to {_LARGEST_INTEGER}."
        )


def _check_number(name: str, value: Any, is_right: Any, wanted: str) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max or not is_right(value):
        raise ConfigError(f"{name} is {value!r}; it must be {wanted}.")
