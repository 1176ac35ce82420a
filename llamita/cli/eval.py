"""`llamita eval MODEL`: how good a model is, in figures with their standard errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, overload

import typer

from llamita.cli.options import (
    MODEL_HELP,
    DeviceOption,
    DtypeOption,
    JsonOption,
    OverrideOption,
    PresetOption,
    TokenizerOption,
)
from llamita.errors import DataError

if TYPE_CHECKING:
    from llamita.text.documents import Document


def command(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help=MODEL_HELP, show_default=False)
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Held-out text, for bits per byte: .txt, .md, .jsonl, also as .gz or .zst, or a "
            "folder of them; may be given several times.",
        ),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="The JSONL field that holds the text.", show_default="text"),
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="The encoding of the text files.", show_default="utf-8")
    ] = None,
    limit_bytes: Annotated[
        int | None, typer.Option(min=1, help="Only the first N bytes of the text.")
    ] = None,
    context_length: Annotated[
        int | None, typer.Option(help="Windows of text shorter than the model's own context.")
    ] = None,
    mcq: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Multiple-choice questions, an object with question, choices and gold a line.",
        ),
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="How the gold names the right choice: index0 (0 is the first), index1 (1 is), "
            "letter (A is), text, or label (with labels= in --mcq-fields). It is not guessed.",
        ),
    ] = None,
    mcq_fields: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=FIELD,…",
            help="Other names for question, choices and gold. ARC: choices=choices.text,"
            "labels=choices.label,gold=answerKey; HellaSwag: question=ctx,choices=endings,"
            "gold=label; choices in several fields: choices=A+B+C+D.",
        ),
    ] = None,
    mcq_prompt: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help=r"How a question is put; \n is a new line. The answer follows.",
            show_default=r"Question: {question}\nAnswer:",
        ),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHATS.jsonl",
            help="Chats with the right tool calls in them, in any form that finetune reads: each "
            "turn is asked for anew. May be given several times.",
        ),
    ] = None,
    no_constraint: Annotated[
        bool,
        typer.Option(
            "--no-constraint", help="Of --tools: let the model write calls that are none."
        ),
    ] = False,
    tasks: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Tasks of lm-eval-harness (needs llamita[eval])."),
    ] = None,
    tasks_path: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where other tasks' YAML files are.")
    ] = None,
    fewshot: Annotated[
        int | None, typer.Option(min=0, help="Of --tasks: examples before each question.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Of --tasks: only N questions of each.")
    ] = None,
    chat: Annotated[
        bool,
        typer.Option(
            "--chat", help="Of --mcq and --tasks: put questions through the chat template."
        ),
    ] = False,
    speed: Annotated[
        bool, typer.Option("--speed", help="Also how fast it reads and writes here.")
    ] = False,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Two models in place of MODEL: both figures, the differences and their p-values.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page of HTML.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write Markdown.")
    ] = None,
    json: JsonOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    override: OverrideOption = None,
    preset: PresetOption = None,
    tokenizer: TokenizerOption = None,
) -> None:
    """Measure a model: bits per byte, multiple choice, tool calls, tasks of lm-eval, speed.

    Each figure comes with its standard error; all of them go into one --json. What is asked for is
    what is measured: at least one of --text, --mcq, --tools, --tasks and --speed.
    """
    from llamita.cli.eval_wanted import read_wanted

    models = _models(model, compare)
    wanted = read_wanted(
        text=text,
        field=field,
        encoding=encoding,
        limit_bytes=limit_bytes,
        context_length=context_length,
        mcq=mcq,
        gold=gold,
        mcq_fields=mcq_fields,
        mcq_prompt=mcq_prompt,
        tools=tools,
        no_constraint=no_constraint,
        tasks=tasks,
        tasks_path=tasks_path,
        fewshot=fewshot,
        limit=limit,
        chat=chat,
        speed=speed,
    )
    from llamita.evaluation import report

    report.check_paths(html, markdown)

    import llamita
    from llamita.cli import eval_measures as measures
    from llamita.cli.eval_checks import check_models

    check_models(models, wanted, override=override, preset=preset, tokenizer=tokenizer)
    from llamita.cli.eval_settings import file_facts, settings_of

    files = file_facts(wanted.sources)
    given = {"override": override, "preset": preset, "tokenizer": tokenizer and str(tokenizer)}
    found = []
    for path in models:  # one after the other, so that one is in memory at a time
        lm = llamita.load(
            path,
            device=device,
            dtype=dtype,
            override=override,
            preset=preset,
            tokenizer=tokenizer,
        )
        found.append(measures.measure(lm, wanted, for_comparison=compare is not None))
        found[-1].result["settings"] = settings_of(path, lm, wanted, files, given)
        del lm
    results = [measures.without_nan(one.result) for one in found]
    comparison = None
    if len(found) == 2:
        comparison = measures.without_nan(measures.compare(*found))
    sections = report.sections_of(_by_name(models, results), comparison)
    if json:
        import json as json_module

        print(json_module.dumps(_as_json(models, results, comparison)))
    elif comparison is None and results[0].keys().isdisjoint(report.TITLES):
        print(_summary(results[0]))
    else:
        print(report.as_lines(sections))
    # Last: where a disk is full now, the figures are there.
    foot = report.settings_section(results)
    report.write_reports([*sections, foot], html, markdown)


def _models(model: str | None, compare: tuple[str, str] | None) -> list[str]:
    if compare is not None and any(name.startswith("-") for name in compare):
        raise DataError(
            f"--compare is given {compare[0]} and {compare[1]}.",
            hint="Two models follow it: llamita eval --compare A B.",
        )
    if compare is not None and model is not None:
        raise DataError(
            f"three models are named: {compare[0]} and {compare[1]} to --compare, and {model}.",
            hint="llamita eval --compare A B names both models, and nothing stands before it.",
        )
    if compare is None and model is None:
        raise DataError("no model is named.", hint="llamita eval MODEL, or --compare A B.")
    return list(compare) if compare is not None else [str(model)]


@overload
def first_bytes(texts: Iterable[str], limit: int) -> Iterator[str]: ...
@overload
def first_bytes(texts: Iterable[Document], limit: int) -> Iterator[Document]: ...
def first_bytes(texts: Iterable[Any], limit: int) -> Iterator[Any]:
    """Texts or documents up to `limit` UTF-8 bytes in all; the last is cut between characters."""
    for text in texts:
        data = (text if isinstance(text, str) else text.text).encode("utf-8")
        if len(data) >= limit:
            kept = data[:limit].decode("utf-8", errors="ignore")
            yield kept if isinstance(text, str) else replace(text, text=kept)
            return
        limit -= len(data)
        yield text


def _by_name(models: list[str], results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Results by the names of their models; the same model twice gets two names."""
    if len(set(models)) < len(models):
        models = [f"{name} ({at})" for at, name in enumerate(models, start=1)]
    return dict(zip(models, results, strict=True))


def _as_json(
    models: list[str], results: list[dict[str, Any]], comparison: dict[str, Any] | None
) -> dict[str, Any]:
    if comparison is None:
        return results[0]
    return {"models": models, "a": results[0], "b": results[1], "comparison": comparison}


def _summary(result: dict[str, Any]) -> str:
    error = result["bits_per_byte_stderr"]
    spread = "" if error is None else f" ± {error:.4f}"  # one token alone has none
    over = {
        "documents": f"{result['documents']:,} documents",
        "windows": "one document: ± over its stretches of 1,024 bytes",
        "tokens": "one document: ± over its tokens" if spread else "one document",
    }[result["stderr_over"]]
    return (
        f"{result['bits_per_byte']:.4f}{spread} bits per byte  "
        f"({result['bytes']:,} bytes, {result['tokens']:,} tokens, "
        f"perplexity {result['perplexity']:.2f} per token; {over})"
    )
