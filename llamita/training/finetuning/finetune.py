"""Fine-tuning on chats: DATA of them, a recipe for it, and a run that begins with the model.

The run is one like any other: it lies in its folder with its data, is resumed by the same call,
and its `best/` is what had the lowest validation loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamita.config import ModelConfig
from llamita.data.folder import DataFolder
from llamita.data.prepare import Reporter
from llamita.data.rows import make_rows
from llamita.errors import ConfigError
from llamita.formats.detect import RECIPE
from llamita.tokenizer import Tokenizer
from llamita.tokenizer.chat_ready import never_trained, ready_for_chats
from llamita.tokenizer.chat_templates import built_in_format, format_of
from llamita.training.checkpointing.checkpoints import has_checkpoints
from llamita.training.finetuning.chat_data import (
    DATA_NAME,
    LONGEST_UNASKED,
    Chats,
    context_of,
    prepare_chats,
)
from llamita.training.finetuning.defaults import TABLES, fill_in
from llamita.training.finetuning.resuming import (
    begun_tokenizer,
    check_asked,
    check_model,
    ready_as_begun,
)
from llamita.training.records.manifest import RunManifest
from llamita.training.records.observer import SILENT, Observer
from llamita.training.run import Summary, train
from llamita.training.run_folder import check_free
from llamita.training.settings.recipe import Recipe
from llamita.training.settings.recipe_file import build_recipe, load_recipe
from llamita.training.sources.initial import with_context
from llamita.training.sources.model_source import ModelSource


@dataclass(frozen=True)
class FineTuned:
    """A run of fine-tuning, and what it learned from."""

    summary: Summary
    data: DataFolder
    added_tokens: tuple[str, ...]

    @property
    def trained_parameters(self) -> int:
        """How many numbers were learned: all of the model, or those of the adapters and rows."""
        run = self.summary.run
        lora, shape = load_recipe(run / RECIPE).lora, RunManifest.load(run).shape
        if lora is None or shape is None:
            return self.summary.parameters
        return lora.trained_values(shape)


@dataclass(frozen=True)
class Prepared:
    """A run whose chats lie ready. `recipe`: None goes on as the run was begun."""

    out: Path
    data: DataFolder
    recipe: Recipe | None
    added_tokens: tuple[str, ...] = ()
    must_exist: bool = False

    def train(self, observer: Observer = SILENT) -> FineTuned:
        """Start the run, or go on with it; errors as of `training.run.train`."""
        summary = train(
            self.data.path,
            self.out,
            self.recipe,
            must_exist=self.must_exist,
            beside=(DATA_NAME,),
            observer=observer,
        )
        return FineTuned(summary, self.data, self.added_tokens)


def recipe_for(
    model: Path,
    config: Path | None,
    assignments: Sequence[str],
    flags: dict[str, dict[str, Any]],
) -> Recipe:
    """Settings of a file, of flags and of `--set`, for a run that begins with `model`.

    Raises:
        ConfigError: a setting is unknown or wrong.
    """
    return build_recipe(config, [f"init={model.absolute()}", *assignments], flags, TABLES)


def _steps(epochs: float | None, out: Path) -> int | None:
    """The steps of so many epochs in the run `out`."""
    if epochs is None:
        return None
    batch = load_recipe(out / RECIPE).batch
    data = DataFolder.open(out / DATA_NAME).dataset("train")
    rows = make_rows(data, batch.context_length, "documents").count
    return math.ceil(epochs * rows / (batch.sequences * batch.accumulation))


def prepare_finetuning(
    model: Path,
    chats: Chats,
    out: Path,
    requested: Recipe | None = None,
    *,
    epochs: float | None = None,
    must_exist: bool = False,
    asked: Mapping[str, Any] | None = None,
    chat_format: str | None = None,
    reporter: Reporter | None = None,
) -> Prepared:
    """Make everything ready for learning from chats in the run `out`.

    Args:
        model: to begin with, in any format; not read any more once something is saved.
        requested: what `recipe_for` gives; None: the defaults, or those of a run that exists, with
            which its chats were prepared as well.
        epochs: how often to read the chats, in place of a length in the recipe.
        must_exist: refuse to start anew.
        asked: of `requested` what the caller named: a run that exists is compared with that alone.
        chat_format: what a model without a chat template learns, one of `BUILT_IN`; None: that of a
            run that exists, or `DEFAULT_FORMAT`.
        reporter: hears about it.

    Raises:
        LlamitaError: a chat or a setting is wrong, or the folder holds something else.
    """
    reporter = reporter or Reporter()
    if chat_format is not None:
        built_in_format(chat_format)
    exists = (out / RECIPE).is_file()
    if must_exist and not exists:
        train(None, out, must_exist=True)  # says what is missing
    is_saved = exists and has_checkpoints(out / "checkpoints")
    source = ModelSource.open(str(model), "init") if model.exists() or not is_saved else None
    if exists and (requested is None or is_saved):
        check_model(out, model, source)
    begun = begun_tokenizer(out, chat_format) if exists else None
    if is_saved and asked is not None:
        changed = check_asked(out, asked, chats, epochs, _steps(epochs, out))
        chats = chats.as_prepared(out)
        requested = epochs = None
    else:
        changed = None
    if source is None:
        reporter.say(f"{model} is not there any more: going on from what the run has saved")
        return Prepared(out, DataFolder.open(out / DATA_NAME), changed, must_exist=True)
    if not exists and out.is_dir():
        check_free(out, (DATA_NAME,))
    if exists and requested is None:
        chats = chats.as_prepared(out)
    wanted = requested or recipe_for(model, None, [], {})
    if epochs is not None and (not epochs > 0 or "length" in wanted.model_fields_set):
        length = ", and the recipe has a length of its own" if epochs > 0 else ""
        raise ConfigError(
            f"--epochs is {epochs:g}{length}.", hint="Give one number above 0: how long to train."
        )
    config = source.checkpoint.config
    chats, wanted = _with_context(chats, wanted, config, reporter)
    tokenizer, added = _tokenizer(source.tokenizer, chat_format, begun, reporter)
    folder = prepare_chats(chats, out, tokenizer, config, reporter)
    recipe = changed
    if requested is not None or not exists:
        if wanted.lora is not None:
            added_ids = range(source.tokenizer.vocab_size, tokenizer.vocab_size)
            ids = {*added_ids, *never_trained(source.tokenizer, tokenizer)}
            tokens = tuple(sorted({*wanted.lora.tokens, *ids}))
            lora = wanted.lora.model_copy(update={"tokens": tokens})
            wanted = wanted.model_copy(update={"lora": lora})
        context = context_of(chats, folder, config)
        rows = make_rows(folder.dataset("train"), context, "documents").count
        recipe = fill_in(wanted, config, context, rows, epochs)
        if recipe.watch.patience and not folder.manifest.val.documents:
            reporter.say("nothing is held out, so --patience has nothing to go by: all steps run")
    return Prepared(out, folder, recipe, added, must_exist)


def _with_context(
    chats: Chats, recipe: Recipe, config: ModelConfig, reporter: Reporter
) -> tuple[Chats, Recipe]:
    """Chats and recipe with the same context, if any is asked for; the model must reach so far."""
    is_set = "context_length" in recipe.batch.model_fields_set
    asked = recipe.batch.context_length if is_set else None
    if chats.context is not None and asked is not None and asked != chats.context:
        raise ConfigError(
            f"--context is {chats.context}, and batch.context_length is {asked}.",
            hint="Give one of them.",
        )
    context = chats.context or asked
    own = config.max_position_embeddings
    if context is None:
        if own > LONGEST_UNASKED:
            reporter.say(
                f"the model has positions for {own:,} tokens; conversations of up to "
                f"{LONGEST_UNASKED:,} are taken (--context takes longer ones)"
            )
        return chats, recipe
    if context < 2:
        raise ConfigError(f"--context is {context}; it must be at least 2.")
    batch = recipe.batch.model_copy(update={"context_length": context})
    recipe = recipe.model_copy(update={"batch": batch})
    with_context(recipe, config.with_changes(**recipe.shape_fields))
    if context > own:
        reporter.say(f"a context of {context:,} tokens, longer than the model's own ({own:,})")
    return replace(chats, context=context), recipe


def _tokenizer(
    own: Tokenizer, chat_format: str | None, begun: Tokenizer | None, reporter: Reporter
) -> tuple[Tokenizer, tuple[str, ...]]:
    """The model's tokenizer, ready for chats as that of a run that is `begun` is, and the control
    tokens that it got for them."""
    if begun is None or own.chat_template is not None:
        able = ready_for_chats(own, chat_format)
    else:
        able = ready_as_begun(own, begun)
    if able.chat_template is not None and own.chat_template is None:
        learns = format_of(able.chat_template) or "what the run was begun with"
        reporter.say(f"the model has no chat template: it learns {learns}")
    added = tuple(name for name in able.special_tokens if name not in own.special_tokens)
    if added:
        reporter.say(f"control tokens that its tokenizer lacked: {', '.join(added)}")
    return able, added
