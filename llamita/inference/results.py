"""What generating gives back: one `Generation` for each prompt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from llamita.inference.request import TokenEvent
from llamita.inference.stopping import FinishReason


@dataclass(frozen=True)
class Generation:
    """What one prompt gave.

    text: the new text, without the prompt, the stop token or the stop string ("" where the model
        has no tokenizer).
    token_ids: the new tokens, without the prompt and the stop token. Where a stop string ended the
        text they reach to the token that completed it.
    finish_reason: "stop" (a stop token or stop string) or "length" (max_tokens, or context full).
    stop_reason: the stop token's id or the stop string.
    prompt_token_ids: what the model read, a BOS token included.
    message: after `chat`, the answer as an assistant message in OpenAI's form: `content` and,
        where the model made any, `tool_calls` and `reasoning_content`.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stop_reason: int | str | None
    prompt_token_ids: list[int]
    message: dict[str, Any] | None = field(default=None, compare=False)  # the ids of calls differ

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tool calls of the message; empty where there are none."""
        calls: list[dict[str, Any]] = (self.message or {}).get("tool_calls", [])
        return calls


def collect(prompts: list[list[int]], events: Iterable[TokenEvent]) -> list[Generation]:
    """Each prompt's generation, from the events of all."""
    texts: list[list[str]] = [[] for _ in prompts]
    token_ids: list[list[int]] = [[] for _ in prompts]
    results: dict[int, Generation] = {}
    for event in events:
        texts[event.row].append(event.text)
        if event.token_id is not None:
            token_ids[event.row].append(event.token_id)
        if event.finish_reason is not None:
            results[event.row] = Generation(
                text="".join(texts[event.row]),
                token_ids=token_ids[event.row],
                finish_reason=event.finish_reason,
                stop_reason=event.stop_reason,
                prompt_token_ids=prompts[event.row],
            )
    return [results[row] for row in range(len(prompts))]
