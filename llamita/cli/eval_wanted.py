"""What `llamita eval` is asked to measure: its files read, before any model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamita.errors import DataError

if TYPE_CHECKING:
    from llamita.evaluation.questions import Question
    from llamita.evaluation.tool_cases import ToolCase
    from llamita.text.sources import TextFile

_MEASURES = ("text", "mcq", "tools", "tasks", "speed")
_BELONGS_TO: Mapping[str, Sequence[str]] = {
    "field": ("text",),
    "encoding": ("text",),
    "limit_bytes": ("text",),
    "context_length": ("text",),
    "gold": ("mcq",),
    "mcq_fields": ("mcq",),
    "mcq_prompt": ("mcq",),
    "no_constraint": ("tools",),
    "tasks_path": ("tasks",),
    "fewshot": ("tasks",),
    "limit": ("tasks",),
    "chat": ("mcq", "tasks"),
}
"""Options, and what has to be measured that they say anything."""


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
    sources: Sequence[Path] = ()  # every file that is read
    options: Mapping[str, Any] = field(default_factory=dict)  # of what is measured, for settings


def read_wanted(**options: Any) -> Wanted:
    """The options of the command as what is to be measured; what can be wrong with them is told.

    An option that is not given is None, or False.

    Raises:
        LlamitaError: an option or a file is wrong, or nothing is asked for.
    """
    from llamita.evaluation.harness import check_harness
    from llamita.evaluation.multiple_choice import DEFAULT_PROMPT, check_prompt
    from llamita.evaluation.questions import check_gold, parse_fields, read_questions
    from llamita.evaluation.tool_cases import read_tool_cases
    from llamita.text.decoding import check_encoding
    from llamita.text.sources import find_text_files

    _check_belonging(options)
    text, mcq, tools = options["text"], options["mcq"], options["tools"]
    encoding = options["encoding"] or "utf-8"
    check_encoding(encoding)
    prompt = (options["mcq_prompt"] or DEFAULT_PROMPT).replace("\\n", "\n")
    check_prompt(prompt)
    names = [name.strip() for name in (options["tasks"] or "").split(",") if name.strip()]
    if options["tasks"] is not None:
        if not names:
            raise DataError(
                f"--tasks {options['tasks']!r} names no task.", hint="--tasks arc_easy,piqa"
            )
        check_harness()
    questions: Sequence[Question] = ()
    if mcq is not None:
        gold, fields = check_gold(options["gold"]), parse_fields(options["mcq_fields"])
        questions = read_questions(mcq, gold, fields)
    files = find_text_files(_named(text, "text")).files if text else []
    chats = _named(tools, "tools") if tools else []
    asked = find_text_files([*([mcq] if mcq else []), *chats]).files if mcq or chats else []
    defaults = {"field": "text", "encoding": encoding, "mcq_prompt": prompt}
    return Wanted(
        sources=[file.path for file in (*files, *asked)],
        options=_in_use(
            {n: defaults.get(n) if value is None else value for n, value in options.items()}
        ),
        files=files,
        text_field=options["field"] or "text",
        encoding=encoding,
        limit_bytes=options["limit_bytes"],
        context_length=options["context_length"],
        questions=questions,
        prompt=prompt,
        tool_cases=read_tool_cases(chats) if chats else (),
        constrain=not options["no_constraint"],
        speed=options["speed"],
        tasks=names,
        tasks_path=options["tasks_path"],
        fewshot=options["fewshot"],
        limit=options["limit"],
        chat=options["chat"],
    )


def _check_belonging(options: Mapping[str, Any]) -> None:
    """Something is to be measured, and no option is of something that is not."""

    def is_given(name: str) -> bool:
        return options[name] not in (None, False, [])

    if not any(map(is_given, _MEASURES)):
        raise DataError(
            "nothing is asked for.", hint="Name --text, --mcq, --tools, --tasks or --speed."
        )
    for name, measures in _BELONGS_TO.items():
        if is_given(name) and not any(map(is_given, measures)):
            wanted = " and ".join(f"--{measure}" for measure in measures)
            raise DataError(
                f"--{name.replace('_', '-')} is given without {wanted}.",
                hint=f"It does nothing there; name {wanted.replace(' and ', ' or ')}, or leave it "
                "out.",
            )


def _in_use(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of what is measured, with their defaults, as plain data."""
    used = {
        name: options[name]
        for name, measures in _BELONGS_TO.items()
        if options[name] is not None and any(options[measure] for measure in measures)
    }
    if options["tasks"]:
        used["tasks"] = options["tasks"]
    return {name: str(value) if isinstance(value, Path) else value for name, value in used.items()}


def _named(paths: Sequence[str], option: str) -> list[Path]:
    """Paths, none of them empty: that would be the folder one is in."""
    if not all(paths):
        raise DataError(f"--{option} is given an empty name.", hint="Name a file or a folder.")
    return [Path(path) for path in paths]
