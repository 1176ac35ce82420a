"""What `llamita eval` measures of one model, and how it compares two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from llamita.cli.eval import first_bytes
from llamita.cli.eval_wanted import Wanted
from llamita.cli.progress import progress_bar, say
from llamita.errors import TokenizerError

if TYPE_CHECKING:
    import numpy as np

    from llamita.evaluation.bits_per_byte import TextScores
    from llamita.evaluation.harness import TaskResults
    from llamita.evaluation.multiple_choice import ChoiceResults
    from llamita.evaluation.tool_calls import ToolResults
    from llamita.inference.lm import LM
    from llamita.tokenizer.base import Tokenizer


@dataclass
class Found:
    """One model's figures as plain data, and what a comparison needs of them."""

    result: dict[str, Any] = field(default_factory=dict)
    text: TextScores | None = None
    choices: ChoiceResults | None = None
    tools: ToolResults | None = None
    tasks: TaskResults | None = None


def measure(lm: LM, wanted: Wanted, *, for_comparison: bool = False) -> Found:
    """Everything that is wanted, of one model; for a comparison also what each question brought."""
    found = Found()
    if wanted.files:
        found.text = _score_text(lm, wanted)
        found.result |= asdict(found.text.summary())
    if wanted.questions:
        found.choices = _ask(lm, wanted)
        found.result["mcq"] = found.choices.summary()
        if found.choices.cut_questions:
            say(
                f"{found.choices.cut_questions:,} of {len(wanted.questions):,} questions are too "
                "long for the model's context: their beginning was not read."
            )
    if wanted.tool_cases:
        found.tools = _call_tools(lm, wanted)
        found.result["tools"] = found.tools.summary()
        if left := found.result["tools"]["turns_not_asked"]:
            say(
                f"{left:,} of {len(wanted.tool_cases):,} turns do not fit the model's context: "
                "they were not asked and count as wrong."
            )
    if wanted.speed:
        found.result["speed"] = _measure_speed(lm)
    if wanted.tasks:
        from llamita.evaluation.harness import run_tasks

        found.tasks = run_tasks(
            lm,
            wanted.tasks,
            tasks_path=wanted.tasks_path,
            fewshot=wanted.fewshot,
            limit=wanted.limit,
            chat=wanted.chat,
            per_question=for_comparison,
        )
        found.result["tasks"] = dict(found.tasks.figures)
    return found


def compare(first: Found, second: Found) -> dict[str, Any]:
    """The differences between two models, by the keys of their results."""
    from llamita.evaluation.comparison import compare_answers, compare_texts

    comparison: dict[str, Any] = {}
    if first.text is not None and second.text is not None:
        comparison["text"] = {"bits_per_byte": asdict(compare_texts(first.text, second.text))}
    if first.choices is not None and second.choices is not None:
        ways: dict[str, dict[str, Any]] = {}
        for (way, score), points in first.choices.points.items():
            answers = compare_answers(points, second.choices.points[way, score])
            ways.setdefault(way, {})[score] = asdict(answers)
        comparison["mcq"] = ways
    if first.tools is not None and second.tools is not None:
        comparison["tools"] = {}
        for name, calls in (("exact_call_accuracy", True), ("abstention_accuracy", False)):
            right, of = _right(first.tools, calls)
            if of:
                answers = compare_answers(right, _right(second.tools, calls)[0], of)
                comparison["tools"][name] = asdict(answers)
    if first.tasks is not None and second.tasks is not None:
        comparison["tasks"] = _compare_tasks(first.tasks, second.tasks)
    return comparison


def _compare_tasks(first: TaskResults, second: TaskResults) -> dict[str, dict[str, Any]]:
    """By task and figure, question by question."""
    import numpy as np

    from llamita.evaluation.comparison import compare_answers

    tasks: dict[str, dict[str, Any]] = {}
    for (task, figure), points in first.points.items():
        others = second.points.get((task, figure), {})
        if points.keys() != others.keys():
            say(f"{task}: {figure} is not compared: the harness has no pairs of answers for it.")
            continue
        pairs = np.array([(points[number], others[number]) for number in points])
        # Not all figures are right or wrong; of those that are, this is McNemar's test too.
        answers = compare_answers(pairs[:, 0], pairs[:, 1], range(len(pairs)))
        tasks.setdefault(task, {})[figure] = asdict(answers)
    return tasks


def _right(results: ToolResults, with_calls: bool) -> tuple[np.ndarray, list[int]]:
    """Which turns that should call, or should not, were answered rightly: 1 or 0 [turns]; and the
    conversation of each."""
    import numpy as np

    chosen = [answer for answer in results.answers if bool(answer.case.calls) == with_calls]
    right = np.array([answer.is_right for answer in chosen], dtype=np.float64)
    return right, [answer.case.conversation for answer in chosen]


def without_nan(value: Any) -> Any:
    """Plain data with null for what is not known: JSON has no NaN."""
    if isinstance(value, Mapping):
        return {name: without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def tokenizer_of(lm: LM) -> Tokenizer:
    """The model's; TokenizerError where it has none."""
    if lm.tokenizer is None:
        raise TokenizerError(
            "this model has no tokenizer, so text cannot be scored.",
            hint="Name its tokenizer with --tokenizer PATH.",
        )
    return lm.tokenizer


def _score_text(lm: LM, wanted: Wanted) -> TextScores:
    from llamita.evaluation.bits_per_byte import score_texts
    from llamita.text.documents import ReadCounts, read_files

    counts = ReadCounts()
    documents = read_files(
        wanted.files, field=wanted.text_field, encoding=wanted.encoding, counts=counts
    )
    size = text_bytes(wanted)
    with progress_bar("evaluate", None if size is None else size / 1e6, "MB") as bar:
        scores = score_texts(
            lm.model,
            tokenizer_of(lm),
            documents if wanted.limit_bytes is None else first_bytes(documents, wanted.limit_bytes),
            context_length=wanted.context_length,
            progress=lambda scored: bar.advance(scored / 1e6),
        )
    if counts.replaced_surrogates:
        say(f"{counts.replaced_surrogates:,} halves of characters in the text were read as U+FFFD.")
    if counts.empty_files:
        say(f"{counts.empty_files:,} files of the text are empty.")
    return scores


def text_bytes(wanted: Wanted) -> int | None:
    """The bytes of text that will be scored, for the time left; None where only reading tells.

    Compressed files are longer, and lines of JSON hold names and other fields too.
    """
    known = not any(file.compression or file.kind == "jsonl" for file in wanted.files)
    size = sum(file.path.stat().st_size for file in wanted.files)
    if wanted.limit_bytes is None:
        return size if known else None
    return min(wanted.limit_bytes, size) if known else wanted.limit_bytes


def _ask(lm: LM, wanted: Wanted) -> ChoiceResults:
    from llamita.evaluation.multiple_choice import answers_of, multiple_choice

    with progress_bar("questions", answers_of(wanted.questions), "answers") as bar:
        return multiple_choice(
            lm.model,
            tokenizer_of(lm),
            wanted.questions,
            prompt=wanted.prompt,
            chat=lm.chat_format if wanted.chat else None,
            progress=bar.advance,
        )


def _call_tools(lm: LM, wanted: Wanted) -> ToolResults:
    from llamita.evaluation.tool_calls import tool_calls

    with progress_bar("tool calls", len(wanted.tool_cases), "turns") as bar:
        return tool_calls(lm, wanted.tool_cases, constrain=wanted.constrain, progress=bar.advance)


def _measure_speed(lm: LM) -> dict[str, Any]:
    """Generation speed of one text, as of `llamita bench`, which has more settings."""
    from llamita.evaluation import speed
    from llamita.inference.stopping import context_length

    new_tokens = min(speed.DEFAULT_NEW_TOKENS, max(1, context_length(lm.config) // 2))
    lengths = speed.fitting_lengths(lm.config, new_tokens)
    total = speed.work(lengths, [1], new_tokens, speed.DEFAULT_REPEATS)
    with progress_bar("speed", total, "tokens") as bar:
        runs = speed.measure_speed(
            lm.engine.backend,
            prompt_tokens=lengths,
            batch_sizes=[1],
            new_tokens=new_tokens,
            progress=bar.advance,
        )
    return asdict(speed.headline(runs))
