"""Where tools come from: a Python file, or those built in."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
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
        return _built_in(rest.split(",")) if rest else builtin_tools()
    if not text.endswith(".py"):
        raise ToolError(
            f"the tools are given as {text!r}.",
            hint=f"Give a Python file, {_PREFIX!r}, or some of those built in: "
            f"{_PREFIX}:{','.join(BUILT_IN)}.",
        )
    return _of_file(Path(text))


def _built_in(names: Sequence[str]) -> list[Tool]:
    """Those of these names, of which `notes=FILE` may be one."""
    wanted: list[str] = []
    file: str | None = None
    for given in names:
        name, sign, path = given.strip().partition("=")
        if sign and (name != "notes" or not path or file is not None):
            raise ToolError(
                f"the built-in tools are given as {given.strip()!r}.",
                hint="Notes alone, once, have a file: notes=FILE.",
            )
        wanted.append(name)
        file = path if sign else file
    return builtin_tools(wanted, notes_file=None if file is None else Path(file))


def _of_file(path: Path) -> list[Tool]:
    check_plain_file(path, ToolError)
    module = _run(path.resolve())
    tools: list[Tool] = []
    for name, value in _public(module, path):
        if isinstance(value, Tool):
            tools.append(value)
            continue
        try:
            tool = Tool.of(value)
        except ToolError as error:
            raise ToolError(
                f"{path}: {error.message}",
                hint=f"{error.hint or ''} A function that is no tool begins with an underscore: "
                f"_{name}.".strip(),
            ) from error
        # What was made of another function is known by the name that it has here.
        tools.append(tool if inspect.isfunction(value) else replace(tool, name=name))
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
    if named is not None:
        if not isinstance(named, list | tuple) or not all(isinstance(n, str) for n in named):
            raise ToolError(
                f"{path} has an __all__ that is {named!r}.", hint="Give a list of names."
            )
        missing = [name for name in named if not hasattr(module, name)]
        if missing:
            raise ToolError(f"{path} names {missing[0]!r} in __all__, but does not define it.")
        return [(name, getattr(module, name)) for name in named]
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    own = {name: value for name, value in public.items() if _is_own(value, module)}
    passed_over = [name for name in public.keys() - own if _might_be_meant(public[name], module)]
    if passed_over:
        warnings.warn(
            f"{path}: no tools are {', '.join(sorted(passed_over))}, which can be called but are "
            "no functions of this file; __all__ names what is meant.",
            stacklevel=2,
        )
    return list(own.items())


def _is_own(value: Any, module: ModuleType) -> bool:
    """Whether it is a tool, or made of a function that the module defines."""
    if isinstance(value, Tool):
        return True
    function = _unwrapped(value)
    return inspect.isfunction(function) and function.__module__ == module.__name__


def _unwrapped(value: Any) -> Any:
    """The function behind `partial`, `lru_cache`, bound methods and well-made decorators."""
    while not inspect.isclass(value):
        if isinstance(value, functools.partial):
            value = value.func
        elif inspect.ismethod(value):
            value = value.__func__
        elif not inspect.isfunction(value) and hasattr(value, "__wrapped__"):
            value = value.__wrapped__
        else:
            break
    return value


def _might_be_meant(value: Any, module: ModuleType) -> bool:
    """Whether it can be called and is of the module, but no class and not imported."""
    if not callable(value) or inspect.isclass(value) or inspect.isfunction(value):
        return False
    function = _unwrapped(value)
    if inspect.isfunction(function) or inspect.isbuiltin(function):
        return isinstance(value, functools.partial)  # else it was imported
    return type(value).__module__ == module.__name__
