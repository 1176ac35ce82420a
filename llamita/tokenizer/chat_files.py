"""Where a tokenizer's chat templates lie among its files.

`transformers` has put them into `tokenizer_config.json` (one string, or a list of named ones),
later into `chat_template.jinja` with named ones under `additional_chat_templates/`, and for
processors into `chat_template.json`. What is written in a newer place counts before an older one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llamita.errors import TokenizerError
from llamita.tokenizer.special import token_name

if TYPE_CHECKING:
    from llamita.tokenizer.base import Tokenizer

CONFIG, LEGACY, TEMPLATE = "tokenizer_config.json", "chat_template.json", "chat_template.jinja"
NAMED = "additional_chat_templates/"
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
DEFAULT, TOOL_USE = "default", "tool_use"


def read_chat_templates(files: Mapping[str, bytes]) -> dict[str, str]:
    """The chat templates among a tokenizer's `files` by name; empty where there are none.

    Raises TokenizerError, naming the file, where one is no text or no template.
    """
    templates: dict[str, str] = {}
    for name in (LEGACY, CONFIG):
        if name in files:
            templates |= _entries(_object(files[name], name).get("chat_template"), name)
    if TEMPLATE in files:
        templates[DEFAULT] = _text(files[TEMPLATE], TEMPLATE)
    for name, data in files.items():
        if name.startswith(NAMED) and name.endswith(".jinja"):
            key = name.removeprefix(NAMED).removesuffix(".jinja")
            templates[key] = _text(data, name)
    return templates


def replace_chat_template(files: Mapping[str, bytes], template: str) -> dict[str, bytes]:
    """The files with `template` as the only chat template, in `chat_template.jinja`."""
    kept = {
        name: data
        for name, data in files.items()
        if name != LEGACY and not (name.startswith(NAMED) and name.endswith(".jinja"))
    }
    if CONFIG in kept:
        config = _object(kept[CONFIG], CONFIG)
        if config.pop("chat_template", None) is not None:
            kept[CONFIG] = (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
    kept[TEMPLATE] = template.encode()
    return kept


def special_token_variables(tokenizer: Tokenizer) -> dict[str, str]:
    """The special tokens by the names under which templates know them: `bos_token` and so on."""
    variables: dict[str, str] = {}
    for file in ("special_tokens_map.json", CONFIG):
        entries = _object(tokenizer.side_files[file], file) if file in tokenizer.side_files else {}
        for role in _ROLES:
            name = token_name(entries.get(f"{role}_token"))
            if name is not None:
                variables[f"{role}_token"] = name
    names = {token_id: name for name, token_id in tokenizer.special_tokens.items()}
    for role in ("bos", "eos", "pad"):
        token_id = getattr(tokenizer, f"{role}_token_id")
        if token_id in names:
            variables[f"{role}_token"] = names[token_id]
    return variables


def _entries(value: Any, name: str) -> dict[str, str]:
    """A `chat_template` entry: nothing, one template, or a list of {name, template}."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, Mapping):
        value = [{"name": key, "template": template} for key, template in value.items()]
    try:
        named = {entry["name"]: entry["template"] for entry in value}
    except (KeyError, TypeError):
        named = {"": None}
    for key, template in named.items():
        if not isinstance(key, str) or not isinstance(template, str):
            raise TokenizerError(
                f"{name} has a chat_template that is neither a text nor a list of named texts.",
                hint="Each entry needs a name and a template, both texts.",
            )
    return named


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"cannot read {name} as JSON: {error}.") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"{name} holds no JSON object.")
    return content


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{name} is not UTF-8: {error}.") from error
