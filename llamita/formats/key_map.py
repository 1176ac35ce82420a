"""The tables that say how a foreign layout names and arranges the tensors of the one model.

A table is a tuple of `Rule`s and serves both ways: `map_to_native` reads by it, `map_to_foreign`
writes by it. `{layer}` stands for the layer's number.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError
from llamita.formats.stored import StoredTensor, concatenate

_LAYER = re.compile(r"\.(0|[1-9][0-9]{0,6})\.")
_MOST_SHOWN = 10


class Transform(Protocol):
    """How one foreign tensor and the native tensors that it holds become each other."""

    def to_native(self, foreign: StoredTensor, config: ModelConfig) -> list[StoredTensor]:
        """The native tensors, in the order of the rule. ValueError: the shape cannot be."""

    def to_foreign(self, natives: Sequence[StoredTensor], config: ModelConfig) -> StoredTensor:
        """The foreign tensor made of the native ones."""


class Same:
    """The numbers as they are."""

    def to_native(self, foreign: StoredTensor, config: ModelConfig) -> list[StoredTensor]:
        return [foreign]

    def to_foreign(self, natives: Sequence[StoredTensor], config: ModelConfig) -> StoredTensor:
        [native] = natives
        return native


SAME = Same()


@dataclass(frozen=True)
class InterleavedHeads:
    """Rows (of a weight or a bias) whose rotary pairs are neighbours, where llamita splits halves.

    heads: the config's field that counts this projection's heads. Grouped-query models have fewer
        key than query heads, and a permutation by the wrong count garbles the model.
    """

    heads: str

    def to_native(self, foreign: StoredTensor, config: ModelConfig) -> list[StoredTensor]:
        heads = self._heads(foreign, config)
        return [foreign.then_rows(lambda rows: halves_from_pairs(rows, heads))]

    def to_foreign(self, natives: Sequence[StoredTensor], config: ModelConfig) -> StoredTensor:
        [native] = natives
        heads = self._heads(native, config)
        return native.then_rows(lambda rows: pairs_from_halves(rows, heads))

    def _heads(self, tensor: StoredTensor, config: ModelConfig) -> int:
        heads: int = getattr(config, self.heads)
        if not tensor.shape or tensor.shape[0] % (2 * heads):
            raise ValueError(f"its rows are no pairs for {heads} heads ({self.heads})")
        return heads


@dataclass(frozen=True)
class JoinedQKV:
    """Queries, keys and values one under the other in a single matrix."""

    def to_native(self, foreign: StoredTensor, config: ModelConfig) -> list[StoredTensor]:
        sizes = self._sizes(config)
        if not foreign.shape or foreign.shape[0] != sum(sizes):
            raise ValueError(f"it must have {sum(sizes)} rows: {sizes} of queries, keys and values")
        natives, start = [], 0
        for size in sizes:
            natives.append(_rows(foreign, start, size))
            start += size
        return natives

    def to_foreign(self, natives: Sequence[StoredTensor], config: ModelConfig) -> StoredTensor:
        return concatenate(natives, dim=0)

    @staticmethod
    def _sizes(config: ModelConfig) -> list[int]:
        heads = (config.num_attention_heads, *(2 * [config.num_key_value_heads]))
        return [count * config.head_dim for count in heads]


@dataclass(frozen=True)
class Rule:
    """One foreign tensor and the native ones it holds (mostly one)."""

    native: str | tuple[str, ...]
    foreign: str
    transform: Transform = SAME

    @property
    def natives(self) -> tuple[str, ...]:
        """The native names as a tuple, whether one or several."""
        return (self.native,) if isinstance(self.native, str) else self.native


def map_to_native(
    rules: Sequence[Rule],
    tensors: Mapping[str, StoredTensor],
    config: ModelConfig,
    source: Path,
    ignored: Collection[str] = (),
) -> dict[str, StoredTensor]:
    """The tensors of a foreign file under HuggingFace's names.

    Args:
        ignored: foreign names, with `{layer}`, that carry nothing and are dropped.

    Raises:
        CheckpointError: a name is in no rule, or a shape cannot be what the rule says.
    """
    by_foreign = {rule.foreign: rule for rule in rules}
    natives: dict[str, StoredTensor] = {}
    unknown = []
    for name, tensor in tensors.items():
        pattern, layer = _split_layer(name)
        if pattern in ignored:
            continue
        rule = by_foreign.get(pattern)
        if rule is None:
            unknown.append(name)
            continue
        try:
            made = rule.transform.to_native(tensor, config)
        except ValueError as reason:
            raise CheckpointError(
                f"{name} in {source} has the shape {list(tensor.shape)}; {reason}."
            ) from reason
        for native, value in zip(rule.natives, made, strict=True):
            natives[native.format(layer=layer)] = value
    if unknown:
        raise CheckpointError(
            f"{source} holds tensors that have no place in such a model: {listing(unknown)}."
        )
    return natives


def map_to_foreign(
    rules: Sequence[Rule], tensors: Mapping[str, StoredTensor], config: ModelConfig
) -> dict[str, StoredTensor]:
    """The model's tensors under a foreign layout's names, arranged as it has them.

    Raises:
        ConfigError: the layout has no place for some of them.
    """
    foreign: dict[str, StoredTensor] = {}
    used: set[str] = set()
    layered = [rule for rule in rules if "{layer}" in rule.foreign]
    plan = [(rule, 0) for rule in rules if rule not in layered]
    plan += [(rule, layer) for layer in range(config.num_hidden_layers) for rule in layered]
    for rule, layer in plan:
        names = [native.format(layer=layer) for native in rule.natives]
        if any(name in tensors for name in names):
            parts = [tensors[name] for name in names]
            foreign[rule.foreign.format(layer=layer)] = rule.transform.to_foreign(parts, config)
            used.update(names)
    left = [name for name in tensors if name not in used]
    if left:
        raise ConfigError(f"the layout has no place for {listing(left)}.")
    return foreign


def halves_from_pairs(rows: Tensor, heads: int) -> Tensor:
    """Rows [heads * D, …] with rotary pairs side by side, as llamita has them: first halves first.

    Each head's rows (0, 1, 2, 3, …) become (0, 2, …, 1, 3, …).
    """
    rest = rows.shape[1:]
    return rows.reshape(heads, -1, 2, *rest).transpose(1, 2).reshape(rows.shape)


def pairs_from_halves(rows: Tensor, heads: int) -> Tensor:
    """The inverse of `halves_from_pairs`."""
    rest = rows.shape[1:]
    return rows.reshape(heads, 2, -1, *rest).transpose(1, 2).reshape(rows.shape)


def _rows(tensor: StoredTensor, start: int, count: int) -> StoredTensor:
    return tensor.then(lambda rows: rows[start : start + count], (count, *tensor.shape[1:]))


def _split_layer(name: str) -> tuple[str, int]:
    """`layers.3.norm` as (`layers.{layer}.norm`, 3); a name without a number has layer 0."""
    match = _LAYER.search(name)
    if match is None:
        return name, 0
    return f"{name[: match.start(1)]}{{layer}}{name[match.end(1) :]}", int(match[1])


def listing(names: Sequence[str]) -> str:
    """Up to ten names, and how many more there are."""
    more = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
