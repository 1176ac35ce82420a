"""Conversations as prompts: several or one, and what goes when one outgrows the context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from llamita.errors import GenerationError

Message: TypeAlias = Mapping[str, Any]

_ALWAYS_KEPT = ("system", "developer")


def read_chats(messages: Any) -> tuple[list[Any], bool]:
    """The conversations in `messages`, and whether a list of them was given.

    A list of messages is one conversation, a list of such lists are several.
    """
    several = isinstance(messages, list | tuple) and any(
        isinstance(item, list | tuple) for item in messages
    )
    return (list(messages), True) if several else ([messages], False)


def fit_chat(
    encode: Callable[[Sequence[Message]], list[int]],
    messages: Sequence[Message],
    max_tokens: int | None,
    context: int,
) -> tuple[list[int], int]:
    """The prompt of a conversation that leaves room for an answer, and how many messages it lost.

    The oldest turn goes first: a user's message with all that follows up to the next one. What
    stands before the first user's message counts as a turn. System messages and the last turn stay.
    Room is made for max_tokens (None: for one); where the last turn leaves less than that, the
    answer has what it leaves.

    encode: the prompt's ids of a list of messages; asked once where nothing need go, else about
    log2 of the number of turns.

    Raises:
        GenerationError: the last turn leaves room for no token.
        TokenizerError: of `encode`.
    """
    room = 1 if max_tokens is None else max_tokens
    prompt = encode(messages)
    if len(prompt) + room <= context:
        return prompt, 0
    # Where it may begin: with all of it, or with each user's message.
    cuts = [0, *(i for i, message in enumerate(messages) if message["role"] == "user")]
    prompts: dict[int, list[int]] = {0: prompt}

    def fits(cut: int) -> bool:
        if cut not in prompts:
            prompts[cut] = encode(_from(messages, cut))
        return len(prompts[cut]) + room <= context

    cut = cuts[min(bisect_left(cuts, True, key=fits), len(cuts) - 1)]
    if not fits(cut) and len(prompts[cut]) + min(1, room) > context:
        raise GenerationError(
            f"the last turn of the chat, with what stands before every chat, has "
            f"{len(prompts[cut])} tokens; the model's context holds {context}, which leaves no "
            "room for an answer.",
            hint="Shorten the last message, the system message or the tools.",
        )
    return prompts[cut], len(messages) - len(_from(messages, cut))


def _from(messages: Sequence[Message], cut: int) -> list[Message]:
    return [
        message
        for place, message in enumerate(messages)
        if place >= cut or message["role"] in _ALWAYS_KEPT
    ]
