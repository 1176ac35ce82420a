"""A plan in words: what it is, and plainly where the text or the time is too small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llamita.training.memory.room import free_disk, gigabytes
from llamita.training.planning.forecast import shipped_runs
from llamita.training.planning.plan import Plan
from llamita.training.planning.shapes import CONTEXT_LENGTH

_WORTH_LESS_FROM = 4.0  # readings: up to there new text would hardly be better (arXiv:2305.16264)
_HARDLY_READ = 0.5  # of the text
_HARDLY_BEGUN = 100  # steps
_FAR = 30.0  # times the pilot's tokens


def notes(plan: Plan) -> list[str]:
    """What a person should know before the time is spent."""
    parts = (_of_text, _of_small_text, _of_time, _of_room, _of_pilot, _of_disk)
    return [note for note in (part(plan) for part in parts) if note]


def _of_text(plan: Plan) -> str | None:
    epochs = plan.training.epochs
    if plan.steps < plan.most_steps:
        return (
            f"The text is too small for this time: from {epochs:.1f} readings on a model of this "
            f"size learns it by heart, so the run ends after {spell_seconds(plan.seconds)} of "
            f"{spell_seconds(plan.budget_seconds)}. Only more text makes the model better."
        )
    if epochs > _WORTH_LESS_FROM:
        worth = plan.effective_tokens / plan.training.tokens
        return (
            f"The text is small for this time: it is read {epochs:.1f} times, which is worth "
            f"{worth:.0%} of as much new text. More text would help; keep RUN/best, as a "
            "model may begin to learn the text by heart."
        )
    return None


def _of_small_text(plan: Plan) -> str | None:
    smallest = min(run["unique_tokens"] for run in shipped_runs())
    if plan.training.unique_tokens >= smallest:
        return None
    return (
        f"The text has {plan.training.unique_tokens:,.0f} tokens, fewer than any that forecasts "
        f"were fitted to ({smallest:,}): its own is a guess. Keep RUN/best, which may be better "
        "than the end of the run."
    )


def _of_time(plan: Plan) -> str | None:
    epochs = plan.training.epochs
    if plan.steps == plan.most_steps and plan.steps < _HARDLY_BEGUN:
        return (
            f"The time is too small: {plan.steps} steps hardly begin to train a model. "
            f"{_HARDLY_BEGUN} would take {spell_seconds(plan.step_seconds * _HARDLY_BEGUN)}."
        )
    if epochs < _HARDLY_READ:
        return (
            f"The time is small for this text: {epochs:.0%} of it is read. Reading all of it once "
            f"would take this model {spell_seconds(plan.seconds / epochs)}."
        )
    return None


def _of_room(plan: Plan) -> str | None:
    if not plan.candidate.is_capped:
        return None
    return (
        "A smaller model is forecast to end lower, but with more tokens than the forecasts know: "
        "so this one was taken by the rule that a model has room for so many tokens a parameter."
    )


def _of_disk(plan: Plan) -> str | None:
    room = free_disk(Path())
    if plan.disk_bytes <= room.bytes:
        return None
    return (
        f"The run needs {gigabytes(plan.disk_bytes)} of disk, where {gigabytes(room.bytes)} are "
        f"{room.where}: keep RUN on another, or make room."
    )


def _of_pilot(plan: Plan) -> str | None:
    reach = plan.training.tokens / plan.pilot.tokens
    if reach < _FAR:
        return None
    return (
        f"The forecast reaches {reach:,.0f} times beyond what was measured: take its range at its "
        "word."
    )


def describe(plan: Plan) -> list[tuple[str, str]]:
    """The plan as rows of a name and what it is."""
    config, recipe = plan.candidate.shape.config, plan.candidate.recipe
    pilot, forecast = plan.pilot, plan.forecast
    return [
        (
            "model",
            f"{plan.parameters:,} parameters: {config.num_hidden_layers} layers, width "
            f"{config.hidden_size}, vocabulary {config.vocab_size:,}, context {CONTEXT_LENGTH}",
        ),
        (
            "training",
            f"{plan.training.tokens:,.0f} tokens, {plan.training.epochs:.2f} times the text, in "
            f"{plan.steps:,} steps of {recipe.tokens_per_step:,}",
        ),
        (
            "learning rate",
            f"{recipe.optimizer.learning_rate} (Muon; warm up, stay, decay), in "
            f"{recipe.machine.precision}, compilation {recipe.machine.compile}",
        ),
        ("memory", f"{plan.ram_bytes / 1e9:.1f} GB, on the disk {plan.disk_bytes / 1e9:.2f} GB"),
        ("time", spell_seconds(plan.seconds)),
        (
            "bits per byte",
            f"{forecast.bits_per_byte:.2f} on held-out text, most likely between "
            f"{forecast.low:.2f} and {forecast.high:.2f}",
        ),
        (
            "measured",
            f"a pilot of {pilot.config.count_parameters():,} parameters reached "
            f"{pilot.bits_per_byte:.2f} after {pilot.tokens:,} tokens",
        ),
    ]


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan for programs; `recipe` is what `train --config` takes."""
    recipe = plan.candidate.recipe
    return {
        "parameters": plan.parameters,
        "tokens": int(plan.training.tokens),
        "steps": plan.steps,
        "seconds": round(plan.seconds, 1),
        "ram_gb": round(plan.ram_bytes / 1e9, 3),
        "disk_gb": round(plan.disk_bytes / 1e9, 4),
        "bits_per_byte": round(plan.forecast.bits_per_byte, 4),
        "bits_per_byte_low": round(plan.forecast.low, 4),
        "bits_per_byte_high": round(plan.forecast.high, 4),
        "epochs": round(plan.training.epochs, 3),
        "tokens_per_step": recipe.tokens_per_step,
        "learning_rate": recipe.optimizer.learning_rate,
        "tokens_per_second": round(recipe.tokens_per_step / plan.step_seconds, 1),
        "pilot": {
            "parameters": plan.pilot.config.count_parameters(),
            "tokens": plan.pilot.tokens,
            "bits_per_byte": plan.pilot.bits_per_byte,
        },
        "notes": notes(plan),
        "recipe": recipe.model_dump(mode="json", exclude_none=True, exclude_unset=True),
    }


def spell_seconds(seconds: float) -> str:
    """`2 h 05 min`, `6 min 03 s`, `45 s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"
