"""Tool calls: does a model call what it should, exactly, and nothing where it should not?

A call is exact where its name and all its arguments are right, as JSON values: 2 and 2.0 are one,
the order of keys is none, an argument left out has its default. Standard errors are over
conversations (bootstrap), as turns of one are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llamita.evaluation.bootstrap import ratio_standard_error
from llamita.evaluation.tool_cases import Call, ToolCase
from llamita.inference.lm import LM
from llamita.inference.stopping import context_length
from llamita.inference.tool_loop import call_of
from llamita.tokenizer.chat_tools import described, parameters_of
from llamita.tools.arguments import arguments_error

MAX_TOKENS = 256
_BATCH = 64


@dataclass(frozen=True)
class ToolAnswer:
    """What a model did in a case.

    calls: those it made, arguments that are no object as they stand. valid: whether what it called
    or began to call are calls of the tools listed, with arguments that fit; None where it began
    none. is_cut: the answer was too long. is_asked: False where the prompt did not fit the context:
    that is never right, also where no call is.
    """

    case: ToolCase
    calls: tuple[tuple[str, Any], ...] = ()
    content: str = ""
    valid: bool | None = None
    is_cut: bool = False
    is_asked: bool = True

    @property
    def names_right(self) -> bool:
        """Whether it called the right tools, or did not begin to where none is right."""
        if not self.is_asked:
            return False
        if not self.case.calls:
            return self.valid is None
        return sorted(name for name, _ in self.calls) == sorted(n for n, _ in self.case.calls)

    @property
    def is_right(self) -> bool:
        """Whether it made exactly the calls it should, in any order; none where that is right."""
        if not self.names_right:
            return False
        schemas = _schemas(self.case)
        rest = [_with_defaults(call, schemas) for call in self.calls]
        for call in self.case.calls:
            wanted = _with_defaults(call, schemas)
            found = next((one for one in rest if _same(one, wanted)), None)
            if found is None:
                return False
            rest.remove(found)
        return True


@dataclass(frozen=True)
class ToolResults:
    """All answers, and the figures of them."""

    answers: Sequence[ToolAnswer]
    is_constrained: bool

    def accuracy(self, kinds: Sequence[str] | None = None) -> float:
        """The share of right answers to cases of these kinds; NaN without any."""
        chosen = [a.is_right for a in self.answers if kinds is None or a.case.kind in kinds]
        return float(np.mean(chosen)) if chosen else float("nan")

    def summary(self) -> dict[str, Any]:
        """The figures as plain data.

        exact_call_accuracy, name_accuracy: of turns that should call. arguments_accuracy: of those
        whose name is right. abstention_accuracy: of turns that should not call. valid_call_rate:
        of answers that call or begin to. by_kind: right answers of each kind of task.
        turns_not_asked: those that did not fit the context, which count as wrong. cut_answers:
        those that were too long.
        """
        calling = [answer for answer in self.answers if answer.case.calls]
        named = [answer for answer in calling if answer.names_right]
        silent = [answer for answer in self.answers if not answer.case.calls]
        tried = [answer for answer in self.answers if answer.valid is not None]
        kinds = sorted({answer.case.kind for answer in self.answers})
        return {
            "turns": len(self.answers),
            "turns_with_calls": len(calling),
            "constrained": self.is_constrained,
            "turns_not_asked": sum(not answer.is_asked for answer in self.answers),
            "cut_answers": sum(answer.is_cut for answer in self.answers),
            **_share("exact_call_accuracy", calling, lambda answer: answer.is_right),
            **_share("name_accuracy", calling, lambda answer: answer.names_right),
            **_share("arguments_accuracy", named, lambda answer: answer.is_right),
            **_share("abstention_accuracy", silent, lambda answer: answer.is_right),
            **_share("valid_call_rate", tried, lambda answer: bool(answer.valid)),
            "by_kind": {
                kind: {"turns": len(of_kind), **_share("accuracy", of_kind, lambda a: a.is_right)}
                for kind in kinds
                for of_kind in [[answer for answer in self.answers if answer.case.kind == kind]]
            },
        }


def tool_calls(
    lm: LM,
    cases: Sequence[ToolCase],
    *,
    constrain: bool = True,
    max_tokens: int = MAX_TOKENS,
    progress: Callable[[int], object] | None = None,
) -> ToolResults:
    """Let a model answer every case, with the likeliest token each time.

    constrain: only valid calls can be written (`constrain_tools` of `lm.chat`). `progress` is
    called with how many cases were answered.

    Raises:
        GenerationError: the model cannot chat.
        TokenizerError: its chat template has no place for tools, or refuses a message.
    """
    answers: list[ToolAnswer] = []
    context = context_length(lm.config)
    for start in range(0, len(cases), _BATCH):
        batch = cases[start : start + _BATCH]
        fits = [len(lm.chat_prompt(case.messages, case.tools)) < context for case in batch]
        asked = [case for case, fit in zip(batch, fits, strict=True) if fit]
        found = iter(
            lm.chat(
                [list(case.messages) for case in asked],
                [list(case.tools or ()) for case in asked],
                constrain_tools=constrain,
                temperature=0,
                max_tokens=max_tokens,
            )
            if asked
            else ()
        )
        for case, fit in zip(batch, fits, strict=True):
            answer = _answer(lm, case, next(found)) if fit else ToolAnswer(case, is_asked=False)
            answers.append(answer)
        if progress is not None:
            progress(len(batch))
    return ToolResults(answers, constrain)


def _answer(lm: LM, case: ToolCase, generation: Any) -> ToolAnswer:
    message = generation.message or {}
    content = message.get("content") or ""
    calls = tuple(call_of(call) for call in generation.tool_calls)
    begun = bool(calls) or lm.chat_format.broken_call(content) is not None
    schemas = _schemas(case)
    valid = bool(calls) and all(
        name in schemas and arguments_error(arguments, schemas[name]) is None
        for name, arguments in calls
    )
    is_cut = generation.finish_reason == "length"
    return ToolAnswer(case, calls, content, valid if begun else None, is_cut)


def _schemas(case: ToolCase) -> dict[str, Mapping[str, Any]]:
    functions = map(described, case.tools or ())
    return {function["name"]: parameters_of(function) for function in functions}


def _with_defaults(call: Call | tuple[str, Any], schemas: Mapping[str, Mapping[str, Any]]) -> Any:
    name, arguments = call
    if not isinstance(arguments, Mapping):
        return call
    properties = schemas.get(name, {}).get("properties", {})
    defaults = {
        key: schema["default"]
        for key, schema in properties.items()
        if isinstance(schema, Mapping) and "default" in schema
    }
    return name, {**defaults, **arguments}


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values: true is not 1, but 2.0 is 2."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _share(
    name: str, answers: Sequence[ToolAnswer], is_good: Callable[[ToolAnswer], bool]
) -> dict[str, float]:
    """The share of good answers, and its standard error over conversations."""
    if not answers:
        return {name: float("nan"), f"{name}_stderr": float("nan")}
    good = np.array([is_good(answer) for answer in answers], dtype=np.float64)
    _, of = np.unique([answer.case.conversation for answer in answers], return_inverse=True)
    counts = np.bincount(of).astype(np.float64)
    sums = np.bincount(of, weights=good)
    return {name: float(good.mean()), f"{name}_stderr": ratio_standard_error(sums, counts)}
