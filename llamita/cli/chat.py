"""`llamita chat MODEL`: talk with a model, and let it call tools."""

from __future__ import annotations

from typing import Annotated

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
from llamita.errors import GenerationError, LlamitaError
from llamita.inference.params import SamplingParams
from llamita.inference.tool_loop import DEFAULT_MAX_STEPS

_OVERFLOWS = ("drop-oldest-turn", "stop", "error", "slide")


def command(
    model: ModelArgument,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py|builtin[:NAMES]",
            help="What it may call: the public functions of a Python file, or what llamita brings "
            "along (builtin:calculator,units,notes,timers; builtin:notes=FILE keeps the notes); "
            "may be given several times.",
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told at the beginning.")
    ] = None,
    max_steps: Annotated[
        int,
        typer.Option(
            metavar="N", help="So often it may call before it must answer.", show_default=True
        ),
    ] = DEFAULT_MAX_STEPS,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Run the tools of a file without asking before each call."),
    ] = False,
    free_calls: Annotated[
        bool,
        typer.Option("--free-calls", help="Let calls be written that do not fit their schemas."),
    ] = False,
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
    overflow: sampling.ChatOverflowOption = None,
    json: JsonOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    kv_cache_dtype: KVCacheDtypeOption = None,
    compile: CompileOption = False,
    override: OverrideOption = None,
    preset: PresetOption = None,
    tokenizer: TokenizerOption = None,
) -> None:
    """Talk with MODEL. Without a terminal each line of stdin is a user's turn.

    Ctrl-C ends an answer, Ctrl-D the chat; /reset forgets it, /help tells more. The tools of a file
    are your own code: before each call you are asked, and without a terminal they run with --yes
    alone.
    """
    settings = sampling.read_settings(
        _OVERFLOWS,
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
        overflow=overflow or _OVERFLOWS[0],
    )
    params = SamplingParams.from_settings(settings)  # told before the model is loaded
    if max_steps < 0:
        raise LlamitaError(f"--max-steps is {max_steps}.", hint="Give 0 or more.")

    from llamita.cli.chat_tools import ToolsOfChat

    chosen = ToolsOfChat.load(tools or [], runs_all=yes)
    if len(chosen.toolbox) and params.constraint is not None and not free_calls:
        raise GenerationError(
            f"--{params.constraint[0]} and --tools are given together.",
            hint="Leave one out, or add --free-calls.",
        )

    import llamita
    from llamita.cli.chat_session import Session, run_session

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
    session = Session(
        lm,
        chosen,
        system=system,
        max_steps=max_steps,
        settings={"params": params, "constrain_tools": not free_calls},
        shows=not json,
    )
    run_session(session, prints_json=json)
