"""Which tools an answer may call, and whether it must: OpenAI's `tools` and `tool_choice`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llamita.errors import GenerationError
from llamita.inference.call_signs import CallSigns, call_signs
from llamita.tokenizer.chat_tools import Syntax, described, parameters_of


@dataclass(frozen=True)
class ToolRules:
    """Which calls an answer may make.

    tools: JSON of [name, schema of the arguments] each. choice: "auto": text or calls; "required":
    calls; "none": no call. parallel: whether one call may follow another. reasons: whether
    reasoning may stand before the answer.
    """

    syntax: Syntax
    tools: str
    choice: Literal["auto", "required", "none"] = "auto"
    parallel: bool = True
    reasons: bool = False

    @classmethod
    def of(
        cls,
        schemas: Sequence[Mapping[str, Any]],
        syntax: Syntax,
        tool_choice: Any = "auto",
        parallel_tool_calls: bool = True,
        reasons: bool = False,
    ) -> ToolRules:
        """The rules for tools in OpenAI's form (or its inner objects) and OpenAI's `tool_choice`.

        A choice that names a function asks for one call of it.

        Raises:
            GenerationError: a choice that cannot be, or of a tool that there is not.
        """
        tools: dict[str, Mapping[str, Any]] = {}
        for schema in schemas:
            function = described(schema)
            name, parameters = function["name"], parameters_of(function)
            is_object = (
                isinstance(parameters, Mapping) and parameters.get("type", "object") == "object"
            )
            if name in tools or not is_object:
                wrong = "stands twice" if name in tools else f"has the parameters {parameters!r}"
                raise GenerationError(
                    f"the tool {name} {wrong}.",
                    hint="Each tool has a name of its own and the JSON schema of an object.",
                )
            tools[name] = parameters
        choice, forced = read_tool_choice(tool_choice, list(tools))
        if forced is not None:
            tools = {forced: tools[forced]}
            parallel_tool_calls = False
        text = json.dumps(list(tools.items()), ensure_ascii=False)
        return cls(syntax, text, choice, parallel_tool_calls, reasons)

    @property
    def signs(self) -> CallSigns:
        """What begins a call."""
        return call_signs(self.syntax, self.reasons)


def read_tool_choice(
    choice: Any, names: Sequence[str]
) -> tuple[Literal["auto", "required", "none"], str | None]:
    """OpenAI's `tool_choice` as one of its words, and the function that must be called, if any.

    Raises:
        GenerationError: it is none, or asks for what there is not.
    """
    if choice is None:
        return "auto", None
    if isinstance(choice, Mapping):
        function = described(choice)
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str) and name in names:
            return "required", name
        if isinstance(name, str):
            raise GenerationError(
                f"tool_choice asks for the tool {name!r}.",
                hint=f"There are: {', '.join(names) or 'none'}.",
            )
    if choice not in ("auto", "required", "none"):
        raise GenerationError(
            f"tool_choice is {choice!r}.",
            hint='tool_choice must be "auto", "none", "required", or {"type": "function", '
            '"function": {"name": …}}.',
        )
    if choice == "required" and not names:
        raise GenerationError("tool_choice is 'required', but there are no tools.")
    return choice, None
