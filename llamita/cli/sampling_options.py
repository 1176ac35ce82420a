"""The options of commands that generate: how tokens are drawn, what they may spell, when to stop.

One that is not given is None, so that it does not override the preset of `--sampler`; its help
names the value that then holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from llamita.errors import DataError, GenerationError
from llamita.inference.params import (
    DEFAULT_DRAFT,
    DEFAULT_MAX_TOKENS,
    MAX_DRAFT,
    MAX_LOGPROBS,
    SAMPLERS,
)
from llamita.inference.params import SamplingParams as Default


def _option(help: str, default: object = None, metavar: str | None = None) -> Any:
    """An option whose help tells the value that holds when it is not given."""
    told = help if default is None else f"{help} [default: {default}]"
    return typer.Option(help=told, metavar=metavar, show_default=False)


SamplerOption = Annotated[
    str | None,
    _option(
        f"The settings of a system: {', '.join(SAMPLERS)}; those given beside it go before.",
        metavar="NAME",
    ),
]
MaxTokensOption = Annotated[
    int | None,
    _option(
        "At most so many new tokens, and as many as the context holds.", DEFAULT_MAX_TOKENS, "N"
    ),
]
TemperatureOption = Annotated[
    float | None,
    _option("0: always the likeliest token; 1: the model as it is.", Default.temperature, "T"),
]
TopKOption = Annotated[
    int | None, _option("Only the K likeliest tokens; 0 is off.", Default.top_k, "K")
]
TypicalPOption = Annotated[
    float | None,
    _option(
        "Only the tokens of most typical information that reach probability P; 1 is off.",
        Default.typical_p,
        "P",
    ),
]
TopPOption = Annotated[
    float | None,
    _option("Only the likeliest tokens that reach probability P; 1 is off.", Default.top_p, "P"),
]
MinPOption = Annotated[
    float | None,
    _option(
        "Only tokens of at least P times the best's probability; 0 is off.",
        Default.min_p,
        "P",
    ),
]
RepetitionPenaltyOption = Annotated[
    float | None,
    _option("Above 1, tokens seen before get less likely.", Default.repetition_penalty, "X"),
]
FrequencyPenaltyOption = Annotated[
    float | None,
    _option(
        "Taken off a token's logit for each time it was generated.",
        Default.frequency_penalty,
        "X",
    ),
]
PresencePenaltyOption = Annotated[
    float | None,
    _option("Taken off a token's logit once it was generated.", Default.presence_penalty, "X"),
]
LogitBiasOption = Annotated[
    list[str] | None,
    _option("Added to a token's logit; may be given several times.", metavar="ID=VALUE"),
]
NoRepeatNgramOption = Annotated[
    int | None,
    _option("No run of N tokens comes twice; 0 is off.", Default.no_repeat_ngram_size, "N"),
]
BanOption = Annotated[
    list[int] | None, _option("A token never drawn; may be given several times.", metavar="ID")
]
SeedOption = Annotated[
    int | None, _option("The same seed gives the same text. [default: a new one]", metavar="N")
]
StopOption = Annotated[
    list[str] | None, _option("End before this string; may be given several times.", metavar="TEXT")
]
StopTokenOption = Annotated[
    list[int] | None,
    _option("End at this token; may be given several times.", "the model's own", "ID"),
]
NoStopTokensOption = Annotated[
    bool, typer.Option("--no-stop-tokens", help="No token ends the text, not even EOS.")
]
IncludeStopTokenOption = Annotated[
    bool | None,
    typer.Option(
        "--include-stop-token/--drop-stop-token",
        help="Whether the stop token is part of the result. [default: it is not]",
        show_default=False,
    ),
]
SchemaOption = Annotated[
    str | None,
    _option("Write JSON that fits this JSON schema; true: any object.", metavar="FILE_OR_JSON"),
]
RegexOption = Annotated[
    str | None,
    _option("Write a text that all of this regular expression matches.", metavar="PATTERN"),
]
GrammarOption = Annotated[
    str | None,
    _option("Write a text of this grammar, in Lark's notation.", metavar="FILE_OR_TEXT"),
]
ChoiceOption = Annotated[
    list[str] | None,
    _option("Write one of the strings given so; may be given several times.", metavar="TEXT"),
]
SpeculativeOption = Annotated[
    int | None,
    _option(
        "Guess up to K tokens from earlier text and check them at once: the same text, faster "
        f"where it repeats. 0 is off, {DEFAULT_DRAFT} is good, {MAX_DRAFT} the most.",
        Default.speculative,
        "K",
    ),
]
OverflowOption = Annotated[
    str | None,
    _option(
        "In a full context: stop; error; or slide, which drops the oldest half and goes on.",
        Default.overflow,
        "WHAT",
    ),
]
ChatOverflowOption = Annotated[
    str | None,
    _option(
        "In a full context: drop-oldest-turn, of the conversation; stop; error; or slide.",
        "drop-oldest-turn",
        "WHAT",
    ),
]
LogprobsOption = Annotated[
    int | None,
    _option(
        "With --json: each token's log-probability, and those of the N likeliest, "
        f"{MAX_LOGPROBS} at most.",
        metavar="N",
    ),
]

_RENAMED = {
    "ban": "banned_token_ids",
    "stop_token_id": "stop_token_ids",
    "choice": "choices",
}


def read_settings(
    overflows: Sequence[str] = ("stop", "error", "slide"), **options: Any
) -> dict[str, Any]:
    """The settings for `Default.from_settings`: what was given, named as there.

    overflows: what --overflow may be; a text that is no chat has no turns to drop.

    Raises:
        GenerationError: a value that is not of its form.
        DataError: a file that cannot be read.
    """
    settings = {
        _RENAMED.get(name, name): value
        for name, value in options.items()
        if value is not None and value != []
    }
    if "logit_bias" in settings:
        settings["logit_bias"] = _read_biases(settings["logit_bias"])
    if settings.pop("no_stop_tokens", False):
        if "stop_token_ids" in settings:
            raise GenerationError(
                "--stop-token-id and --no-stop-tokens are given together.",
                hint="Leave out one of them.",
            )
        settings["stop_token_ids"] = ()
    for name, otherwise, is_text in (
        ("schema", "a JSON schema", _is_json),
        ("grammar", "a grammar", _is_grammar),
    ):
        if name in settings:
            settings[name] = _read_text(f"--{name}", settings[name], otherwise, is_text)
    if settings.get("overflow", overflows[0]) not in overflows:
        raise GenerationError(
            f"overflow is {settings['overflow']!r}.",
            hint=f"--overflow must be one of: {', '.join(overflows)}.",
        )
    return settings


def _read_biases(texts: Sequence[str]) -> tuple[tuple[int, float], ...]:
    biases = []
    for text in texts:
        token_id, _, value = text.partition("=")
        try:
            biases.append((int(token_id), float(value)))
        except ValueError:
            raise GenerationError(
                f"--logit-bias is {text!r}.", hint="It must be ID=VALUE, as 42=-5."
            ) from None
    return tuple(biases)


def _is_json(text: str) -> bool:
    """Whether it is JSON itself, right or wrong, and no file."""
    return text.lstrip()[0] in '{["' or text.strip() in ("true", "false", "null")


def _is_grammar(text: str) -> bool:
    """Whether it is a grammar itself and no file: each has a rule, and rules have colons."""
    if "\n" in text:
        return True
    try:
        return ":" in text and not Path(text).is_file()
    except (OSError, ValueError):  # longer than a file's name can be
        return True


def _read_text(option: str, given: str, otherwise: str, is_text: Callable[[str], bool]) -> str:
    """What is given, or what the file that it names holds."""
    hint = f"{option} takes a file or the text of {otherwise}."
    if not given.strip():
        raise GenerationError(f"{option} is empty.", hint=hint)
    if is_text(given):
        return given
    try:
        text = Path(given).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{given} is not UTF-8 text: byte {error.start} is wrong.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(
            f"{option} is {given!r}, a file that cannot be read: {reason}.", hint=hint
        ) from None
    try:
        Default.from_settings({option.removeprefix("--"): text})
    except GenerationError as error:
        raise GenerationError(f"{given}: {error.message}", hint=error.hint) from None
    return text
