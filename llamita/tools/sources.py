"""Where tools come from: a Python file, or those built in."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType
from typing import Any

from llamita.errors import ToolError
from llamita.files.reading import check_plain_file
from llamita.tools.builtin import BUILT_IN, builtin_tools
from llamita.tools.tool import Tool

_PREFIX = "builtin"


def load_tools(spec: str | PathLike[str]) -> list[Tool]:
    """The tools that `Toolbox.load` names.

    Raises:
        ToolError: there are none.
    """
    text = fspath(spec)
    name, _, rest = text.partition(":")
    if name == _PREFIX:
        return builtin_tools(rest.split(",") if rest else None)
    if not text.endswith(".py"):
        raise ToolError(
            f"the tools are given as {text!r}.",
            hint=f"Give a Python file, {_PREFIX!r}, or some of those built in: "
            f"{_PREFIX}:{','.join(BUILT_IN)}.",
        )
    return _of_file(Path(text))


def _of_file(path: Path) -> list[Tool]:
    check_plain_file(path, ToolError)
    module = _run(path.resolve())
    tools = []
    for name, value in _public(module, path):
        if isinstance(value, Tool):
            tools.append(value)
            continue
        try:
            tools.append(Tool.of(value))
        except ToolError as error:
            raise ToolError(
                f"{path}: {error.message}",
                hint=f"{error.hint or ''} A function that is no tool begins with an underscore: "
                f"_{name}.".strip(),
            ) from error
    if not tools:
        raise ToolError(
            f"{path} has no public function.",
            hint="Each function whose name does not begin with an underscore is a tool.",
        )
    return tools


def _run(path: Path) -> ModuleType:
    name = f"llamita_tools_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # its own helpers lie beside it, as with a script
    sys.modules[name] = module  # dataclasses look their module up
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        line = _line(error, path)
        raise ToolError(
            f"{path}{line} cannot be run: {type(error).__name__}: {error}.",
            hint="Mend the file; `python` shows the same error.",
        ) from error
    return module


def _line(error: BaseException, path: Path) -> str:
    """ ":12" for the line of the file that failed."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f":{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


def _public(module: ModuleType, path: Path) -> list[tuple[str, Callable[..., Any] | Tool]]:
    """The tools of a module by name: what `__all__` says, else its own functions and tools."""
    named = getattr(module, "__all__", None)
    if named is None:
        return [
            (name, value)
            for name, value in vars(module).items()
            if not name.startswith("_") and _is_own(value, module)
        ]
    missing = [name for name in named if not hasattr(module, name)]
    if missing:
        raise ToolError(f"{path} names {missing[0]!r} in __all__, but does not define it.")
    return [(name, getattr(module, name)) for name in named]


def _is_own(value: Any, module: ModuleType) -> bool:
    if isinstance(value, Tool):
        return True
    return inspect.isfunction(value) and value.__module__ == module.__name__
