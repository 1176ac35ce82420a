"""Sound checkpoints of every format, as small as they can be, made by code."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from llamita.config import ModelConfig
from llamita.formats.armgpt import write_armgpt
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.detect import load_checkpoint
from llamita.formats.gguf_write import write_gguf
from llamita.formats.hermes import write_hermes
from llamita.formats.huggingface import save_model_directory
from llamita.formats.meta import write_meta
from llamita.formats.safetensors_file import write_safetensors
from llamita.formats.stored import StoredTensor
from llamita.formats.torch_file import read_torch_file
from llamita.formats.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, Vocabulary
from llamita.model.transformer import Transformer
from llamita.tokenizer.train import train_tokenizer
from tests.fuzz.gguf_parts import GGUFParts

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_WORDS = "the a llama sees every small tree near our river and walks home slowly when rain falls"


@dataclass(frozen=True)
class Base:
    """A sound checkpoint in a folder of its own.

    Attributes:
        target: what a user names as MODEL, inside the folder ("." is the folder).
        overrides: what the user adds with --override.
    """

    name: str
    target: str = "."
    overrides: dict[str, Any] = field(default_factory=dict)


BASES = (
    Base("hf"),
    Base("hf-sharded"),
    Base("hf-bin"),
    Base("hermes", "model.pt"),
    Base("hermes-bare", "model.pt", {"num_attention_heads": 4}),
    Base("hermes-legacy", "model.pt"),
    Base("armgpt", "model.pt"),
    Base("meta"),
    Base("meta-sharded"),
    Base("gguf-bpe", "model.gguf"),
    Base("gguf-spm", "model.gguf"),
)


def make_bases(folder: Path) -> None:
    """Write every base into `folder / base.name`."""
    draw = random.Random(0)
    texts = [" ".join(draw.choice(_WORDS.split()) for _ in range(200)) for _ in range(20)]
    tokenizers = {
        kind: train_tokenizer(texts, spec, sample_bytes=20_000)
        for kind, spec in (("bpe", "bpe:300"), ("spm", "spm:300"), ("unigram", "unigram:290"))
    }
    for base in BASES:
        (folder / base.name).mkdir(parents=True)
    _save(folder / "hf", tokenizers["bpe"], vocab_size=300)
    _add_template(folder / "hf")
    _save(folder / "hf-sharded", tokenizers["spm"], vocab_size=304)
    _split(folder / "hf-sharded")
    (folder / "hf-sharded" / "tokenizer.json").unlink()
    _save(folder / "hf-bin", tokenizers["unigram"], vocab_size=304)
    _as_pickle(folder / "hf-bin")
    model = (folder / "hf-sharded" / "tokenizer.model").read_bytes()

    plain = load_checkpoint(folder / "hf-sharded")
    for name in ("hermes", "hermes-legacy", "hermes-bare"):
        path = folder / name / "model.pt"
        write_hermes(plain, path)
        _rewrite(path, bare=name.endswith("bare"), is_zip=not name.endswith("legacy"))
        (folder / name / "tokenizer.model").write_bytes(model)
    many_heads = _checkpoint(folder, vocab_size=304, num_key_value_heads=4, intermediate_size=128)
    write_armgpt(many_heads, folder / "armgpt" / "model.pt")
    _rewrite(folder / "armgpt" / "model.pt")
    _write_armgpt_tokenizer(folder / "armgpt" / "tokenizer.json", model)
    for name, vocab_size in (("meta", 304), ("meta-sharded", 516)):
        (folder / name).rmdir()
        untied = _checkpoint(folder, vocab_size=vocab_size, tie_word_embeddings=False)
        write_meta(untied, folder / name)
        _rewrite(folder / name / "consolidated.00.pth")
    (folder / "meta" / "tokenizer.model").write_bytes(model)
    _split_meta(folder / "meta-sharded")
    _write_ranks(folder / "meta-sharded" / "tokenizer.model")
    source = load_checkpoint(folder / "hf")
    ends = replace(source, config=source.config.with_changes(eos_token_id=260), generation={})
    _write_gguf(folder / "gguf-bpe" / "model.gguf", ends, _bpe(), 2)
    _write_gguf(folder / "gguf-spm" / "model.gguf", plain, _spm(), 3)


def _config(**fields: Any) -> ModelConfig:
    shape: dict[str, Any] = {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return ModelConfig(**{**shape, **fields})


def _save(folder: Path, tokenizer: Any, **fields: Any) -> None:
    model = Transformer(_config(**fields)).initialize(0)
    save_model_directory(model, folder, tokenizer, generation={"temperature": 0.7}, overwrite=True)


def _checkpoint(folder: Path, **fields: Any) -> Checkpoint:
    config = _config(**fields)
    state = Transformer(config).initialize(0).state_dict()
    if config.tie_word_embeddings:
        del state["lm_head.weight"]
    return Checkpoint(config, {n: StoredTensor.of(t) for n, t in state.items()}, folder)


def _add_template(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "chat_template": TEMPLATE}))


def _split(folder: Path) -> None:
    tensors = load_checkpoint(folder).tensors
    (folder / "model.safetensors").unlink()
    write_safetensors(tensors, folder, largest_shard=120_000)


def _as_pickle(folder: Path) -> None:
    tensors = {name: t.read().clone() for name, t in load_checkpoint(folder).tensors.items()}
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")


def _rewrite(path: Path, bare: bool = False, is_zip: bool = True) -> None:
    """The same content as PyTorch itself writes it."""
    content = _copied(read_torch_file(path))
    torch.save(content["model"] if bare else content, path, _use_new_zipfile_serialization=is_zip)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return value.clone() if isinstance(value, torch.Tensor) else value


def _split_meta(folder: Path) -> None:
    """Two model-parallel shards, as Llama 2 was published."""
    whole = _copied(read_torch_file(folder / "consolidated.00.pth"))
    for rank in range(2):
        shard = {}
        for name, tensor in whole.items():
            by_columns = name.endswith((".wo.weight", ".w2.weight")) or "tok_emb" in name
            shard[name] = (
                tensor if tensor.dim() == 1 else tensor.chunk(2, int(by_columns))[rank].clone()
            )
        torch.save(shard, folder / f"consolidated.{rank:02}.pth")


def _write_ranks(path: Path) -> None:
    import base64

    tokens = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" a", b"in"]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    path.write_text("\n".join(lines) + "\n")


def _write_armgpt_tokenizer(path: Path, model: bytes) -> None:
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor(model_proto=model).get_piece_size()
    content = {
        "type": "bpe",
        "vocab_size": pieces,
        "model_file": model.hex(),
        "special_tokens": {"<|user|>": pieces, "<|assistant|>": pieces + 1, "<|end|>": pieces + 2},
    }
    path.write_text(json.dumps(content))


def _bpe() -> Vocabulary:
    from llamita.tokenizer.surface import BYTE_CHARACTERS

    tokens = [*BYTE_CHARACTERS, "th", "the", "Ġa", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    return Vocabulary(
        "gpt2",
        tokens,
        pre="qwen2",
        types=[NORMAL] * 259 + [CONTROL] * 3,
        merges=["t h", "th e", "Ġ a"],
        ids={"bos": 261, "eos": 260, "pad": 261},
        add_bos=False,
        chat_template=TEMPLATE,
    )


def _spm() -> Vocabulary:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a"]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * 3]
    scores = [0.0] * 259 + [-3.0, -2.0, -1.0]
    ids = {"bos": 1, "eos": 2, "unk": 0}
    return Vocabulary("llama", tokens, scores=scores, types=types, ids=ids, add_bos=True)


def _write_gguf(path: Path, checkpoint: Checkpoint, vocabulary: Vocabulary, version: int) -> None:
    """With one tensor each of several block formats; any bytes are numbers in those."""
    write_gguf(checkpoint, vocabulary, path, "q8_0" if version == 2 else "q4_0")
    parts = GGUFParts.parse(path.read_bytes())
    parts.version = version
    draw = random.Random(1)
    # Q4_K, Q6_K, Q3_K and Q5_K: numbers of the type, and bytes of a block of 256.
    kinds = [(12, 144), (14, 210), (11, 110), (13, 176)]
    for tensor in parts.tensors:
        if tensor.name.endswith("ffn_down.weight") and kinds:
            tensor.kind, size = kinds.pop(0)
            blocks = [draw.randbytes(size - 4) + b"\x00\x10\x00\x10" for _ in range(32)]
            tensor.data = b"".join(blocks)
    path.write_bytes(parts.build())


def copy_base(base: Base, bases: Path, destination: Path) -> None:
    """A fresh copy of a base's folder."""
    shutil.copytree(bases / base.name, destination, copy_function=shutil.copyfile)
