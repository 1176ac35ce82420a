"""One tool: what a model is told of it, and the function behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llamita.errors import ToolError
from llamita.tokenizer.chat_tools import described, parameters_of
from llamita.tools.arguments import check_parameters
from llamita.tools.signatures import read_function

_NAME = re.compile(r"[\w.-]{1,64}")


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    parameters: the JSON schema of the arguments, an object's. function: called with the arguments
    by name; None where the tool is only described. Raises ToolError for what cannot be a tool.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ToolError(
                f"a tool is named {self.name!r}.",
                hint="Names have 1 to 64 letters, digits and the signs _ - .",
            )
        if not isinstance(self.description, str):
            raise ToolError(f"the description of the tool {self.name} is {self.description!r}.")
        check_parameters(self.parameters, self.name)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Tool:
        """The tool that a Python function is: by its signature, type hints and docstring.

        The docstring is in Google's, NumPy's or reST's style. A type may be given as
        `Annotated[int, "what it is", {"minimum": 1}]`, with keywords of JSON Schema.

        Raises:
            ToolError: naming the parameter whose type is missing or has no JSON.
        """
        return cls(*read_function(function))

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any]) -> Tool:
        """A tool that is only described: OpenAI's form, or its inner object alone.

        Raises:
            ToolError: it is none.
        """
        inner = described(schema) if isinstance(schema, Mapping) else None
        if not isinstance(inner, Mapping) or "name" not in inner:
            raise ToolError(
                f"{schema!r} is no tool.",
                hint='A tool is {"type": "function", "function": {"name": …, "description": …, '
                '"parameters": {…}}}, or the inner object alone.',
            )
        return cls(inner["name"], inner.get("description") or "", parameters_of(inner))

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in OpenAI's form, for `lm.chat(messages, tools=[…])`."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}
