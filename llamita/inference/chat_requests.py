"""From conversations to requests: prompts that fit, tools, and which calls an answer may make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llamita.errors import GenerationError
from llamita.inference.chats import read_chats
from llamita.inference.param_checks import boolean
from llamita.inference.params import SamplingParams
from llamita.inference.results import Generation
from llamita.inference.tool_rules import ToolRules, read_tool_choice
from llamita.tokenizer.chat import ChatFormat
from llamita.tokenizer.chat_tools import described
from llamita.tools.schemas import tool_schemas
from llamita.tools.toolbox import Toolbox


@dataclass(frozen=True)
class ToolUse:
    """How tools may be called.

    choice: OpenAI's `tool_choice`. parallel: whether one answer may hold several calls.
    constrained: whether only valid calls can be written; without it choice and parallel are wishes.
    """

    choice: Any = "auto"
    parallel: bool = True
    constrained: bool = True

    def __post_init__(self) -> None:
        boolean("parallel_tool_calls", self.parallel)
        boolean("constrain_tools", self.constrained)

    def rules(
        self, schemas: Sequence[Mapping[str, Any]] | None, chat: ChatFormat, params: SamplingParams
    ) -> ToolRules | None:
        """The rules for an answer with these tools; None where it is not constrained.

        Raises:
            GenerationError: a wrong choice.
        """
        names = [described(tool)["name"] for tool in schemas or ()]
        choice, _ = read_tool_choice(self.choice, names)
        syntax = chat.tool_syntax
        if not schemas or not self.constrained or syntax is None:
            return None
        if choice == "none" and params.constraint is not None:
            return None
        return ToolRules.of(schemas, syntax, self.choice, self.parallel, chat.reasons)


@dataclass(frozen=True)
class ChatSettings:
    """The settings of `chat`: how tools are used, what reaches the template, and those of all."""

    use: ToolUse
    variables: Mapping[str, Any]
    params: SamplingParams

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ChatSettings:
        """Raises GenerationError for a wrong one."""
        given = dict(settings)
        use = ToolUse(
            given.pop("tool_choice", "auto"),
            given.pop("parallel_tool_calls", True),
            given.pop("constrain_tools", True),
        )
        variables = given.pop("template_variables", None) or {}
        return cls(use, variables, SamplingParams.from_settings(given))


@dataclass(frozen=True)
class Asked:
    """Conversations ready for the engine.

    calls: whether each answer may call tools, so that calls are looked for in it. dropped: how many
    messages each prompt lost.
    """

    prompts: list[list[int]]
    rules: list[ToolRules | None]
    calls: list[bool]
    dropped: list[int]
    params: SamplingParams
    is_batch: bool


def ask(
    messages: Any,
    tools: Any,
    use: ToolUse,
    chat_format: ChatFormat,
    fit: Callable[[Any, Any], tuple[list[int], int]],
    params: SamplingParams,
) -> Asked:
    """One prompt for each conversation. `fit` gives one, and how many messages went.

    tools: for all conversations, or a list of one list (or Toolbox, or None) for each.

    Raises:
        GenerationError: a wrong setting, or the wrong number of lists of tools.
        TokenizerError: a wrong message or tool.
    """
    chats, is_batch = read_chats(messages)
    lists = _for_each(tools, len(chats))
    fitted = [fit(chat, own) for chat, own in zip(chats, lists, strict=True)]
    return Asked(
        prompts=[prompt for prompt, _ in fitted],
        rules=[use.rules(own, chat_format, params) for own in lists],
        calls=[bool(own) and use.choice != "none" for own in lists],
        dropped=[dropped for _, dropped in fitted],
        params=replace(params, overflow="stop")
        if params.overflow == "drop-oldest-turn"
        else params,
        is_batch=is_batch,
    )


def answered(
    chat: ChatFormat, result: Generation, dropped_messages: int, calls: bool
) -> Generation:
    """An answer with its message. calls: whether calls are looked for in it."""
    text = chat.answer_text(result.token_ids)
    if isinstance(result.stop_reason, str):
        text = text.partition(result.stop_reason)[0]
    message = chat.parse(text, calls=calls)
    return replace(result, message=message, dropped_messages=dropped_messages)


def _for_each(tools: Any, count: int) -> list[Any]:
    several = isinstance(tools, list | tuple) and any(
        isinstance(item, list | tuple | Toolbox) for item in tools
    )
    if not several:
        return [tool_schemas(tools)] * count
    if len(tools) != count:
        raise GenerationError(
            f"there are {len(tools)} lists of tools and {count} conversations.",
            hint="Give one list for all, or one for each.",
        )
    return [tool_schemas(own) for own in tools]
