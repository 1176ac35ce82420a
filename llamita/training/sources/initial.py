"""Going on from a model: `llamita train DATA -o RUN --init MODEL`.

The shape is the model's; the tables follow the data's tokenizer (see `token_rows`). From there on
the run is like any other: its checkpoints hold everything, and the model is not read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llamita.config import ModelConfig
from llamita.errors import ConfigError, TrainingError
from llamita.formats.checkpoint import EMBEDDING, HEAD, strip_wrappers
from llamita.model import Transformer
from llamita.model.sharded import put
from llamita.tokenizer import Tokenizer
from llamita.tokenizer.chat_ready import never_trained
from llamita.tokenizer.ends import end_ids
from llamita.training.settings.recipe import Recipe
from llamita.training.sources.model_source import ModelSource, longest_context
from llamita.training.sources.token_rows import Relation, TokenRows, plan_rows

# What may differ from the model: how it is trained, and how far its positions reach.
_FREE = frozenset(
    {
        "attention_dropout",
        "residual_dropout",
        "initializer_range",
        "max_position_embeddings",
        "rope_theta",
        "rope_scaling",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
    }
)


@dataclass(frozen=True)
class InitialModel:
    """The model a run begins with, checked and not built yet.

    Attributes:
        config: its shape for the run, the vocabulary that of the data.
        rows: what becomes of its token rows.
        source, path, fingerprint: of the model it comes from.
    """

    config: ModelConfig
    rows: TokenRows
    fingerprint: str
    source: ModelSource
    path: Path

    @classmethod
    def open(cls, recipe: Recipe, tokenizer: Tokenizer) -> InitialModel:
        """Read what `recipe.init` names and fit it to the data's tokenizer.

        Raises:
            LlamitaError: there is no such model, it is not the one that the recipe was written
                for, settings contradict its shape, or its vocabulary shares nothing with the
                data's.
        """
        if recipe.init is None:
            raise ValueError("the recipe names no model to begin with")
        source = ModelSource.open(recipe.init, "init")
        rows = plan_rows(source.tokenizer, tokenizer)
        rows = rows.renewed(never_trained(source.tokenizer, tokenizer))
        if rows.shared == 0:
            raise TrainingError(
                f"the tokenizer of {recipe.init} and the data's have no token in common.",
                hint=f"Prepare the data with the model's: prepare TEXT --tokenizer {recipe.init}",
            )
        config = _run_config(recipe, source, tokenizer, rows)
        fingerprint = source.checked_fingerprint(
            recipe.init_fingerprint, "init", "init_fingerprint"
        )
        return cls(config, rows, fingerprint, source, Path(recipe.init))

    @property
    def settled(self) -> dict[str, str]:
        """What stands in the recipe of the run, so that it can be replayed from any folder."""
        return {"init": str(self.path.absolute()), "init_fingerprint": self.fingerprint}

    def build(self) -> Transformer:
        """The model in float32, its memory its own: the file may go while it trains."""
        with torch.device("meta"):
            model = Transformer(self.config)
        for name, values in self._weights():
            values = values.to(torch.float32, copy=name not in (EMBEDDING, HEAD)).contiguous()
            owner, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(owner), leaf, torch.nn.Parameter(values))
        if self.config.tie_word_embeddings:
            model.lm_head.weight = model.model.embed_tokens.weight
        return model

    @torch.no_grad()
    def fill(self, model: Transformer) -> None:
        """Give a model of this shape the same numbers, each parameter or this rank's part of it.

        One tensor is read after the other; of a file that is memory-mapped, little more than the
        part that is kept.
        """
        parameters = {strip_wrappers(name): p for name, p in model.named_parameters()}
        for name, values in self._weights():
            put(parameters[name], values)

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by name, in its own type; the tables for the data's tokens, in float32."""
        for name, stored in self.source.checkpoint.tensors.items():
            is_table = name in (EMBEDDING, HEAD)
            yield name, self.rows.apply(stored.read()) if is_table else stored.read()


def check_unchanged(recipe: Recipe, requested: Recipe | None) -> None:
    """Refuse to go on with a run by a command that names a model which has changed since.

    Where it is gone there is nothing to mistake: a run that has begun does not need it.

    Raises:
        TrainingError: the model is not the one the run was begun with.
    """
    if requested is None or requested.init is None or not Path(requested.init).exists():
        return
    source = ModelSource.open(requested.init, "init")
    if source.fingerprint() != recipe.init_fingerprint:
        raise TrainingError(
            f"the run was begun with {requested.init}, which has changed since.",
            hint="Leave --init out to go on with the run as it was begun, or begin a new one from "
            "this model with another -o.",
        )


def _run_config(
    recipe: Recipe, source: ModelSource, tokenizer: Tokenizer, rows: TokenRows
) -> ModelConfig:
    checkpoint = source.checkpoint
    config = checkpoint.with_end_ids(checkpoint.end_ids).config
    size = rows.table_size(config.vocab_size)
    config = config.with_changes(
        vocab_size=size, **_token_ids(config, source.tokenizer, tokenizer, rows.relation)
    )
    settings = recipe.shape_fields
    _refuse_contradictions(recipe, config, settings)
    config = config.with_changes(**settings)
    return with_context(recipe, config)


def _token_ids(
    config: ModelConfig, old: Tokenizer, new: Tokenizer, relation: Relation
) -> dict[str, Any]:
    """The model's own ids where they stand for the same tokens, else the data's."""
    of_data = {
        "bos_token_id": new.bos_token_id,
        "eos_token_id": new.eos_token_id,
        "pad_token_id": new.pad_token_id,
    }
    if relation == "other":
        return {**of_data, "eos_token_id": with_turn_ends(new.eos_token_id, new)}
    ids: dict[str, Any] = {
        name: getattr(config, name) if getattr(config, name) is not None else token_id
        for name, token_id in of_data.items()
    }
    ends = config.eos_token_ids
    if relation == "extended" and new.eos_token_id not in (None, old.eos_token_id, *ends):
        ids["eos_token_id"] = (*ends, new.eos_token_id)
    return {**ids, "eos_token_id": with_turn_ends(ids["eos_token_id"], new)}


def with_turn_ends(
    ends: int | tuple[int, ...] | None, tokenizer: Tokenizer
) -> int | tuple[int, ...] | None:
    """A model's ends of texts and, where its tokenizer knows chats, what ends a turn of them.

    So whoever reads its config alone stops where training ended turns.
    """
    if tokenizer.chat_template is None:
        return ends
    known = (ends,) if isinstance(ends, int) else ends or ()
    every = tuple(dict.fromkeys([*known, *end_ids(tokenizer)]))
    return every if len(every) > 1 else next(iter(every), None)


def _refuse_contradictions(recipe: Recipe, config: ModelConfig, settings: dict[str, Any]) -> None:
    wrong = [
        f"model.{name} is {value!r}, there it is {getattr(config, name)!r}"
        for name, value in settings.items()
        if name not in _FREE and value != getattr(config, name)
    ]
    if wrong:
        raise ConfigError(
            f"init is {recipe.init}, whose shape the run takes: {'; '.join(wrong)}.",
            hint="Leave these settings out to go on from it, or --init to train from scratch.",
        )
    shorter = settings.get("max_position_embeddings", config.max_position_embeddings)
    if isinstance(shorter, int) and shorter < config.max_position_embeddings:
        raise ConfigError(
            f"model.max_position_embeddings is {shorter}, less than the "
            f"{config.max_position_embeddings} of {recipe.init}.",
            hint=f"To train on shorter rows, set batch.context_length={shorter} instead.",
        )


def with_context(recipe: Recipe, config: ModelConfig) -> ModelConfig:
    """Let the context be as long as the batch's, where the model's positions reach so far."""
    wanted, known = recipe.batch.context_length, config.max_position_embeddings
    if wanted <= known:
        return config
    if wanted > longest_context(config):
        stretched = (
            f'{{"rope_type": "yarn", "factor": {-(-wanted // known)}, '
            f'"original_max_position_embeddings": {known}}}'
        )
        raise ConfigError(
            f"batch.context_length is {wanted}; {recipe.init} has positions for "
            f"{longest_context(config)} (max_position_embeddings).",
            hint=f"Train on --set batch.context_length={known} or less, or have it learn longer "
            f"ones: --set model.max_position_embeddings={wanted} --set 'model.rope_scaling="
            f"{stretched}'",
        )
    if config.rope_type == "dynamic":
        return config  # its angles depend on max_position_embeddings, and reach further as it is
    scaling = dict(config.rope_scaling or {})
    if config.rope_type == "yarn":
        scaling.setdefault("original_max_position_embeddings", known)
    return config.with_changes(max_position_embeddings=wanted, rope_scaling=scaling)
