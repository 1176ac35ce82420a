"""Templates of the kinds that models bring, conversations, and tokenizers to try them on."""

from __future__ import annotations

import json
from typing import Any

CHATML = """\
{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system
Be brief.<|im_end|>
{% endif %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

GENERATION = """\
{% for message in messages %}
<|im_start|>{{ message.role }}
{% if message.role == 'assistant' %}
{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}
{% else %}
{{ message.content }}<|im_end|>
{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA2 = """\
{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}\
{% set system = '<<SYS>>\\n' ~ messages[0]['content'] ~ '\\n<</SYS>>\\n\\n' %}\
{% else %}{% set rest = messages %}{% set system = '' %}{% endif %}\
{% for message in rest %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('roles must alternate') }}{% endif %}\
{% if message['role'] == 'user' %}\
{{ bos_token ~ '[INST] ' ~ (system if loop.first else '') }}\
{{ message['content'].strip() ~ ' [/INST]' }}\
{% else %}{{ ' ' ~ message['content'].strip() ~ ' ' ~ eos_token }}{% endif %}{% endfor %}"""

LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{{- 'Today Date: ' + date_string + '\\n\\n' }}
{%- if tools is not none %}
    {{- 'Answer with {"name": function name, "parameters": dictionary}.\\n\\n' }}
    {%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}
{%- endif %}
{{- system + '<|eot_id|>' }}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception('one tool call at a time') }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}
        {{- '}<|eot_id|>' }}
    {%- elif message.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {{- message.content | tojson if message.content is mapping else message.content }}
        {{- '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

QWEN = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first)
        or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

QWEN_THINKING = """\
{%- set ns = namespace(last_query=messages | length - 1, searching=true) %}
{%- for message in messages[::-1] %}
    {%- set index = messages | length - 1 - loop.index0 %}
    {%- if ns.searching and message.role == 'user' %}
        {%- set ns.searching = false %}{%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n') %}
            {%- set reasoning = reasoning.split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last_query and (loop.last or reasoning) %}
            {{- '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' }}
            {{- content.lstrip('\\n') }}
        {%- else %}{{- content }}{%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

CONTROL_TOKENS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<|user|>", "<|assistant|>", "<|end|>", "<|python_tag|>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
)

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather <now>, 'é' & more",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def call(name: str = "weather", **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


PLAIN: list[dict[str, Any]] = [
    {"role": "user", "content": "Hello,  world!\n"},
    {"role": "assistant", "content": " Բարև: 你好 🦙"},
    {"role": "user", "content": "  12 * 9?\n\n\tdef f():"},
    {"role": "assistant", "content": "It is 108."},
]
SYSTEM: list[dict[str, Any]] = [{"role": "system", "content": "You are a llama."}, *PLAIN]
TOOLS: list[dict[str, Any]] = [
    {"role": "user", "content": "Is it warm in Երևան?"},
    {"role": "assistant", "content": "", "tool_calls": [call(city="Երևան", unit="°C <b>")]},
    {"role": "tool", "content": '{"temperature": 31}'},
    {"role": "assistant", "content": "Yes, 31 °C."},
]


def with_control_tokens(definition: str, roles: dict[str, str]) -> tuple[str, bytes]:
    """A tokenizer.json with CONTROL_TOKENS added, and the config that names BOS and EOS."""
    content = json.loads(definition)
    known = {token["content"] for token in content["added_tokens"]}
    for name in CONTROL_TOKENS:
        if name not in known:
            token_id = max(content["model"]["vocab"].values()) + 1
            content["model"]["vocab"][name] = token_id
            content["added_tokens"].append(
                {
                    "id": token_id,
                    "content": name,
                    "special": "t" not in name[:3],  # like Qwen's <tool_call> and <think>
                    **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
                }
            )
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
    return json.dumps(content), json.dumps(config).encode()
