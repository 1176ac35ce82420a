"""Whether a call of `llamita finetune` is for the run that is there: what it names is compared, and
what it leaves out stays as the run was begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llamita.data.folder import DataFolder
from llamita.errors import TrainingError
from llamita.tokenizer import Tokenizer
from llamita.tokenizer.chat_templates import format_of
from llamita.training.finetuning.chat_data import DATA_NAME, Chats, settings_of
from llamita.training.records.manifest import RunManifest
from llamita.training.settings.recipe import Recipe
from llamita.training.settings.recipe_file import parse_recipe
from llamita.training.settings.settling import CHANGEABLE
from llamita.training.sources.model_source import ModelSource


def check_model(out: Path, model: Path, source: ModelSource | None) -> None:
    """Refuse another model than the run was begun with; `source`: None where it is gone.

    Raises:
        TrainingError: it is another one, or has changed.
    """
    settled = RunManifest.load(out).settled
    former, fingerprint = settled.get("init"), settled.get("init_fingerprint")
    if former is None:
        return
    is_path = model.absolute() == Path(former)
    if is_path if source is None else source.fingerprint() == fingerprint:
        return
    what = "which has changed since" if is_path else f"not with {model}"
    raise TrainingError(
        f"{out} was begun with {former}, {what}.",
        hint="Give the model it was begun with to go on, or another -o to begin with this one.",
    )


def begun_tokenizer(out: Path, chat_format: str | None) -> Tokenizer | None:
    """The tokenizer, ready for chats, that the run in `out` was begun with; None: no chats
    lie there.

    Raises:
        TrainingError: it is not for the `chat_format` that is asked for.
        LlamitaError: it is damaged.
    """
    if settings_of(out) is None:
        return None
    tokenizer = DataFolder.open(out / DATA_NAME).tokenizer
    if tokenizer.chat_template is None:
        return None
    begun = format_of(tokenizer.chat_template)
    if chat_format not in (None, begun):
        former = begun or "the model's own"
        raise _differs(out, [f"--chat-format was {former} and is now {chat_format}"])
    return tokenizer


def ready_as_begun(own: Tokenizer, begun: Tokenizer) -> Tokenizer:
    """The model's tokenizer with the chat template and the control tokens that it got when the run
    was begun, whatever a chat format of that name has today."""
    assert begun.chat_template is not None
    return own.with_control_tokens([*begun.special_tokens]).with_chat_template(begun.chat_template)


def check_asked(
    out: Path, asked: Mapping[str, Any], chats: Chats, epochs: float | None, steps: int | None
) -> Recipe | None:
    """Compare what a call asks for with the run, and give back what it may change; None: nothing.

    Args:
        asked: the settings by table that the call names itself.
        steps: what `epochs` come to, if they are given.

    Raises:
        TrainingError: naming each difference.
    """
    recorded = RunManifest.load(out)
    found = chats.differences(out)
    changed: dict[str, dict[str, Any]] = {}
    for name, value in _flat(asked):
        table, _, key = name.partition(".")
        if key in CHANGEABLE.get(table, ()):
            changed.setdefault(table, {})[key] = value
            continue
        before = [_at(recorded.requested, name), _at(recorded.settled, name)]
        if table not in ("init", "init_fingerprint", "data") and value not in before:
            old = before[1] if before[0] in (None, "auto") else before[0]
            found.append(f"{name} was {old!r} and is now {value!r}")
    length = recorded.settled.get("length", {}).get("steps")
    if steps is not None and steps != length:
        found.append(f"length.steps was {length} and is now {steps} (--epochs {epochs:g})")
    if found:
        raise _differs(out, found)
    return parse_recipe(dict(changed), "the command line") if changed else None


def _differs(out: Path, found: Sequence[str]) -> TrainingError:
    return TrainingError(
        f"{out} was begun with other settings: {'; '.join(found)}.",
        hint="Leave these out to go on as it was begun, or start a new run with another -o.",
    )


def _flat(tables: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in tables.items():
        if isinstance(value, Mapping) and prefix.count(".") < 1:
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found


def _at(tables: Mapping[str, Any], name: str) -> Any:
    value: Any = tables
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
