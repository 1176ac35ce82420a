"""`llamita generate MODEL PROMPT`: continue a text, shown as it comes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from llamita.cli import sampling_options as sampling
from llamita.cli.options import (
    CompileOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    KVCacheDtypeOption,
    ModelArgument,
    OverrideOption,
    PresetOption,
    TokenizerOption,
)
from llamita.cli.progress import for_terminal, say
from llamita.errors import GenerationError
from llamita.inference.params import SamplingParams

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
    sampler: sampling.SamplerOption = None,
    max_tokens: sampling.MaxTokensOption = None,
    temperature: sampling.TemperatureOption = None,
    top_k: sampling.TopKOption = None,
    typical_p: sampling.TypicalPOption = None,
    top_p: sampling.TopPOption = None,
    min_p: sampling.MinPOption = None,
    repetition_penalty: sampling.RepetitionPenaltyOption = None,
    frequency_penalty: sampling.FrequencyPenaltyOption = None,
    presence_penalty: sampling.PresencePenaltyOption = None,
    logit_bias: sampling.LogitBiasOption = None,
    no_repeat_ngram_size: sampling.NoRepeatNgramOption = None,
    ban: sampling.BanOption = None,
    seed: sampling.SeedOption = None,
    stop: sampling.StopOption = None,
    stop_token_id: sampling.StopTokenOption = None,
    no_stop_tokens: sampling.NoStopTokensOption = False,
    include_stop_token: sampling.IncludeStopTokenOption = None,
    schema: sampling.SchemaOption = None,
    regex: sampling.RegexOption = None,
    grammar: sampling.GrammarOption = None,
    choice: sampling.ChoiceOption = None,
    speculative: sampling.SpeculativeOption = None,
    overflow: sampling.OverflowOption = None,
    logprobs: sampling.LogprobsOption = None,
    json: JsonOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    kv_cache_dtype: KVCacheDtypeOption = None,
    compile: CompileOption = False,
    override: OverrideOption = None,
    preset: PresetOption = None,
    tokenizer: TokenizerOption = None,
) -> None:
    """Continue PROMPT and print the new text as it comes."""
    settings = sampling.read_settings(
        sampler=sampler,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        typical_p=typical_p,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        logit_bias=logit_bias,
        no_repeat_ngram_size=no_repeat_ngram_size,
        ban=ban,
        seed=seed,
        stop=stop,
        stop_token_id=stop_token_id,
        no_stop_tokens=no_stop_tokens,
        include_stop_token=include_stop_token,
        schema=schema,
        regex=regex,
        grammar=grammar,
        choice=choice,
        speculative=speculative,
        overflow=overflow,
        logprobs=logprobs,
    )
    params = SamplingParams.from_settings(settings)  # told before the model is loaded
    if logprobs is not None and not json:
        raise GenerationError(
            f"--logprobs is {logprobs}, but text has no place for them.", hint="Add --json."
        )
    text = _read_stdin() if prompt == "-" else prompt

    import llamita

    lm = llamita.load(
        model,
        device=device,
        dtype=dtype,
        override=override,
        preset=preset,
        tokenizer=tokenizer,
        kv_cache_dtype=kv_cache_dtype,
        compile=compile,
    )
    if json:
        _print_json(lm.generate(text, params=params))
    else:
        _print_stream(lm, text, params)


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


def _print_stream(lm: LM, text: str, params: SamplingParams) -> None:
    from llamita.inference.stopping import context_length

    count = dropped = 0
    finish_reason = None
    for event in lm.stream_events(text, params=params):
        count += event.token_id is not None
        finish_reason = event.finish_reason
        dropped = event.dropped
        if event.text:
            print(for_terminal(event.text), end="", flush=True)
    print()
    context = f"the model's context of {context_length(lm.config)} tokens"
    if dropped:
        say(f"{context} was full: its oldest {dropped} tokens were dropped on the way.")
    if finish_reason == "length" and (params.max_tokens is None or count < params.max_tokens):
        say(f"{context} is full.")
    if finish_reason == "length" and params.constraint is not None:
        say(f"the text is cut off: it is not yet what {params.constraint[0]} asks for.")
