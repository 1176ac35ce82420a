"""What generating gives back: one `Generation` for each prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llamita.inference.request import Request, TokenEvent
from llamita.inference.sampling import TokenLogprob
from llamita.inference.stopping import FinishReason


@dataclass(frozen=True)
class Generation:
    """What one prompt gave.

    text: the new text, without the prompt, the stop token or the stop string ("" where the model
        has no tokenizer).
    token_ids: the new tokens, without the prompt and the stop token (unless include_stop_token).
        Where a stop string ended the text they reach to the token that completed it.
    finish_reason: "stop" (a stop token or stop string, or a constraint that is complete) or
        "length" (max_tokens, or context full).
    stop_reason: the stop token's id or the stop string.
    prompt_token_ids: the prompt, a BOS token included.
    message: after `chat`, the answer as an assistant message in OpenAI's form: `content` and,
        where the model made any, `tool_calls` and `reasoning_content`.
    logprobs: of each token of token_ids, where they were asked for.
    dropped_tokens: how many of the oldest tokens were given up (overflow "slide").
    dropped_messages: how many of the chat's (overflow "drop-oldest-turn").
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stop_reason: int | str | None
    prompt_token_ids: list[int]
    message: dict[str, Any] | None = field(default=None, compare=False)  # the ids of calls differ
    logprobs: list[TokenLogprob] | None = None
    dropped_tokens: int = 0
    dropped_messages: int = 0

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tool calls of the message; empty where there are none."""
        calls: list[dict[str, Any]] = (self.message or {}).get("tool_calls", [])
        return calls


def collect(requests: Sequence[Request], events: Iterable[TokenEvent]) -> list[Generation]:
    """Each request's generation, from the events of all."""
    texts: dict[int, list[str]] = {request.row: [] for request in requests}
    token_ids: dict[int, list[int]] = {request.row: [] for request in requests}
    logprobs: dict[int, list[TokenLogprob]] = {request.row: [] for request in requests}
    last: dict[int, TokenEvent] = {}
    for event in events:
        texts[event.row].append(event.text)
        if event.token_id is not None:
            token_ids[event.row].append(event.token_id)
        if event.logprob is not None:
            logprobs[event.row].append(event.logprob)
        last[event.row] = event
    return [
        Generation(
            text="".join(texts[request.row]),
            token_ids=token_ids[request.row],
            finish_reason=last[request.row].finish_reason or "length",
            stop_reason=last[request.row].stop_reason,
            prompt_token_ids=list(request.prompt),
            logprobs=None if request.params.logprobs is None else logprobs[request.row],
            dropped_tokens=last[request.row].dropped,
        )
        for request in requests
    ]
