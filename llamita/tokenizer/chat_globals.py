"""The functions that chat templates may call, as `transformers` gives them, within bounds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jinja2 import TemplateError
from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

from llamita.tokenizer.chat_bounds import budget, check_format
from llamita.tokenizer.chat_looks import as_it_is


class Refused(TemplateError):
    """The template called `raise_exception`."""


class _Namespace(Namespace):
    """Jinja's, but private names cannot be set: they would reach what the sandbox hides."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    made: dict[Any, Any] = dict(*args, **kwargs)
    budget.get().weigh(made)
    return made


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold the private name {name!r}")


def _raise_exception(message: str) -> None:
    raise Refused(as_it_is(message))


def _strftime_now(form: str) -> str:
    check_format(form)
    return datetime.now().strftime(form)


GLOBALS: dict[str, Any] = {
    "dict": _make_dict,
    "namespace": _Namespace,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}
"""What templates know beside Jinja's own functions."""
