"""A model's shape from its size: `--params 10m`.

Depth follows width: one layer for each 32 columns up to 32 layers, as in SmolLM2 (360M: 960 wide,
32 deep; deep and thin is better below a billion parameters: MobileLLM, arXiv:2402.14905), which
Llama's 7B (4096, 32) still fits, and one for each 128 beyond it, as in Llama's 13B (5120, 40).
The feed-forward layer is 8/3 as wide as the model (SwiGLU, arXiv:2002.05202). Both may give way a
little so that the total is the one asked for: loss hardly depends on them (arXiv:2001.08361).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from llamita.config.model_config import ModelConfig
from llamita.errors import ConfigError

SMALLEST, LARGEST = 10_000, 100_000_000_000
TOLERANCE = 0.03

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_UNTIED_FROM = 4_000_000_000  # Llama 3.2's 3B shares its table with the head, the 7B and 8B do not
_NARROW, _ALIGNED = 8, 64
_WIDEST = 16384
_FAR_TOO_LARGE = 2  # times what is asked for: nothing near it is to be found there


def parse_size(text: str) -> int:
    """`10m`, `500k`, `1.3b` or a plain number of parameters.

    Raises:
        ConfigError: it is no such size, or beyond what can be.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmb]?)", text.strip().lower().replace("_", ""))
    if match is None:
        raise ConfigError(
            f"{text!r} is no number of parameters.", hint="Write it as 500k, 10m or 1.3b."
        )
    size = round(float(match[1]) * _UNITS[match[2]])
    if not SMALLEST <= size <= LARGEST:
        raise ConfigError(
            f"{text} parameters are asked for; from {SMALLEST:,} to {LARGEST:,} can be.",
            hint="Write it as 500k, 10m or 1.3b.",
        )
    return size


def shape_for(
    parameters: int,
    vocab_size: int,
    context_length: int = 2048,
    *,
    tie_word_embeddings: bool | None = None,
) -> ModelConfig:
    """A Llama of about `parameters` numbers, the token table included.

    Args:
        parameters: what to hit, within 3 %.
        vocab_size: tokens; the table takes `vocab_size × width` of the parameters.
        context_length: of `max_position_embeddings`; it costs no parameters.
        tie_word_embeddings: whether the head is the table; left out, below 4 billion.

    Raises:
        ConfigError: the vocabulary leaves no room, or no shape comes near enough.
    """
    if type(vocab_size) is not int or vocab_size < 1:
        raise ConfigError(f"vocab_size is {vocab_size!r}; it must be a whole number from 1 on.")
    tied = parameters < _UNTIED_FROM if tie_word_embeddings is None else tie_word_embeddings
    tables = vocab_size * (1 if tied else 2)
    if tables * _NARROW >= parameters:
        raise ConfigError(
            f"{parameters:,} parameters are asked for; a vocabulary of {vocab_size:,} alone takes "
            f"{tables * _NARROW:,}, even at width {_NARROW}.",
            hint=f"Take a vocabulary of {parameters // (2 * _NARROW):,} tokens or less "
            f"(prepare --tokenizer bpe:SIZE), or {2 * _ALIGNED * tables:,} parameters or more.",
        )
    candidates = _candidates(parameters, tables)
    best = min(candidates, key=lambda shape: shape.cost(parameters), default=None)
    if best is None or best.distance(parameters) > TOLERANCE:
        nearest = "" if best is None else f"; the nearest has {best.total:,}"
        raise ConfigError(
            f"no shape with a vocabulary of {vocab_size:,} comes near {parameters:,} "
            f"parameters{nearest}.",
            hint="Take a smaller vocabulary (prepare --tokenizer bpe:SIZE) or more parameters.",
        )
    return ModelConfig(
        vocab_size=vocab_size,
        hidden_size=best.width,
        intermediate_size=best.inner,
        num_hidden_layers=best.layers,
        num_attention_heads=best.width // best.head_dim,
        num_key_value_heads=best.kv_heads,
        head_dim=best.head_dim,
        max_position_embeddings=context_length,
        tie_word_embeddings=tied,
    )


@dataclass(frozen=True)
class _Shape:
    width: int
    layers: int
    inner: int
    head_dim: int
    kv_heads: int
    tables: int

    @property
    def total(self) -> int:
        attention = 2 * self.width * (self.width + self.kv_heads * self.head_dim)
        layer = attention + 3 * self.width * self.inner + 2 * self.width
        return self.layers * layer + self.tables * self.width + self.width

    def distance(self, parameters: int) -> float:
        return abs(self.total / parameters - 1)

    def cost(self, parameters: int) -> tuple[bool, float]:
        """How far it is from what was asked, and from the usual proportions."""
        distance = self.distance(parameters)
        if distance > TOLERANCE:
            return True, distance
        odd_depth = abs(math.log(self.layers / _usual_depth(self.width)))
        odd_inner = abs(math.log(self.inner / (8 * self.width / 3)))
        odd_width = 0.25 if self.width % _ALIGNED else 0.0
        odd_heads = (
            0.15 if self.width >= 512 and self.kv_heads * self.head_dim == self.width else 0.0
        )
        if self.width > 2048 and self.head_dim < 128:
            odd_heads += 0.15
        return False, odd_depth + 2 * odd_inner + 4 * distance + odd_width + odd_heads


def _usual_depth(width: int) -> float:
    return max(2.0, min(width / 32, 32.0), width / 128)


def _candidates(parameters: int, tables: int) -> Iterator[_Shape]:
    """Shapes of every width that the tables leave room for, with up to three times usual depth.

    Where the tables take nearly all, deeper ones too: there, only depth can make up the rest.
    """
    widths = [*range(_NARROW, _ALIGNED, _NARROW), *range(_ALIGNED, 256, 16)]
    widths += range(256, _WIDEST + 1, _ALIGNED)
    for width in widths:
        if width * tables >= parameters:
            break
        usual = _usual_depth(width)
        deepest = math.ceil(usual * (3 if width >= _ALIGNED else 64))
        for layers in range(max(1, math.floor(usual / 3)), deepest + 1):
            if _without_inner(width, layers, tables).total > _FAR_TOO_LARGE * parameters:
                break
            yield from _with_inner_sizes(parameters, tables, width, layers)


def _with_inner_sizes(parameters: int, tables: int, width: int, layers: int) -> Iterator[_Shape]:
    """The usual feed-forward width, and the one that hits the total."""
    step = 64 if width >= 512 else 32 if width >= 128 else 8
    bare = _without_inner(width, layers, tables)
    fitting = (parameters - bare.total) / (3 * width * layers)
    if fitting > (16 if width >= _ALIGNED else 64) * width:
        return
    for inner in (8 * width / 3, fitting):
        rounded = max(step, step * round(inner / step))
        yield replace(bare, inner=rounded)


def _without_inner(width: int, layers: int, tables: int) -> _Shape:
    head_dim = _head_dim(width)
    return _Shape(width, layers, 0, head_dim, _kv_heads(width, width // head_dim), tables)


def _head_dim(width: int) -> int:
    """128 for wide models, 64 for most, less where there would be few heads."""
    if width > 2048 and width % 128 == 0:
        return 128
    if width >= 256:
        return 64
    fitting = [size for size in (32, 16) if width % size == 0 and width >= 2 * size]
    return fitting[0] if fitting else 8


def _kv_heads(width: int, heads: int) -> int:
    """About a third of the heads, as in SmolLM2; narrow models have as many as heads."""
    if width < 512:
        return heads
    fitting = [heads // ratio for ratio in (3, 4, 2) if heads % ratio == 0]
    return fitting[0] if fitting else heads
