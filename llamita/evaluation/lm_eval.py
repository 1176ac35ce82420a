"""lm-eval-harness (EleutherAI) with any MODEL, by the name `llamita`.

From the command line, `llamita eval MODEL --tasks NAMES`; or the harness's own, with the model
registered first:

    python -m llamita.evaluation.lm_eval --model llamita --model_args path=MODEL --tasks NAMES

From Python, importing this module registers it: `lm_eval.simple_evaluate(model="llamita",
model_args="path=MODEL", …)`.

Scores are those of the harness's `hf` model on the same weights in the same precision: its rules of
what is conditioned on what are kept, also where `llamita eval --text` has better ones (a tokenizer
that adds a BOS gets one more before a document that is scored as a whole). One thing differs: the
text of a task never becomes a control token, as it never does here. What a chat template writes
does.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tokenizers import Tokenizer as Backend
from tqdm import tqdm

import llamita
from llamita.errors import GenerationError, LlamitaError, TokenizerError
from llamita.evaluation.continuations import Continuation, score_continuations
from llamita.evaluation.written_chats import WrittenChats
from llamita.inference.lm import LM
from llamita.tokenizer.base import Tokenizer

DEFAULT_NEW_TOKENS = 256
"""What a task that says nothing of it gets, as from the harness's other models."""

_SETTINGS = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("repetition_penalty", "no_repeat_ngram_size", "seed"),
)
_log = logging.getLogger(__name__)


@register_model("llamita")  # type: ignore[untyped-decorator, unused-ignore]
class LlamitaLM(TemplateLM):  # type: ignore[misc, unused-ignore]
    """A MODEL as the harness wants one.

    path: any MODEL; or `lm`, one that is loaded. device, dtype, override, preset, tokenizer: as of
    `llamita.load`. max_length: a context shorter than the model's. The harness's batch sizes say
    nothing here: batches are made by tokens.

    Raises:
        LlamitaError: the model cannot be loaded, or has no tokenizer.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        lm: LM | None = None,
        device: str | None = None,
        dtype: str | None = None,
        override: str | Mapping[str, Any] | None = None,
        preset: str | None = None,
        tokenizer: str | None = None,
        max_length: int | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        if lm is None:
            if path is None:
                raise LlamitaError("no model is named.", hint="Name it as --model_args path=MODEL.")
            if str(device).startswith("cuda") and not torch.cuda.is_available():
                device = None  # the harness asks for "cuda:0" wherever nobody says anything
            lm = llamita.load(
                str(path),
                device=device,
                dtype=dtype,
                override=[override] if isinstance(override, str) else override,
                preset=preset,
                tokenizer=tokenizer,
            )
        if lm.tokenizer is None:
            raise TokenizerError(
                "this model has no tokenizer, so text cannot be scored.",
                hint="Name its tokenizer, as --model_args path=MODEL,tokenizer=PATH.",
            )
        self.lm = lm
        self.tokenizer: Tokenizer = lm.tokenizer
        self._device = lm.device
        longest = lm.config.max_position_embeddings
        self.max_length = longest if max_length is None else min(int(max_length), longest)
        self._chats = WrittenChats(lm, self._warn)
        self._warned: set[str] = set()

    @property
    def eot_token_id(self) -> int:
        """What ends a text."""
        return self.tokenizer.separator_id

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text that nothing stands before."""
        bos = self.tokenizer.bos_token_id
        return self.tokenizer.separator_id if bos is None else bos

    @property
    def tokenizer_name(self) -> str:
        """By which the harness tells kept requests of one tokenizer from another's."""
        return self.tokenizer.fingerprint.replace(":", "_")

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """The ids of a text behind what the tokenizer puts in front, or of a chat as written."""
        written = self._chats.encode(string)
        if written is not None:
            return written
        self._warn_of_control_names(string)
        ids = self.tokenizer.encode(string)
        return ids if add_special_tokens is False else [*self.tokenizer.bos_prefix, *ids]

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """A context and what follows it; spaces between the two belong to what follows."""
        written = self._chats.encode_pair(context, continuation)
        if written is not None:
            return written
        pair: tuple[list[int], list[int]] = super()._encode_pair(context, continuation)
        return pair

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str] | None, list[int], list[int]]],
        disable_tqdm: bool = False,
        **_others: Any,
    ) -> list[tuple[float, bool]]:
        continuations = [Continuation(context, targets) for _text, context, targets in requests]
        with _bar(len(requests), "loglikelihood", disable_tqdm) as bar:
            found = score_continuations(
                self.lm.model,
                continuations,
                context_length=self.max_length,
                progress=bar.update,
            )
        answers = [(one.log_likelihood, one.is_greedy) for one in found]
        for (texts, _context, _targets), answer in zip(requests, answers, strict=True):
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """ln p of whole texts, each token after as much of the text as the harness's windows show.

        A text longer than the context is cut into windows, and of these only the last looks back.
        """
        windows: list[tuple[None, list[int], list[int]]] = []
        owners: list[int] = []
        for number, request in enumerate(requests):
            rolling = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            for window in rolling:
                context, targets = make_disjoint_window(window)
                windows.append((None, context, targets))
                owners.append(number)
        totals = [0.0] * len(requests)
        scored = self._loglikelihood_tokens(windows, disable_tqdm)
        for owner, (log_likelihood, _) in zip(owners, scored, strict=True):
            totals[owner] += log_likelihood
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What the model writes after each context, up to the first of the task's stop strings."""
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(repr(request.args[1]), []).append(number)
        texts = [""] * len(requests)
        with _bar(len(requests), "generate_until", disable_tqdm) as bar:
            for numbers in groups.values():
                contexts = [requests[number].args[0] for number in numbers]
                found = self._generate(contexts, requests[numbers[0]].args[1])
                for number, text in zip(numbers, found, strict=True):
                    texts[number] = text
                    self.cache_hook.add_partial("generate_until", requests[number].args, text)
                bar.update(len(numbers))
        return texts

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A conversation as the model's chat template writes it."""
        return self._chats.write(chat_history, add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template itself, for the harness's record."""
        return self.tokenizer.chat_template if chat_template else None

    def _generate(self, contexts: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
        wanted = dict(normalize_gen_kwargs(dict(settings), DEFAULT_NEW_TOKENS))
        end = self.tokenizer.decode([self.eot_token_id], skip_special_tokens=False)
        stop = [text for text in dict.fromkeys([*wanted.pop("until"), end]) if text]
        new_tokens = wanted.pop("max_gen_toks")
        if wanted.pop("do_sample"):
            wanted.setdefault("temperature", 1.0)
        else:
            wanted["temperature"] = 0.0
        unknown = [name for name in wanted if name not in _SETTINGS]
        if unknown:
            raise GenerationError(
                f"a task asks for {unknown[0]}={wanted[unknown[0]]!r}, which is no setting here.",
                hint=f"Known are: until, max_gen_toks, do_sample, {', '.join(_SETTINGS)}.",
            )
        if new_tokens >= self.max_length:
            room = self.max_length // 2
            self._warn(
                f"{new_tokens} new tokens leave no room in a context of {self.max_length}: answers "
                f"have {room} at most."
            )
            new_tokens = room
        prompts = [
            self.tok_encode(context)[-(self.max_length - new_tokens) :] for context in contexts
        ]
        found = self.lm.generate(
            [ids or [self.prefix_token_id] for ids in prompts],
            max_tokens=new_tokens,
            stop=stop,
            stop_token_ids=[*{*self.lm.stop_token_ids, self.eot_token_id}],
            **wanted,
        )
        texts = [self._decoder.decode(generation.token_ids) for generation in found]
        for ending in stop:
            texts = [text.partition(ending)[0] for text in texts]
        return texts

    @cached_property
    def _decoder(self) -> Backend:
        """The library that `transformers` decodes with. It differs from ours in broken UTF-8, and
        shows added tokens that the file does not call special (Qwen's `<think>`)."""
        return Backend.from_str(json.dumps(self.tokenizer.definition()))

    def _warn_of_control_names(self, text: str) -> None:
        for name in self.tokenizer.special_tokens:
            if name in text:
                self._warn(
                    f"a task's text has {name}, which is read as the text that it is, and no "
                    "control token. (Requests kept by --cache_requests lose what their chat "
                    "template wrote: leave it out.)"
                )

    def _warn(self, text: str) -> None:
        """Once each."""
        if text not in self._warned:
            self._warned.add(text)
            _log.warning(text)


def _bar(total: int, name: str, is_off: bool) -> Any:
    return tqdm(total=total, desc=f"Running {name} requests", disable=is_off)


def main() -> None:
    """The harness's own command line, with `--model llamita` known to it."""
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except LlamitaError as error:
        print(f"llamita: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
