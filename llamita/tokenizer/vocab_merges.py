"""Byte-level BPE in the old form: `vocab.json`, `merges.txt`, and a class that says the rest.

The files hold no pattern that splits text. `tokenizer_config.json` names the class that has it in
its code: GPT-2's, or Qwen2's, which also brings text into NFC.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llamita.errors import TokenizerError
from llamita.files import parse_json
from llamita.tokenizer.convert import added_token, bpe_definition, template
from llamita.tokenizer.definition import check_vocabulary
from llamita.tokenizer.gguf_pre import BY_NAME, pre_tokenizer_steps
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.special import token_name

VOCAB, MERGES = "vocab.json", "merges.txt"
CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
_PATTERNS = {"GPT2Tokenizer": "gpt-2", "Qwen2Tokenizer": "qwen2"}
_ROLES = ("bos", "eos", "unk", "pad", "sep", "cls", "mask")


def read_vocab_and_merges(
    directory: Path, files: Mapping[str, bytes], generation: Mapping[str, Any]
) -> HFTokenizer:
    """The tokenizer of a directory with `vocab.json` and `merges.txt`; `files` are its side files.

    Raises:
        TokenizerError: it is damaged, or of a class whose pattern is not known.
    """
    config, roles = _object(files, CONFIG, directory), _object(files, MAP, directory)
    name = str(config.get("tokenizer_class") or "").removesuffix("Fast")
    if name not in _PATTERNS:
        raise TokenizerError(
            f"{directory} has a tokenizer in the old form vocab.json and merges.txt"
            + (f", of the class {name}." if name else " that does not say how it splits text."),
            hint="Load it once with transformers.AutoTokenizer and save it: that writes "
            "tokenizer.json.",
        )
    vocabulary = _object(files, VOCAB, directory)
    check_vocabulary(vocabulary, directory / VOCAB)
    merges = _merges(files[MERGES], vocabulary, directory / MERGES)
    added = _added_tokens(config, roles, _object(files, ADDED, directory), vocabulary, directory)
    pre_tokenizer = pre_tokenizer_steps(BY_NAME[_PATTERNS[name]])
    if config.get("add_prefix_space") and name == "GPT2Tokenizer":
        pre_tokenizer = {**pre_tokenizer["pretokenizers"][-1], "use_regex": True}
        pre_tokenizer["add_prefix_space"] = True
    bos = token_name(config.get("bos_token", roles.get("bos_token")))
    framed = {token["id"]: token["content"] for token in added if token["content"] == bos}
    prefix = list(framed) if config.get("add_bos_token") else []
    definition = bpe_definition(
        vocabulary,
        merges,
        sorted(added, key=lambda token: int(token["id"])),
        normalizer={"type": "NFC"} if name == "Qwen2Tokenizer" else None,
        pre_tokenizer=pre_tokenizer,
        post_processor=template(framed, prefix, []),
    )
    return HFTokenizer(
        definition,
        files,
        generation=generation,
        path=directory / VOCAB,
    )


def _added_tokens(
    config: Mapping[str, Any],
    roles: Mapping[str, Any],
    extra: Mapping[str, Any],
    vocabulary: dict[str, int],
    directory: Path,
) -> list[dict[str, Any]]:
    """Tokens beside the vocabulary, and those of it that have a role; added to `vocabulary`."""
    check_vocabulary(extra, directory / ADDED)
    tokens = {name: added_token(name, token_id, False) for name, token_id in extra.items()}
    for key, entry in (config.get("added_tokens_decoder") or {}).items():
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            raise TokenizerError(f"{directory / CONFIG} has a damaged added_tokens_decoder.")
        made = added_token(entry["content"], int(key), bool(entry.get("special")))
        options = {key: entry[key] for key in made if key in entry and key != "id"}
        tokens[entry["content"]] = made | options
    named = [config.get(f"{role}_token", roles.get(f"{role}_token")) for role in _ROLES]
    named += config.get("additional_special_tokens") or []
    named += roles.get("additional_special_tokens") or []
    for name in filter(None, map(token_name, named)):
        if name in tokens:
            tokens[name]["special"] = True
        elif name in vocabulary:
            tokens[name] = added_token(name, vocabulary[name], True)
    for name, token in tokens.items():
        if vocabulary.setdefault(name, token["id"]) != token["id"]:
            raise TokenizerError(
                f"{directory} gives the token {name!r} two ids, {vocabulary[name]} and "
                f"{token['id']}."
            )
    return list(tokens.values())


def _merges(data: bytes, vocabulary: Mapping[str, int], path: Path) -> list[str]:
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path} is not UTF-8: {error}.") from error
    merges = []
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        left, _, right = line.partition(" ")
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise TokenizerError(
                f"{path} is damaged: line {number}, {line[:60]!r}, names what is no token."
            )
        merges.append(line)
    return merges


def _object(files: Mapping[str, bytes], name: str, directory: Path) -> dict[str, Any]:
    if name not in files:
        return {}
    content = parse_json(files[name], directory / name, TokenizerError)
    if not isinstance(content, dict):
        raise TokenizerError(f"{directory / name} holds no JSON object.")
    return content
