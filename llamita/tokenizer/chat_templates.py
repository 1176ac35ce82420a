"""The chat formats that llamita brings along, each as the Jinja template that travels with a model.

The templates use plain constructs only, so that `transformers`, llama.cpp and LiteRT-LM run them
alike, and take content as a text or as a list of text parts. A tool is written alike whether it is
given as Hermes has it, {name, description, parameters}, or in OpenAI's wrapping.
"""

from __future__ import annotations

from dataclasses import dataclass

from llamita.errors import TokenizerError
from llamita.files import sha256_text
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat_pieces import (
    CONTENT,
    TOOLS_AS_JSON,
    TOOLS_AS_SIGNATURES,
    TRIMMED_CONTENT,
)


@dataclass(frozen=True)
class BuiltInFormat:
    """A chat format by name.

    template: the Jinja template. control_tokens: what a tokenizer must have as control tokens, or
    the turns of the format could not be told from text. tool_tokens: what is better one token than
    text, where a tokenizer can still be given it. former_templates: the hashes of its template in
    earlier versions, by which the models and runs that have them are known.
    """

    name: str
    template: str
    control_tokens: tuple[str, ...]
    tool_tokens: tuple[str, ...] = ()
    former_templates: tuple[str, ...] = ()


def _chatml(name: str, listing: str, former_templates: tuple[str, ...] = ()) -> BuiltInFormat:
    """ChatML with Hermes' calls, and a listing of tools."""
    template = (
        """\
{%- if tools -%}
{{ '<|im_start|>system\\n' }}
{%- if messages[0]['role'] == 'system' -%}
{%- for message in messages -%}
{%- if loop.first -%}
"""
        + CONTENT
        + """\
{%- endif -%}
{%- endfor -%}
{{ '\\n\\n' }}
{%- endif -%}
"""
        + listing
        + """\
{{ '<|im_end|>' }}
{%- endif -%}
{%- for message in messages -%}
{%- if not (tools and loop.first and message['role'] == 'system') -%}
{%- if tools or not loop.first -%}
{{ '\\n' }}
{%- endif -%}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'tool' -%}
{{ '<tool_response>\\n' }}
{%- endif -%}
"""
        + CONTENT
        + """\
{%- if message['role'] == 'tool' -%}
{{ '\\n</tool_response>' }}
{%- endif -%}
{%- if message['tool_calls'] -%}
{%- for tool_call in message['tool_calls'] -%}
{%- if message['content'] or not loop.first -%}
{{ '\\n' }}
{%- endif -%}
{{ '<tool_call>{"name": ' }}{{ tool_call['function']['name'] | tojson }}
{{- ', "arguments": ' }}{{ tool_call['function']['arguments'] | tojson }}
{{- '}</tool_call>' }}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '\\n<|im_start|>assistant\\n' }}
{%- endif -%}
"""
    )
    return BuiltInFormat(
        name,
        template,
        ("<|im_start|>", "<|im_end|>"),
        ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
        former_templates,
    )


_ARMGPT = (
    """\
{%- for message in messages -%}
{%- if message['role'] == 'user' -%}
{{ '<|user|>' }}
{%- elif message['role'] == 'assistant' -%}
{{ '<|assistant|>' }}
{%- else -%}
{{ raise_exception('there are only user and assistant turns, not ' + message['role']) }}
{%- endif -%}
"""
    + CONTENT
    + """\
{{ '<|end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>' }}
{%- endif -%}
"""
)

_LLAMA2 = (
    """\
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
{%- if not loop.first -%}
{{ raise_exception('a system message stands first') }}
{%- elif loop.last -%}
{{ raise_exception('a user message must follow the system message') }}
{%- endif -%}
{{ bos_token + '[INST] <<SYS>>\\n' }}
"""
    + CONTENT
    + """\
{{ '\\n<</SYS>>\\n\\n' }}
{%- elif message['role'] == 'user' -%}
{%- if not loop.first and loop.previtem['role'] == 'user' -%}
{{ raise_exception('user and assistant must take turns') }}
{%- endif -%}
{%- if loop.first or loop.previtem['role'] != 'system' -%}
{{ bos_token + '[INST] ' }}
{%- endif -%}
"""
    + TRIMMED_CONTENT
    + """\
{{ ' [/INST]' }}
{%- elif message['role'] == 'assistant' -%}
{%- if loop.first or loop.previtem['role'] != 'user' -%}
{{ raise_exception('user and assistant must take turns') }}
{%- endif -%}
{{ ' ' }}
"""
    + TRIMMED_CONTENT
    + """\
{{ ' ' + eos_token }}
{%- else -%}
{{ raise_exception('there are only system, user and assistant turns, not ' + message['role']) }}
{%- endif -%}
{%- endfor -%}
"""
)

_LLAMA3 = (
    """\
{{- '<|begin_of_text|>' -}}
{%- if tools -%}
{{ '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if messages[0]['role'] == 'system' -%}
{%- for message in messages -%}
{%- if loop.first -%}
"""
    + TRIMMED_CONTENT
    + """\
{%- endif -%}
{%- endfor -%}
{{ '\\n\\n' }}
{%- endif -%}
{{ 'You can call these functions. To call one, answer with nothing but ' -}}
{{ '{"name": its name, "parameters": an object of its arguments}.\\n' }}
"""
    + TOOLS_AS_JSON
    + """\
{{ '<|eot_id|>' }}
{%- endif -%}
{%- for message in messages -%}
{%- if not (tools and loop.first and message['role'] == 'system') -%}
{%- if message['role'] == 'tool' -%}
{{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
{%- else -%}
{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
{%- endif -%}
"""
    + TRIMMED_CONTENT
    + """\
{%- if message['tool_calls'] -%}
{%- for tool_call in message['tool_calls'] -%}
{%- if message['content'] or not loop.first -%}
{{ '\\n' }}
{%- endif -%}
{{ '{"name": ' }}{{ tool_call['function']['name'] | tojson }}
{{- ', "parameters": ' }}{{ tool_call['function']['arguments'] | tojson }}
{{- '}' }}
{%- endfor -%}
{%- endif -%}
{{ '<|eot_id|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif -%}
"""
)

_FORMATS = (
    _chatml(
        "chatml-tools",
        "{{ 'You have access to the following tools:\\n' }}\n" + TOOLS_AS_JSON,
    ),
    _chatml(
        "chatml-signatures",
        TOOLS_AS_SIGNATURES,
        ("sha256:39c6f12c78894cc1f659f97afc4f09f52d90016ad205eb707c3acb3fe3c8079b",),
    ),
    BuiltInFormat("armgpt", _ARMGPT, ("<|user|>", "<|assistant|>", "<|end|>")),
    BuiltInFormat("llama2", _LLAMA2, ()),
    BuiltInFormat(
        "llama3",
        _LLAMA3,
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
)

BUILT_IN: dict[str, BuiltInFormat] = {entry.name: entry for entry in _FORMATS}
"""The chat formats by name: `chatml-tools` (Hermes), `chatml-signatures` (the same with tools in
fewer tokens), `armgpt`, `llama2`, `llama3`."""

DEFAULT_FORMAT = "chatml-tools"
"""What a model without a chat template learns its first chats in."""


def built_in_format(name: str) -> BuiltInFormat:
    """One of `BUILT_IN`; TokenizerError where it is none."""
    if name not in BUILT_IN:
        raise TokenizerError(
            f"there is no chat format {name!r}.", hint=f"Known are: {', '.join(BUILT_IN)}."
        )
    return BUILT_IN[name]


def built_in_template(name: str, tokenizer: Tokenizer) -> str:
    """That of one of `BUILT_IN`; TokenizerError where the tokenizer lacks its control tokens."""
    wanted = built_in_format(name)
    known = tokenizer.special_tokens
    missing = [token for token in wanted.control_tokens if token not in known]
    if missing:
        raise TokenizerError(
            f"the chat format {name} needs the control tokens {', '.join(missing)}, which the "
            "tokenizer does not have.",
            hint="Choose a format whose tokens it has, or train a tokenizer with them.",
        )
    return wanted.template


def format_of(template: str) -> str | None:
    """Whose of `BUILT_IN` a template is, in this version or an earlier one; None: it is another."""
    digest = sha256_text(template)
    for name, entry in BUILT_IN.items():
        if entry.template == template or digest in entry.former_templates:
            return name
    return None


def require_format(name: str, template: str) -> None:
    """Raise TokenizerError where a tokenizer's own template is not that of the format `name`."""
    if format_of(template) != built_in_format(name).name:
        raise TokenizerError(
            f"the tokenizer brings a chat template of its own, which is not that of {name}.",
            hint="Leave --chat-format out to go on with it, or take a model that has none.",
        )
