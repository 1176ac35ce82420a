"""What `llamita eval` is asked to measure: its files read, before any model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamita.errors import DataError

if TYPE_CHECKING:
    from llamita.evaluation.questions import Question
    from llamita.evaluation.tool_cases import ToolCase
    from llamita.text.sources import TextFile


@dataclass(frozen=True)
class Wanted:
    """What is to be measured; all that can be wrong with it was told before."""

    files: Sequence[TextFile] = ()
    text_field: str = "text"
    encoding: str = "utf-8"
    limit_bytes: int | None = None
    context_length: int | None = None
    questions: Sequence[Question] = ()
    prompt: str = ""
    tool_cases: Sequence[ToolCase] = ()
    constrain: bool = True
    speed: bool = False
    tasks: Sequence[str] = ()
    tasks_path: Path | None = None
    fewshot: int | None = None
    limit: int | None = None
    chat: bool = False


def read_wanted(
    *,
    text: list[Path] | None,
    encoding: str,
    field: str,
    mcq: Path | None,
    gold: str | None,
    mcq_fields: str | None,
    mcq_prompt: str,
    tools: list[Path] | None,
    no_constraint: bool,
    tasks: str | None,
    speed: bool,
    **others: Any,
) -> Wanted:
    """The options as what is to be measured; everything that can be wrong with them is told.

    Raises:
        LlamitaError: an option or a file is wrong, or nothing is asked for.
    """
    from llamita.evaluation.harness import check_harness
    from llamita.evaluation.multiple_choice import check_prompt
    from llamita.evaluation.questions import check_gold, parse_fields, read_questions
    from llamita.evaluation.tool_cases import read_tool_cases
    from llamita.text.decoding import check_encoding
    from llamita.text.sources import find_text_files

    if not (text or mcq or tools or tasks or speed):
        raise DataError(
            "nothing is asked for.", hint="Name --text, --mcq, --tools, --tasks or --speed."
        )
    check_encoding(encoding)
    prompt = mcq_prompt.replace("\\n", "\n")
    check_prompt(prompt)
    if mcq is None and (gold or mcq_fields):
        raise DataError("--gold and --mcq-fields are given without --mcq.", hint="Name the file.")
    if no_constraint and not tools:
        raise DataError("--no-constraint is given without --tools.", hint="Name the chats.")
    names = [name.strip() for name in (tasks or "").split(",") if name.strip()]
    if names:
        check_harness()
    elif any(others[name] is not None for name in ("tasks_path", "fewshot", "limit")):
        raise DataError(
            "--tasks-path, --fewshot and --limit are given without --tasks.",
            hint="They are of the tasks of lm-eval-harness.",
        )
    if others["chat"] and not (mcq or names):
        raise DataError("--chat is given without --mcq and --tasks.", hint="It is of questions.")
    return Wanted(
        files=find_text_files(text).files if text else (),
        text_field=field,
        encoding=encoding,
        questions=read_questions(mcq, check_gold(gold), parse_fields(mcq_fields)) if mcq else (),
        prompt=prompt,
        tool_cases=read_tool_cases(tools) if tools else (),
        constrain=not no_constraint,
        speed=speed,
        tasks=names,
        **others,
    )
