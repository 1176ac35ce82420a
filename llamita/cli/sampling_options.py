"""The options of commands that generate: how tokens are drawn, what they may spell, when to stop.

One that is not given is None, so that it does not override the preset of `--sampler`; its help
names the value that then holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from llamita.errors import DataError, GenerationError
from llamita.inference.params import DEFAULT_DRAFT, DEFAULT_MAX_TOKENS, MAX_DRAFT, SAMPLERS
from llamita.inference.params import SamplingParams as Default

SamplerOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"The settings of a system: {', '.join(SAMPLERS)}; those given beside it go before.",
    ),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option(help="At most so many new tokens.", show_default=str(DEFAULT_MAX_TOKENS)),
]
TemperatureOption = Annotated[
    float | None,
    typer.Option(
        help="0: always the likeliest token; 1: the model as it is.",
        show_default=str(Default.temperature),
    ),
]
TopKOption = Annotated[
    int | None,
    typer.Option(help="Only the K likeliest tokens; 0 is off.", show_default=str(Default.top_k)),
]
TypicalPOption = Annotated[
    float | None,
    typer.Option(
        help="Only the tokens of most typical information that reach probability P; 1 is off.",
        show_default=str(Default.typical_p),
    ),
]
TopPOption = Annotated[
    float | None,
    typer.Option(
        help="Only the likeliest tokens that reach probability P; 1 is off.",
        show_default=str(Default.top_p),
    ),
]
MinPOption = Annotated[
    float | None,
    typer.Option(
        help="Only tokens of at least P times the best's probability; 0 is off.",
        show_default=str(Default.min_p),
    ),
]
RepetitionPenaltyOption = Annotated[
    float | None,
    typer.Option(
        help="Above 1, tokens seen before get less likely.",
        show_default=str(Default.repetition_penalty),
    ),
]
FrequencyPenaltyOption = Annotated[
    float | None,
    typer.Option(
        help="Taken off new tokens' logits for each time they occurred.",
        show_default=str(Default.frequency_penalty),
    ),
]
PresencePenaltyOption = Annotated[
    float | None,
    typer.Option(
        help="Taken off new tokens' logits once they occurred.",
        show_default=str(Default.presence_penalty),
    ),
]
LogitBiasOption = Annotated[
    list[str] | None,
    typer.Option(metavar="ID=VALUE", help="Added to a token's logit; may be given several times."),
]
NoRepeatNgramOption = Annotated[
    int | None,
    typer.Option(
        help="No run of N tokens comes twice; 0 is off.",
        show_default=str(Default.no_repeat_ngram_size),
    ),
]
BanOption = Annotated[
    list[int] | None,
    typer.Option(metavar="ID", help="A token never drawn; may be given several times."),
]
SeedOption = Annotated[
    int | None, typer.Option(help="The same seed gives the same text. Left out, a new one.")
]
StopOption = Annotated[
    list[str] | None, typer.Option(help="End before this string; may be given several times.")
]
StopTokenOption = Annotated[
    list[int] | None,
    typer.Option(
        metavar="ID",
        help="End at this token; may be given several times. Left out, the model's own.",
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(metavar="FILE_OR_JSON", help="Write JSON that fits this JSON schema."),
]
RegexOption = Annotated[
    str | None, typer.Option(help="Write a text that all of this regular expression matches.")
]
GrammarOption = Annotated[
    str | None,
    typer.Option(metavar="FILE_OR_TEXT", help="Write a text of this grammar, as Lark notes them."),
]
ChoiceOption = Annotated[
    list[str] | None,
    typer.Option(help="Write this string, or another one given so; may be given several times."),
]
SpeculativeOption = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        help="Guess up to K tokens from earlier text and check them at once: faster where text "
        f"repeats, and the same text. 0 is off, {DEFAULT_DRAFT} is good, {MAX_DRAFT} the most.",
        show_default=str(Default.speculative),
    ),
]
OverflowOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="In a full context: stop; error; or slide, which drops the oldest half and goes on.",
        show_default=Default.overflow,
    ),
]
LogprobsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="With --json: each token's log-probability, and the N likeliest ones'."
    ),
]

_RENAMED = {
    "ban": "banned_token_ids",
    "stop_token_id": "stop_token_ids",
    "choice": "choices",
}


def read_settings(**options: Any) -> dict[str, Any]:
    """The settings for `SamplingParams.from_settings`: what was given, named as there.

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
    if "schema" in settings and not settings["schema"].lstrip().startswith("{"):
        settings["schema"] = _read_file("--schema", settings["schema"], "a JSON schema")
    if "grammar" in settings and not _is_grammar(settings["grammar"]):
        settings["grammar"] = _read_file("--grammar", settings["grammar"], "a grammar")
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


def _is_grammar(text: str) -> bool:
    """Whether it is a grammar itself and no file: each has a rule, and rules have colons."""
    return ":" in text and not Path(text).is_file()


def _read_file(option: str, name: str, otherwise: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text: byte {error.start} is wrong.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(
            f"{option} is {name!r}, a file that cannot be read: {reason}.",
            hint=f"{option} takes a file or the text of {otherwise}.",
        ) from None
