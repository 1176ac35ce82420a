"""What a request may ask for: how tokens are drawn, what they may spell, when the text ends.

Free of PyTorch, so that the command line can show the defaults without loading it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from llamita.errors import GenerationError
from llamita.inference import param_checks as check

DEFAULT_MAX_TOKENS = 256
DEFAULT_DRAFT = 8
"""The longest draft of `speculative=True`: each drafted token costs a share of a pass."""
MAX_DRAFT = 64
MAX_LOGPROBS = 1000
MAX_SEED = 2**63 - 1

Overflow: TypeAlias = Literal["stop", "error", "slide", "drop-oldest-turn"]
CONSTRAINTS: Final = ("schema", "regex", "grammar", "choices")
"""The settings that say what the text may be; a request has at most one."""

SAMPLERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "hermes": {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "repetition_penalty": 1.1},
    "armgpt": {
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "include_stop_token": True,
    },
    "llama": {"temperature": 0.6, "top_p": 0.9},
    "greedy": {"temperature": 0.0},
}
"""What `sampler` may name: settings for the rest, which those given beside it override.

hermes and llama have the numbers of those systems. armgpt has that system's steps (repetition
penalty, temperature, top_k, top_p, min_p, the stop token kept); its numbers are ours, llama.cpp's
defaults with a penalty of 1.1. greedy always takes the likeliest token.
"""

_ELSEWHERE: Final[Mapping[str, str]] = {
    "do_sample": "temperature=0 takes the likeliest token, above 0 tokens are drawn. ",
    "num_beams": "There is no beam search. ",
    "best_of": "There is one text for each prompt. ",
    "n": "There is one text for each prompt; give the prompt several times. ",
    "max_new_tokens": "It is called max_tokens. ",
    "max_length": "max_tokens counts the new tokens alone. ",
    "n_predict": "It is called max_tokens. ",
    "temp": "It is called temperature. ",
    "repeat_penalty": "It is called repetition_penalty. ",
    "stop_strings": "It is called stop. ",
    "eos_token_id": "It is called stop_token_ids. ",
    "ignore_eos": "stop_token_ids=[] lets no token end the text. ",
    "bad_words_ids": "banned_token_ids rules out single tokens. ",
    "response_format": "schema takes a JSON schema, or True for any JSON object. ",
    "json_schema": "It is called schema. ",
    "guided_json": "It is called schema. ",
    "guided_regex": "It is called regex. ",
    "guided_choice": "It is called choices. ",
    "prompt_lookup_num_tokens": "It is called speculative. ",
}
"""What other systems call their settings, and what becomes of them here."""


@dataclass(frozen=True)
class SamplingParams:
    """How one request is sampled and when it stops. Wrong values raise GenerationError.

    Hashable: lists and mappings are kept as tuples, a schema as its JSON text.

    How a token is drawn, in the order in which it is applied (`llamita.inference.sampling`):

    repetition_penalty: tokens seen in the prompt or the output get positive logits divided and
        negative ones multiplied by it (CTRL, arXiv:1909.05858); 1 is off.
    frequency_penalty, presence_penalty: from -2 to 2, as in OpenAI's API: taken off the logits of
        tokens in the output, the first for each time they occur, the second once; 0 is off.
    logit_bias: {token id: from -100 to 100}, added to the logits. Keys may be strings, as in JSON.
    banned_token_ids: tokens that are never drawn.
    no_repeat_ngram_size: no run of n tokens of the prompt and output comes twice; 0 is off.
    temperature: 0 takes the most likely token always; 1 samples from the model as it is; a little
        below 1 suits small models, whose unlikely tokens are often wrong.
    top_k: only the k most likely tokens; 0 (or a number above the vocabulary) is off.
    typical_p: the fewest tokens whose probability reaches p, those first whose information is
        nearest to the entropy (Meister et al. 2022, arXiv:2202.00666); 1 is off.
    top_p: the fewest likeliest tokens whose probability reaches p (Holtzman et al. 2020,
        arXiv:1904.09751), the one that crosses p among them; 1 is off.
    min_p: tokens of at least min_p times the likeliest one's probability (arXiv:2407.01082);
        0 is off.
    seed: the same seed gives the same tokens; None draws a new one for each prompt.

    What the text may be, at most one of these (`llamita.inference.constraints`):

    schema: JSON that fits this JSON schema, a dict or its text; True: any JSON object.
    regex: a text that the whole of this regular expression matches.
    grammar: a text of this grammar, in Lark's notation.
    choices: one of these strings.

    When the text ends, and what is given:

    max_tokens: at most so many new tokens; None: as many as the context holds.
    stop: strings that end the text; they are not shown.
    stop_token_ids: tokens that end the text; None: the model's own; (): none.
    include_stop_token: whether the stop token is part of the result.
    overflow: what happens in a full context: "stop"; "error"; "slide" drops the older half and
        goes on; "drop-oldest-turn", in chats, drops the oldest turn before it starts.
    logprobs: give each token's log-probability and those of the n likeliest, up to 1000; None:
        neither.
    speculative: the longest draft copied from earlier text, up to 64, which changes the speed and
        never the tokens; True is 8; 0 is off.
    """

    max_tokens: int | None = DEFAULT_MAX_TOKENS
    temperature: float = 0.8
    top_k: int = 0
    typical_p: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    no_repeat_ngram_size: int = 0
    banned_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] | None = None
    include_stop_token: bool = False
    logprobs: int | None = None
    overflow: Overflow = "stop"
    speculative: int = 0
    schema: str | None = None
    regex: str | None = None
    grammar: str | None = None
    choices: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            self._set("max_tokens", check.integer, "0 or more, or None", 0)
        self._set("temperature", check.number, "0 or more", 0.0)
        self._set("top_k", check.integer, "0 (off) or more", 0)
        self._set("typical_p", check.number, "from 0 to 1 (off)", 0.0, 1.0)
        self._set("top_p", check.number, "from 0 to 1 (off)", 0.0, 1.0)
        self._set("min_p", check.number, "from 0 (off) to 1", 0.0, 1.0)
        self._set("repetition_penalty", check.number, "from 0.001 to 1000; 1 is off", 0.001, 1000.0)
        self._set("frequency_penalty", check.number, "from -2 to 2; 0 is off", -2.0, 2.0)
        self._set("presence_penalty", check.number, "from -2 to 2; 0 is off", -2.0, 2.0)
        self._set("logit_bias", check.logit_bias)
        self._set("no_repeat_ngram_size", check.integer, "0 (off) or more", 0)
        self._set("banned_token_ids", check.token_ids, "a list of token ids")
        if self.seed is not None:
            self._set("seed", check.integer, "from 0 to 2**63 - 1, or None", 0, MAX_SEED)
        self._set("stop", check.strings)
        if self.stop_token_ids is not None:
            allowed = "None (the model's own) or a list of token ids"
            self._set("stop_token_ids", check.token_ids, allowed)
        self._set("include_stop_token", check.boolean)
        if self.logprobs is not None:
            allowed = (
                f"0 (the token's own) to {MAX_LOGPROBS} for the likeliest beside it, or None (off)"
            )
            self._set("logprobs", check.integer, allowed, 0, MAX_LOGPROBS)
        self._set("overflow", check.one_of, get_args(Overflow))
        if isinstance(self.speculative, bool):
            object.__setattr__(self, "speculative", DEFAULT_DRAFT if self.speculative else 0)
        allowed = f"True, or the longest draft, from 0 (off) to {MAX_DRAFT}"
        self._set("speculative", check.integer, allowed, 0, MAX_DRAFT)
        self._set_constraint()

    def _set(self, name: str, checked: Any, *arguments: Any) -> None:
        object.__setattr__(self, name, checked(name, getattr(self, name), *arguments))

    def _set_constraint(self) -> None:
        given = [name for name in CONSTRAINTS if getattr(self, name) is not None]
        if len(given) > 1:
            raise GenerationError(
                f"{' and '.join(given)} are given together.",
                hint=f"A text has one constraint: at most one of {', '.join(CONSTRAINTS)}.",
            )
        if self.schema is not None:
            self._set("schema", check.schema)
        for name in ("regex", "grammar"):
            if getattr(self, name) is not None:
                self._set(name, check.text)
        if self.choices is not None:
            self._set("choices", check.choices)

    @property
    def constraint(self) -> tuple[str, str | tuple[str, ...]] | None:
        """Which of `CONSTRAINTS` is given, and its value; None where there is none."""
        for name in CONSTRAINTS:
            value = getattr(self, name)
            if value is not None:
                return name, value
        return None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> SamplingParams:
        """From keyword arguments; a name that is none of the fields raises GenerationError.

        `sampler` names one of `SAMPLERS`, whose values stand where no others are given. `params`,
        alone, is what this gives.
        """
        given = dict(settings)
        ready = given.get("params")
        if isinstance(ready, cls) and len(given) == 1:
            return ready
        sampler = given.pop("sampler", None)
        names = [field.name for field in fields(cls)]
        for name in given:
            if name not in names:
                near = difflib.get_close_matches(str(name), [*names, "sampler"], n=1)
                hint = f"Did you mean {near[0]!r}? " if near else ""
                hint = _ELSEWHERE.get(str(name), hint)
                raise GenerationError(
                    f"there is no generation setting {name!r}.",
                    hint=f"{hint}The settings are: sampler, {', '.join(names)}.",
                )
        if sampler is None:
            return cls(**given)
        check.one_of("sampler", sampler, tuple(SAMPLERS))
        return cls(**{**SAMPLERS[sampler], **given})
