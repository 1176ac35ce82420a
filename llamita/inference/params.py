"""What a request may ask for: how tokens are drawn and when the text ends.

Free of PyTorch, so that the command line can show the defaults without loading it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from llamita.errors import GenerationError

DEFAULT_MAX_TOKENS = 256
MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class SamplingParams:
    """How one request is sampled and when it stops. Wrong values raise GenerationError.

    max_tokens: at most so many new tokens; None: as many as the context holds.
    temperature: 0 takes the most likely token always; 1 samples from the model as it is; a little
        below 1 suits small models, whose unlikely tokens are often wrong.
    top_k: only the k most likely tokens; 0 (or a number above the vocabulary) is off.
    top_p: the fewest likeliest tokens whose probability reaches p (Holtzman et al. 2020,
        arXiv:1904.09751), the one that crosses p among them; 1 is off.
    min_p: tokens of at least min_p times the likeliest one's probability (arXiv:2407.01082);
        0 is off.
    repetition_penalty: tokens seen in the prompt or the output get positive logits divided and
        negative ones multiplied by it (CTRL, arXiv:1909.05858); 1 is off.
    seed: the same seed gives the same tokens; None draws a new one for each prompt.
    stop: strings that end the text; they are not shown.
    stop_token_ids: tokens that end the text; None: the model's own; (): none.
    """

    max_tokens: int | None = DEFAULT_MAX_TOKENS
    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _check_integer("max_tokens", self.max_tokens, "0 or more, or None", lowest=0)
        _check_number("temperature", self.temperature, "0 or more", lowest=0.0)
        _check_integer("top_k", self.top_k, "0 (off) or more", lowest=0)
        _check_number("top_p", self.top_p, "from 0 to 1 (off)", lowest=0.0, highest=1.0)
        _check_number("min_p", self.min_p, "from 0 (off) to 1", lowest=0.0, highest=1.0)
        allowed = "from 0.001 to 1000; 1 is off"
        penalty = self.repetition_penalty
        _check_number("repetition_penalty", penalty, allowed, lowest=0.001, highest=1000.0)
        if self.seed is not None:
            allowed = "from 0 to 2**63 - 1, or None"
            _check_integer("seed", self.seed, allowed, lowest=0, highest=MAX_SEED)
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "stop_token_ids", _stop_token_ids(self.stop_token_ids))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> SamplingParams:
        """From keyword arguments; a name that is none of the fields raises GenerationError."""
        names = [field.name for field in fields(cls)]
        for name in settings:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"Did you mean {near[0]!r}? " if near else ""
                raise GenerationError(
                    f"there is no generation setting {name!r}.",
                    hint=f"{hint}The settings are: {', '.join(names)}.",
                )
        return cls(**settings)


def _wrong_value(name: str, value: Any, allowed: str) -> GenerationError:
    return GenerationError(f"{name} is {value!r}.", hint=f"{name} must be {allowed}.")


def _check_integer(
    name: str, value: Any, allowed: str, lowest: int, highest: int | None = None
) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise _wrong_value(name, value, f"a whole number, {allowed}")
    if int(value) < lowest or (highest is not None and int(value) > highest):
        raise _wrong_value(name, value, allowed)


def _check_number(
    name: str,
    value: Any,
    allowed: str,
    *,
    lowest: float = -math.inf,
    highest: float = math.inf,
) -> None:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise _wrong_value(name, value, f"a number, {allowed}")
    number = float(value)
    if not math.isfinite(number) or not lowest <= number <= highest:
        raise _wrong_value(name, value, allowed)


def _stop_strings(value: Any) -> tuple[str, ...]:
    strings = () if value is None else (value,) if isinstance(value, str) else value
    allowed = "a string or a list of strings, none of them empty"
    if not isinstance(strings, list | tuple):
        raise _wrong_value("stop", value, allowed)
    if not all(isinstance(string, str) and string for string in strings):
        raise _wrong_value("stop", value, allowed)
    return tuple(strings)


def _stop_token_ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    allowed = "None (the model's own) or a list of token ids"
    if not isinstance(value, list | tuple | set | frozenset):
        raise _wrong_value("stop_token_ids", value, allowed)
    for token_id in value:
        if not isinstance(token_id, Integral) or isinstance(token_id, bool) or int(token_id) < 0:
            raise _wrong_value("stop_token_ids", value, allowed)
    return tuple(int(token_id) for token_id in value)
