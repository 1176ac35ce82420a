"""llama.cpp as the peer: a tiny model with a vocabulary, and the ids its server gives for text."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from llamita.formats.vocabulary import Vocabulary

Tokenize = Callable[..., list[int]]
_ROLES = {"pad": "pad_token_id", "unk": "unk_token_id"}
WIDTH = 32


def write_vocabulary(vocabulary: Vocabulary, path: Path) -> Path:
    """A one-layer model of zeros with this vocabulary, written by the gguf library."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(WIDTH)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_tokenizer_model(vocabulary.model)
    if vocabulary.pre is not None:
        writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    if vocabulary.scores is not None:
        writer.add_token_scores(vocabulary.scores)
    if vocabulary.types is not None:
        writer.add_token_types(vocabulary.types)
    if vocabulary.merges is not None:
        writer.add_token_merges(vocabulary.merges)
    for role, token_id in (vocabulary.ids or {}).items():
        getattr(writer, f"add_{_ROLES.get(role, role + '_token_id')}")(token_id)
    for name in ("add_bos", "add_eos", "add_space_prefix"):
        value = getattr(vocabulary, name)
        if value is not None:
            getattr(writer, f"add_{name}" + ("" if "space" in name else "_token"))(value)
    if vocabulary.chat_template is not None:
        writer.add_chat_template(vocabulary.chat_template)
    ones, square = np.ones(WIDTH, np.float32), np.zeros((WIDTH, WIDTH), np.float32)
    writer.add_tensor("token_embd.weight", np.zeros((len(vocabulary.tokens), WIDTH), np.float32))
    writer.add_tensor("output_norm.weight", ones)
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", ones)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", square)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@contextlib.contextmanager
def llama_cpp_address(path: Path, *, jinja: bool = False) -> Iterator[str]:
    """The address of llama.cpp's server for a GGUF file; `jinja`: with its own chat template."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel = 64, 1
    params.warmup = False
    params.use_jinja = jinja
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    yield server.listening_address


def ask(address: str, path: str, **body: Any) -> Any:
    """What the server at `address` answers."""
    request = urllib.request.Request(
        address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{path} answered {error.read().decode()}") from error


@contextlib.contextmanager
def llama_cpp(path: Path) -> Iterator[Tokenize]:
    """llama.cpp's tokenizer of a GGUF file: `tokenize(text, add_special=, parse_special=)`."""
    with llama_cpp_address(path) as address:

        def tokenize(
            text: str, add_special: bool = False, parse_special: bool = False
        ) -> list[int]:
            special = {"add_special": add_special, "parse_special": parse_special}
            tokens: list[int] = ask(address, "/tokenize", content=text, **special)["tokens"]
            return tokens

        yield tokenize
