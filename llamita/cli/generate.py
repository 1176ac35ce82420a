"""`llamita generate MODEL PROMPT`: continue a text, shown as it comes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llamita.cli.options import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelArgument,
    OverrideOption,
    PresetOption,
    TokenizerOption,
)
from llamita.cli.progress import for_terminal, say
from llamita.inference.params import DEFAULT_MAX_TOKENS, SamplingParams

if TYPE_CHECKING:
    from llamita.inference.lm import LM, Generation


def command(
    model: ModelArgument,
    prompt: Annotated[
        str,
        typer.Argument(
            metavar="PROMPT", help="The text to continue; '-' reads it from stdin, as it is."
        ),
    ],
    max_tokens: Annotated[
        int, typer.Option(help="At most so many new tokens.")
    ] = DEFAULT_MAX_TOKENS,
    temperature: Annotated[
        float, typer.Option(help="0: always the likeliest token; 1: the model as it is.")
    ] = SamplingParams.temperature,
    top_k: Annotated[
        int, typer.Option(help="Only the K likeliest tokens; 0 is off.")
    ] = SamplingParams.top_k,
    top_p: Annotated[
        float, typer.Option(help="Only the likeliest tokens that reach probability P; 1 is off.")
    ] = SamplingParams.top_p,
    min_p: Annotated[
        float, typer.Option(help="Only tokens of at least P times the best's probability; 0: off.")
    ] = SamplingParams.min_p,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1, tokens seen before get less likely.")
    ] = SamplingParams.repetition_penalty,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same text.")
    ] = SamplingParams.seed,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this string; may be given several times.")
    ] = None,
    json: JsonOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    override: OverrideOption = None,
    preset: PresetOption = None,
    tokenizer: TokenizerOption = None,
) -> None:
    """Continue PROMPT and print the new text as it comes."""
    settings = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "stop": stop or [],
    }
    SamplingParams.from_settings(settings)  # a wrong value is told before the model is loaded
    text = _read_stdin() if prompt == "-" else prompt

    import llamita

    lm = llamita.load(
        model,
        device=device,
        dtype=dtype,
        override=override,
        preset=preset,
        tokenizer=tokenizer,
    )
    if json:
        _print_json(lm.generate(text, **settings))
    else:
        _print_stream(lm, text, settings)


def _read_stdin() -> str:
    from llamita.errors import DataError

    if sys.stdin is None:
        raise DataError("the prompt is '-', but there is no stdin to read it from.")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"the prompt on stdin is not UTF-8 text: byte {error.start} is wrong."
        ) from None


def _print_json(generation: Generation) -> None:
    import dataclasses
    import json

    print(json.dumps(dataclasses.asdict(generation), ensure_ascii=False))


def _print_stream(lm: LM, text: str, settings: dict[str, Any]) -> None:
    from llamita.inference.stopping import context_length

    count = 0
    finish_reason = None
    for event in lm.stream_events(text, **settings):
        count += event.token_id is not None
        finish_reason = event.finish_reason
        if event.text:
            print(for_terminal(event.text), end="", flush=True)
    print()
    if finish_reason == "length" and count < settings["max_tokens"]:
        say(f"the model's context of {context_length(lm.config)} tokens is full.")
