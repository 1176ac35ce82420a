"""What people give as tools, as a list of OpenAI's descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llamita.tools.tool import Tool
from llamita.tools.toolbox import Toolbox


def tool_schemas(tools: Any) -> Any:
    """A Toolbox, or a list of Tools, functions and descriptions, in OpenAI's form.

    None and what is no list stay as they are: the chat format says what is wrong with them.
    Raises ToolError for a function that cannot be a tool.
    """
    if isinstance(tools, Toolbox):
        return tools.schemas
    if not isinstance(tools, list | tuple):
        return tools
    return [_schema(tool) for tool in tools]


def _schema(tool: Any) -> Any:
    if isinstance(tool, Tool):
        return tool.schema
    if callable(tool) and not isinstance(tool, Mapping):
        return Tool.of(tool).schema
    return tool
