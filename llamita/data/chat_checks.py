"""What of a chat cannot be learned as it stands: reasoning that its format has no place for, and
calls of tools that it does not declare."""

from __future__ import annotations

from typing import Any

from llamita.text.chats import Chat
from llamita.tokenizer.chat_tools import described, parse_tool_calls

_REASONING = ("reasoning_content", "thinking", "reasoning")


def place_reasoning(chat: Chat, template: str) -> tuple[Chat, bool]:
    """The chat as a template can write it, and whether reasoning is lost.

    Where the template knows `<think>` blocks in a content alone, the reasoning becomes one. Where
    it knows neither, a message that is nothing but reasoning gets the weight 0: it would teach to
    say nothing.
    """
    if any(name in template for name in _REASONING):
        return chat, False
    is_inline, messages, is_lost = "</think>" in template, [], False
    for message in chat.messages:
        reasoning = next((message[name] for name in _REASONING if message.get(name)), None)
        if message["role"] == "assistant" and isinstance(reasoning, str):
            message = {key: value for key, value in message.items() if key not in _REASONING}
            content = message.get("content")
            if is_inline and not isinstance(content, list):
                message["content"] = f"<think>\n{reasoning}\n</think>\n\n{content or ''}"
            else:
                is_lost = True
                if not content and not message.get("tool_calls"):
                    message |= {"content": "", "weight": 0}
        messages.append(message)
    return Chat(messages, chat.tools), is_lost


def calls_undeclared(chat: Chat) -> bool:
    """Whether a tool is called that neither the tools of the chat nor its system text name."""
    declared = {str(described(tool).get("name")) for tool in chat.tools or []}
    told = "\n".join(str(m.get("content")) for m in chat.messages if m["role"] == "system")
    called = {name for message in chat.messages for name in _called(message)}
    return any(name not in declared and name not in told for name in called)


def _called(message: dict[str, Any]) -> list[str]:
    calls = list(message.get("tool_calls") or [])
    content = message.get("content")
    if message["role"] == "assistant" and isinstance(content, str) and "<tool_call>" in content:
        calls += parse_tool_calls(content, "hermes")[1]
    functions = (call.get("function") or call for call in calls if isinstance(call, dict))
    return [str(function.get("name")) for function in functions]
