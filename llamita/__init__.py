"""llamita: from text to a small Llama-family language model, every step checkable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamita.inference.lm import LM

__version__ = "0.1.0"
__all__ = ["LM", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name == "LM":
        from llamita.inference.lm import LM

        return LM
    raise AttributeError(f"module 'llamita' has no attribute {name!r}")
