"""The tools of a chat: described to the model, and run when it calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

from llamita.errors import ToolError
from llamita.tokenizer.chat_json import decode_json
from llamita.tools.arguments import arguments_error
from llamita.tools.results import error_text, exception_text, json_text
from llamita.tools.sources import load_tools
from llamita.tools.tool import Tool


class Toolbox:
    """Tools by their names, in order. Functions among them become tools (`Tool.of`).

    Raises ToolError for a name that stands twice.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for given in tools:
            tool = given if isinstance(given, Tool) else Tool.of(given)
            if tool.name in self._tools:
                raise ToolError(f"there are two tools named {tool.name}.", hint="Rename one.")
            self._tools[tool.name] = tool

    @classmethod
    def load(cls, spec: str | PathLike[str]) -> Toolbox:
        """The tools of a file or built in.

        spec: a Python file, whose public functions (or what its `__all__` names) are tools;
        "builtin"; or "builtin:calculator,notes", some of these ("notes=FILE" keeps them there).

        Raises:
            ToolError: there is no such file or tool, or the file cannot be run.
        """
        return cls(load_tools(spec))

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools in OpenAI's form."""
        return [tool.schema for tool in self]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def run(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Call a tool; the JSON text of its result, or of {"error": …}.

        arguments: an object, or its JSON text as models write it. A tool that is not there, wrong
        arguments and what the tool raises are answers too, for the model to mend its call.
        """
        wrong = self.refuse(name, arguments)
        if wrong is not None:
            return error_text(wrong)
        function = self._tools[name].function
        assert function is not None
        try:
            return json_text(function(**_read(arguments)))
        except (Exception, SystemExit) as error:  # whatever it is, the chat goes on
            return error_text(exception_text(error))

    def refuse(self, name: str, arguments: Mapping[str, Any] | str) -> str | None:
        """Why `run` would not call the tool, in one line; None: it would."""
        if name not in self._tools:
            there = f"there are: {', '.join(self._tools)}" if self._tools else "there is none"
            return f"there is no tool {name!r}; {there}"
        tool = self._tools[name]
        try:
            wrong = arguments_error(_read(arguments), tool.parameters)
        except (ValueError, RecursionError) as error:
            return f"the arguments are no JSON: {error}"
        if wrong is None and tool.function is None:
            return f"the tool {name} is only described here and cannot be run"
        return wrong


def _read(arguments: Mapping[str, Any] | str) -> Any:
    if isinstance(arguments, str):
        return decode_json(arguments)
    return arguments
