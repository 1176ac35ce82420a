"""What ends a text is the same after a conversion, or the tokens that would be lost are named."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

import llamita
from llamita.errors import ConfigError
from llamita.formats.armgpt import feed_forward_width
from llamita.formats.checkpoint import HEAD, Checkpoint
from llamita.formats.detect import load_checkpoint
from llamita.formats.gguf_header import read_gguf_header
from llamita.formats.huggingface import save_model_directory
from llamita.formats.meta import write_meta
from llamita.formats.meta_params import scaling_of
from llamita.formats.stored import StoredTensor
from llamita.formats.vocabulary import CONTROL, Vocabulary
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.export import tiktoken_ranks
from llamita.tokenizer.gguf_vocabulary import from_vocabulary, to_vocabulary
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.load import checkpoint_tokenizer
from llamita.tokenizer.tiktoken_ranks import read_tiktoken
from llamita.tokenizer.train import train_tokenizer
from tests.formats.llama_cpp import LlamaCpp
from tests.tokenizer.foreign import ranks_of, tiktoken_file

from .conftest import SENTENCES, run_conversion, small_model

TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|turn|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def with_tokens(tokenizer: Tokenizer, *names: str) -> Tokenizer:
    """The tokenizer with more control tokens behind its others."""
    tables = to_vocabulary(tokenizer)
    more = len(names)
    vocabulary = Vocabulary(
        tables.model,
        [*tables.tokens, *names],
        pre=tables.pre,
        scores=tables.scores and [*tables.scores, *[-1e4] * more],
        types=[*(tables.types or []), *[CONTROL] * more],
        merges=tables.merges,
        ids={role: i for role, i in (tables.ids or {}).items() if role in ("bos", "eos", "unk")},
        add_bos=tables.add_bos,
        add_space_prefix=tables.add_space_prefix,
    )
    return from_vocabulary(vocabulary, Path("made"))


def saved(path: Path, tokenizer: Tokenizer, ends: object = None, **fields: object) -> Path:
    """A model directory whose generation_config.json names these ends."""
    generation = {} if ends is None else {"eos_token_id": ends}
    model = small_model(tokenizer, **fields)
    save_model_directory(model, path, tokenizer, generation=generation)
    return path


def ends_of(path: Path) -> tuple[int, ...]:
    return llamita.load(path, device="cpu").stop_token_ids


@pytest.fixture(scope="module")
def more_bpe(bpe_tokenizer: Tokenizer) -> Tokenizer:
    return with_tokens(bpe_tokenizer, "<|turn|>", "<|more|>", "<|other|>", "<|last|>")


@pytest.fixture(scope="module")
def more_spm(spm_tokenizer: Tokenizer) -> Tokenizer:
    return with_tokens(spm_tokenizer, "<|turn|>", "<|more|>")


def test_llama_cpp_stops_where_the_chat_template_ends_a_turn(
    more_bpe: Tokenizer, tmp_path: Path
) -> None:
    """Nothing but the template says that this token ends a turn."""
    tokenizer = more_bpe.with_chat_template(TURNS)
    report = run_conversion(saved(tmp_path / "hf", tokenizer), tmp_path / "m.gguf")
    assert report["differences"] == []
    turn = tokenizer.special_tokens["<|turn|>"]
    assert read_gguf_header(tmp_path / "m.gguf").metadata["tokenizer.ggml.eot_token_id"] == turn
    peer = LlamaCpp(tmp_path / "m.gguf", context=64)
    for forced, reason in ((turn, "stop"), (turn + 1, "length")):
        bias = [[forced, 1e4]]
        answer = peer._complete([5, 6, 7], 4, 1, ignore_eos=False, logit_bias=bias)
        assert answer["choices"][0]["finish_reason"] == reason


def test_ends_of_the_generation_config_travel_through_gguf_and_back(
    more_bpe: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    tokenizer = more_bpe.with_chat_template(TURNS)
    eos, turn = tokenizer.eos_token_id, tokenizer.special_tokens["<|turn|>"]
    source = saved(tmp_path / "hf", tokenizer, ends=[turn + 1, eos])
    wanted = tuple(sorted((eos or 0, turn, turn + 1)))
    assert ends_of(source) == wanted
    steps = [source, tmp_path / "1.gguf", tmp_path / "back", tmp_path / "2.gguf"]
    for before, after in pairwise(steps):
        report = run_conversion(before, after, target=None if after.suffix else "hf")
        assert report["differences"] == []
        assert not any("stop tokens" in note for note in report["notes"])
        assert ends_of(after) == wanted
        found = checkpoint_tokenizer(load_checkpoint(after))
        assert found is not None
        assert found.chat_template == TURNS
        assert found.special_tokens == tokenizer.special_tokens
    named = json.loads((tmp_path / "back" / "generation_config.json").read_text())["eos_token_id"]
    assert sorted(named) == list(wanted)
    first, second = (read_gguf_header(path).metadata for path in (steps[1], steps[3]))
    roles = [f"tokenizer.ggml.{role}_token_id" for role in ("bos", "eos", "eot", "eom")]
    assert [first[role] for role in roles] == [second[role] for role in roles]
    assert [first[role] for role in roles[2:]] == [turn, turn + 1]


def test_more_ends_than_gguf_names_are_refused(
    more_bpe: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    tokenizer = more_bpe.with_chat_template(TURNS)
    turn = tokenizer.special_tokens["<|turn|>"]
    source = saved(tmp_path / "hf", tokenizer, ends=[turn, turn + 1, turn + 2])
    for keep in (True, False):
        with pytest.raises(ConfigError, match=rf"eos_token_id is .*{turn + 1}, {turn + 2}\]"):
            run_conversion(source, tmp_path / "m.gguf", keep_tokenizer=keep)
        assert [path.name for path in tmp_path.iterdir()] == ["hf"]
    kept = run_conversion(source, tmp_path / "m.gguf", overrides={"eos_token_id": [0, turn + 2]})
    assert kept["differences"] == []
    assert ends_of(tmp_path / "m.gguf") == (0, turn, turn + 2)


@pytest.mark.parametrize("keep", [True, False])
def test_meta_holds_all_ends_beside_its_params(
    keep: bool, more_spm: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    eos, turn = more_spm.eos_token_id, more_spm.special_tokens["<|turn|>"]
    source = saved(tmp_path / "hf", more_spm, ends=[eos, turn, turn + 1])
    report = run_conversion(source, tmp_path / "meta", target="meta", keep_tokenizer=keep)
    assert report["differences"] == []
    assert ends_of(tmp_path / "meta") == (eos, turn, turn + 1)


def test_hermes_holds_what_its_chat_format_or_its_one_key_names(
    more_spm: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    tokenizer = more_spm.with_chat_template(TURNS)
    eos, turn = tokenizer.eos_token_id or 0, tokenizer.special_tokens["<|turn|>"]
    for number, (ends, key) in enumerate(
        [([eos, turn], eos), ([turn], eos), ([eos, turn, turn + 1], turn + 1)]
    ):
        source = saved(tmp_path / f"hf{number}", tokenizer, ends=ends)
        path = tmp_path / f"{number}" / "m.pt"
        assert run_conversion(source, path, target="hermes")["differences"] == []
        assert ends_of(path) == tuple(sorted({eos, *ends, turn}))
        assert load_checkpoint(path).config.eos_token_id == key
    bare = saved(tmp_path / "bare", more_spm, ends=[eos, turn, turn + 1])
    for keep, lost in ((True, (turn, turn + 1)), (False, (eos, turn, turn + 1))):
        with pytest.raises(ConfigError, match="it holds one id") as caught:
            run_conversion(bare, tmp_path / "new" / "m.pt", target="hermes", keep_tokenizer=keep)
        assert f"eos_token_id is {list(lost)}" in caught.value.message


def test_a_hermes_model_comes_back_from_gguf(
    spm_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    source = saved(tmp_path / "hf", spm_tokenizer)
    paths = [source, tmp_path / "a" / "m.pt", tmp_path / "m.gguf", tmp_path / "b" / "m.pt"]
    for before, after in pairwise(paths):
        target = "gguf" if after.suffix == ".gguf" else "hermes"
        assert run_conversion(before, after, target=target)["differences"] == []
    end = spm_tokenizer.special_tokens["<|im_end|>"]
    assert ends_of(paths[1]) == ends_of(paths[2]) == ends_of(paths[3])
    assert end in ends_of(paths[3])
    assert load_checkpoint(paths[3]).config == load_checkpoint(paths[1]).config


def test_armgpt_has_the_ends_of_its_tokenizer_alone(tmp_path: Path, no_runtime: None) -> None:
    tokenizer = train_tokenizer(SENTENCES, "char")
    eos = tokenizer.eos_token_id
    assert eos is not None
    fields = {"intermediate_size": feed_forward_width(32), "num_key_value_heads": 4}
    source = saved(tmp_path / "hf", tokenizer, ends=[eos, 9], **fields)
    with pytest.raises(ConfigError, match=r"eos_token_id is \[9\].*ArmGPT"):
        run_conversion(source, tmp_path / "a" / "m.pt", target="armgpt")
    report = run_conversion(source, tmp_path / "b" / "m.pt", target="armgpt", keep_tokenizer=False)
    assert report["differences"] == []
    assert any(f"the tokens [{eos}, 9], which end a text" in note for note in report["notes"])


def test_llama_3_1_ends_messages_that_wait_for_a_tool(
    bpe_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    """Meta's folder says no ends: they are those of its tokenizer, in both formats."""
    assert isinstance(bpe_tokenizer, HFTokenizer)
    ranks = tiktoken_file(ranks_of(bpe_tokenizer, 3))
    tokenizer = read_tiktoken(ranks, {}, scaled=True, path=Path("tokenizer.model"))
    model = small_model(tokenizer, eos_token_id=None, bos_token_id=None, rope_theta=500000.0)
    scaled = model.config.with_changes(rope_scaling=scaling_of(32))
    tensors = {name: StoredTensor.of(tensor) for name, tensor in model.state_dict().items()}
    del tensors[HEAD]
    write_meta(Checkpoint(scaled, tensors, tmp_path), tmp_path / "meta")
    (tmp_path / "meta" / "tokenizer.model").write_bytes(tiktoken_ranks(tokenizer))
    names = ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")
    wanted = tuple(tokenizer.special_tokens[name] for name in names)
    assert ends_of(tmp_path / "meta") == wanted
    report = run_conversion(tmp_path / "meta", tmp_path / "m.gguf")
    assert report["differences"] == []
    metadata = read_gguf_header(tmp_path / "m.gguf").metadata
    keys = [metadata[f"tokenizer.ggml.{role}_token_id"] for role in ("eos", "eom", "eot")]
    assert tuple(keys) == wanted
    assert ends_of(tmp_path / "m.gguf") == wanted
