"""Tools that a model may call: Python functions with a schema, run when they are asked for.

from llamita.tools import Tool, Toolbox

def weather(city: str) -> str:
    "Today's weather. "
    ...

toolbox = Toolbox([weather])             # or Toolbox.load("my_tools.py"), Toolbox.load("builtin")
toolbox.schemas                          # for lm.chat(messages, tools=…)
toolbox.run("weather", {"city": "Lima"})  # -> JSON text, also of what went wrong
"""

from __future__ import annotations

from llamita.tools.tool import Tool
from llamita.tools.toolbox import Toolbox

__all__ = ["Tool", "Toolbox"]
