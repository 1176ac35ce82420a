"""Recipes in TOML or JSON: read, put together with the command line, written in TOML.

`RUN/recipe.toml` holds the settings a run was made with, with nothing left open (the step count,
precision and compilation that were decided at its start stand there), so it can be replayed.
"""

from __future__ import annotations

import json
import sys
import typing
from pathlib import Path
from typing import Any

import pydantic
import tomli_w

from llamita.errors import ConfigError
from llamita.files import atomic_write_text, parse_json
from llamita.training.settings.recipe import WHOLE_SHAPES, Recipe, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write as TOML; settings that are not set are left out."""
    atomic_write_text(path, tomli_w.dumps(recipe.model_dump(exclude_none=True)))


def load_recipe(path: Path) -> Recipe:
    """Read a recipe in TOML, or in JSON, as `llamita plan --json` prints it.

    Raises:
        ConfigError: the file is missing, neither of the two, or a setting is unknown or wrong.
    """
    return parse_recipe(_read_settings(path), str(path))


def build_recipe(
    config: Path | None,
    assignments: list[str],
    flags: dict[str, dict[str, Any]],
    defaults: dict[str, dict[str, Any]] | None = None,
) -> Recipe:
    """Settings from a file, then the command's flags, then `--set table.key=value`, later first.

    `defaults` stand behind all of them, in place of a recipe's own. What the command says of where
    the model comes from replaces all that the file says of it.

    Raises:
        ConfigError: a setting is unknown or wrong.
    """
    values = asked_settings(config, assignments, flags, defaults)
    return parse_recipe(values, "the command line" if config is None else str(config))


def asked_settings(
    config: Path | None,
    assignments: list[str],
    flags: dict[str, dict[str, Any]],
    defaults: dict[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """What `build_recipe` checks: the settings that are named, by table."""
    values = {} if config is None else _read_settings(config)
    for table, settings in (defaults or {}).items():
        own = values.get(table, {})
        values[table] = {**settings, **own} if isinstance(own, dict) else own
    _leave_out_replaced(values, assignments, flags.get("model", {}))
    for table, settings in flags.items():
        if table == "length" and settings:
            values["length"] = dict(settings)
        elif settings:
            values[table] = {**values.get(table, {}), **settings}
    for assignment in assignments:
        _assign(values, assignment)
    return values


def parse_recipe(values: dict[str, Any], source: str) -> Recipe:
    """Check a table of settings; the first wrong one is the error, with the nearest right name."""
    try:
        return Recipe.model_validate(values)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{source}: {_explain(error)}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; ValueError where it is none."""
    tables: dict[str, Any] = tomllib.loads(text)
    return tables


def _read_settings(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, or of a JSON object (TOML cannot begin with a brace): the recipe
    itself, or a plan, which has one."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if not text.lstrip().startswith("{"):
            return parse_toml(text)
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {path}.") from None
    except (OSError, ValueError) as cause:
        raise ConfigError(f"cannot read {path} as TOML: {cause}.") from cause
    values = parse_json(text, path, ConfigError)
    recipe = values.get("recipe", values)
    if not isinstance(recipe, dict):
        raise ConfigError(f"{path}: recipe is no table of settings.")
    return recipe


def _leave_out_replaced(
    values: dict[str, Any], assignments: list[str], model_flags: dict[str, Any]
) -> None:
    """Take out of a file's settings the shape, or the model, that the command replaces, and the
    hash of a model that it names anew."""
    pairs = [assignment.partition("=") for assignment in assignments]
    named = {key.strip() for key, _, text in pairs if text.strip() != "null"}
    named |= {f"model.{name}" for name in model_flags}
    gives_shape = any(f"model.{name}" in named for name in WHOLE_SHAPES)
    if gives_shape or "init" in named:
        values.pop("init", None)
        values.pop("init_fingerprint", None)
        if isinstance(values.get("model"), dict):
            kept = {k: v for k, v in values["model"].items() if k not in WHOLE_SHAPES}
            values["model"] = kept
    if "teacher.model" in named and isinstance(values.get("teacher"), dict):
        values["teacher"].pop("fingerprint", None)


def _assign(values: dict[str, Any], assignment: str) -> None:
    key, separator, text = assignment.partition("=")
    if not separator or not key:
        raise ConfigError(f"--set {assignment!r} is not of the form table.key=value.")
    *tables, name = key.strip().split(".")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    target = values
    for table in tables:
        target = target.setdefault(table, {})
        if not isinstance(target, dict):
            raise ConfigError(f"--set {assignment!r}: {table!r} is a setting, not a table.")
    if name in ("steps", "tokens", "minutes") and tables == ["length"]:
        target.clear()
    target[name] = value


def _explain(error: pydantic.ValidationError) -> str:
    problem = error.errors()[0]
    place = [str(part) for part in problem["loc"]]
    name = ".".join(place)
    if problem["type"] == "extra_forbidden":
        return f"there is no setting {name!r}{nearest(place[-1], _settings_of(place[:-1]))}."
    message = problem["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(problem["input"], (dict, Recipe)) else f" is {problem['input']!r}"
    return f"{name}{shown}: {message}." if name else f"{message}."


def _settings_of(place: list[str]) -> list[str]:
    table: type[pydantic.BaseModel] = Recipe
    for part in place:
        if part in table.model_fields:  # else a number in a list of tables
            table = _table_in(table.model_fields[part].annotation)
    return list(table.model_fields)


def _table_in(annotation: Any) -> type[pydantic.BaseModel]:
    """The table of settings in an annotation such as `Table`, `Table | None`, `tuple[Table, …]`."""
    kinds = [annotation, *typing.get_args(annotation)]
    tables = [
        kind for kind in kinds if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)
    ]
    return tables[0]
