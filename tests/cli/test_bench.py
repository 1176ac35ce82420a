"""`llamita bench`: the keys and counts of its JSON, its table, and what it refuses; no timings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from llamita.cli.main import run
from llamita.config import ModelConfig
from llamita.evaluation import machine, speed
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer

KEYS = (
    "prefill_tok_s",
    "decode_tok_s",
    "ttft_s",
    "peak_memory_mb",
    "weight_bytes",
    "bandwidth_gb_s",
    "roofline_share",
)


def save(folder: Path, **changes: object) -> str:
    """A tiny model of 60 tokens without a tokenizer."""
    settings: dict[str, object] = {
        "vocab_size": 60,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
    }
    config = ModelConfig(**settings | changes)  # type: ignore[arg-type]
    save_model_directory(Transformer(config).initialize(0), folder, None)
    return str(folder)


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reading gigabytes in order says no more here than a little; the threads stay as they are."""
    monkeypatch.setattr(machine, "_LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(machine, "_last_cache_bytes", lambda: 0)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(tmp_path_factory.mktemp("bench") / "model")


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["bench", *arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_json_is_one_object_with_the_keys_of_the_design(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = bench(capsys, model, "--repeats", "1")
    for key in KEYS:
        value = found[key]
        assert isinstance(value, int | float)
        assert math.isfinite(value)
        assert value > 0
    # Embedding, which is the head too; per layer q, k, v, o, three of the MLP and two norms; one.
    weights = 60 * 16 + 2 * (4 * 16 * 16 + 3 * 16 * 24 + 2 * 16) + 16
    assert found["weight_bytes"] == 4 * weights
    assert (found["device"], found["dtype"], found["compile"]) == ("cpu", "float32", False)
    # Of 64 positions 32 are generated: all default lengths become one.
    runs = found["runs"]
    assert isinstance(runs, list)
    assert [(line["prompt_tokens"], line["batch_size"]) for line in runs] == [
        (32, 1),
        (32, 4),
    ]
    assert found["decode_tok_s"] == runs[0]["decode_tok_s"]
    assert found["ttft_s"] == runs[0]["ttft_s"]


def test_lengths_sizes_and_threads_are_the_users(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    settings = ("--prompt-tokens", "40,7,7", "--batch-sizes", "3,2", "--new-tokens", "5")
    found = bench(capsys, model, *settings, "--repeats", "2", "--threads", "1")
    assert [(line["prompt_tokens"], line["batch_size"]) for line in found["runs"]] == [  # type: ignore[attr-defined]
        (40, 3),
        (40, 2),
        (7, 3),
        (7, 2),
    ]
    assert {line["new_tokens"] for line in found["runs"]} == {5}  # type: ignore[attr-defined]
    assert (found["prompt_tokens"], found["batch_size"], found["threads"]) == (40, 2, 1)
    assert threads == [1]


def test_the_table_shows_every_setting(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", model, "--prompt-tokens", "9,11", "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    head = lines.index(next(line for line in lines if line.startswith("prompt")))
    assert [line.split()[:2] for line in lines[head + 1 :]] == [
        [length, size] for length in ("9", "11") for size in ("1", "4")
    ]
    assert "GB/s" in out
    assert "share of that limit" in out
    assert len({len(line) for line in lines[head:]}) == 1


@pytest.mark.parametrize("changes", [{"sliding_window": 8}, {"tie_word_embeddings": False}])
def test_other_shapes_and_precisions(
    changes: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("--dtype", "bfloat16", "--kv-cache-dtype", "float32", "--repeats", "1")
    found = bench(capsys, save(tmp_path / "model", **changes), *settings)
    assert found["dtype"] == "bfloat16"
    assert found["roofline_share"] > 0  # type: ignore[operator]


def test_the_smallest_context_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = bench(capsys, save(tmp_path / "model", max_position_embeddings=2), "--repeats", "1")
    assert [line["prompt_tokens"] for line in found["runs"]] == [1, 1]  # type: ignore[attr-defined]


def test_a_head_of_its_own_is_read_and_its_embedding_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    share = speed.roofline_share

    def noted(run, backend, weight_bytes_read, bandwidth):
        read.append(weight_bytes_read)
        return share(run, backend, weight_bytes_read, bandwidth)

    monkeypatch.setattr(speed, "roofline_share", noted)
    settings = ("--prompt-tokens", "4", "--batch-sizes", "1", "--repeats", "1")
    tied = bench(capsys, save(tmp_path / "tied"), *settings)
    untied = bench(capsys, save(tmp_path / "untied", tie_word_embeddings=False), *settings)
    table = 4 * 60 * 16
    assert untied["weight_bytes"] == tied["weight_bytes"] + table  # type: ignore[operator]
    assert read == [tied["weight_bytes"]] * 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--prompt-tokens", "x"), "--prompt-tokens is 'x'"),
        (("--prompt-tokens", "3,,4"), "--prompt-tokens is '3,,4'"),
        (("--prompt-tokens", "0"), "prompt_tokens has 0"),
        (("--prompt-tokens", "60"), "prompt_tokens has 60"),
        (("--batch-sizes", "0"), "batch_sizes has 0"),
        (("--batch-sizes", "1.5"), "--batch-sizes is '1.5'"),
        (("--new-tokens", "0"), "new_tokens is 0"),
        (("--new-tokens", "64"), "new_tokens is 64"),
        (("--repeats", "0"), "repeats is 0"),
        (("--threads", "0"), "--threads is 0"),
        (("--threads", "100000"), "--threads is 100000"),
        (("--kv-cache-dtype", "int8"), "kv_cache_dtype is 'int8'"),
        (("--dtype", "int8"), "int8"),
        (("--device", "toaster"), "toaster"),
    ],
)
def test_wrong_values_are_refused_by_name(
    model: str, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", model, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize("granted", [True, False])
def test_too_many_rows_for_the_memory_are_told(
    model: str, granted: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(speed, "measure_speed", measure)
    if granted:
        # 17 rows of 64 positions, in each of two layers a key and a value of 16 numbers.
        monkeypatch.setattr(machine, "physical_memory", lambda: 17 * 64 * 2 * 2 * 16 * 4 - 1)
        monkeypatch.setattr(speed, "measure_speed", lambda *_, **__: pytest.fail("was begun"))
    assert run(["bench", model, "--batch-sizes", "17"]) == 2
    assert "not memory enough for 17 texts of 64 tokens" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(speed, "measure_speed", stopped)
    assert run(["bench", model]) == 130
    assert capsys.readouterr().out == ""
