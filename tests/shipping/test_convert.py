"""Converting: what is written, refused, kept, marked and replaced."""

from __future__ import annotations

import errno
import json
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

import llamita
from llamita.errors import CheckpointError, ConfigError, LlamitaError
from llamita.formats import huggingface
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.shipping import runtimes, verify_conversion
from llamita.tokenizer.base import Tokenizer
from tests.shipping.conftest import run_conversion, small_model


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_directory_is_copied_verified_and_reported(
    hf: Path, tmp_path: Path, no_runtime: None
) -> None:
    report = run_conversion(hf, tmp_path / "out", target="hf")
    assert report["status"] == "self-check"
    assert report["same"] is True
    assert report["max_logit_gap"] == 0.0
    assert report["greedy_equal"] is report["token_ids_equal"] is True
    assert report["tensors_compared"] == len(load_checkpoint(hf).tensors)
    assert report["differences"] == []
    assert json.loads((tmp_path / "out" / "verify.json").read_text()) == report
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == sorted([*names(hf), "verify.json"])
    [weights] = report["weights"].values()
    assert weights["bytes"] == (hf / "model.safetensors").stat().st_size
    assert len(weights["sha256"]) == 64


def test_transformers_judges_a_directory(hf: Path, tmp_path: Path) -> None:
    report = run_conversion(hf, tmp_path / "out", target="hf")
    assert report["status"] == "verified"
    assert report["runtime"]["name"] == "transformers"
    assert report["runtime"]["token_ids_equal"] is True
    assert report["runtime"]["max_logit_gap"] <= 1e-4
    assert report["runtime"]["positions"] >= 64


def test_without_the_runtime_it_is_a_self_check_and_says_what_is_missing(
    hf: Path, tmp_path: Path, no_runtime: None
) -> None:
    report = run_conversion(hf, tmp_path / "out", target="hf")
    assert report["status"] == "self-check"
    assert "transformers" in report["notes"][-1]
    assert "not installed" in report["notes"][-1]


def test_no_verify_is_said_in_the_report(hf: Path, tmp_path: Path) -> None:
    report = run_conversion(hf, tmp_path / "out", target="hf", verify=False)
    assert report["status"] == "unverified"
    assert report["max_logit_gap"] is None
    assert names(tmp_path / "out") == sorted([*names(hf), "verify.json"])


@pytest.mark.parametrize("quantization", ["f16", "bf16", "f32"])
def test_a_narrower_type_is_rounding_and_nothing_else(
    hf: Path, tmp_path: Path, no_runtime: None, quantization: str
) -> None:
    report = run_conversion(hf, tmp_path / "out", target="hf", quantization=quantization)
    assert report["status"] == "self-check"
    checkpoint = load_checkpoint(tmp_path / "out")
    wanted = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
    assert {t.dtype for t in checkpoint.tensors.values()} == {wanted[quantization]}
    if quantization == "f32":
        assert report["max_logit_gap"] == 0.0
        assert report["bits_per_byte"] is None
    else:
        assert 1e-5 < report["max_logit_gap"] < 0.2
        assert report["rounded_logit_gap"] == 0.0
        assert abs(report["bits_per_byte"]["before"] - report["bits_per_byte"]["after"]) < 0.05


def test_tensors_of_several_types_each_keep_their_own(
    bpe_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    model = small_model(bpe_tokenizer)
    model.model.layers[0].to(torch.bfloat16)
    model.model.layers[1].mlp.to(torch.float16)
    save_model_directory(model, tmp_path / "mixed", bpe_tokenizer)
    report = run_conversion(tmp_path / "mixed", tmp_path / "out", target="hf")
    assert report["status"] == "self-check"
    before, after = (load_checkpoint(tmp_path / name).tensors for name in ("mixed", "out"))
    assert {n: t.dtype for n, t in before.items()} == {n: t.dtype for n, t in after.items()}
    assert len({t.dtype for t in after.values()}) == 3


def test_text_of_the_user_is_measured_before_and_after(
    hf: Path, tmp_path: Path, no_runtime: None
) -> None:
    report = run_conversion(
        hf, tmp_path / "out", target="hf", quantization="bf16", texts=["the quick brown dog"]
    )
    found = report["bits_per_byte"]["text"]
    assert found["bytes"] == 19
    assert found["before"] == pytest.approx(found["after"], abs=0.1)


def test_the_generation_config_goes_along(
    bpe_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    generation = {"eos_token_id": [0, 3], "temperature": 0.6}
    model = small_model(bpe_tokenizer)
    save_model_directory(model, tmp_path / "in", bpe_tokenizer, generation=generation)
    run_conversion(tmp_path / "in", tmp_path / "out", target="hf")
    assert load_checkpoint(tmp_path / "out").generation["eos_token_id"] == [0, 3]
    assert llamita.load(tmp_path / "out").stop_token_ids == (0, 3)


def test_the_tokenizer_can_be_left_out(hf: Path, tmp_path: Path, no_runtime: None) -> None:
    report = run_conversion(hf, tmp_path / "out", target="hf", keep_tokenizer=False)
    assert report["token_ids_equal"] is None
    assert report["status"] == "self-check"
    assert not (tmp_path / "out" / "tokenizer.json").exists()


def test_a_number_that_float16_lacks_is_refused_by_name(
    bpe_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = small_model(bpe_tokenizer)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[2, 3] = -70000.0
    save_model_directory(model, tmp_path / "in", bpe_tokenizer)
    with pytest.raises(ConfigError, match=r"layers\.1\.mlp\.down_proj\.weight .* 70000"):
        run_conversion(tmp_path / "in", tmp_path / "out", target="hf", quantization="f16")
    assert names(tmp_path) == ["in"]


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "no such target": ({"target": "onnx"}, "known are hf, meta"),
    "no target": ({}, "--to is left out"),
    "no such quantization": ({"target": "hf", "quantization": "q5"}, "known are f32"),
    "blocks outside GGUF": ({"target": "hf", "quantization": "q8_0"}, "a format of GGUF"),
    "a preset for a file that says its shape": (
        {"target": "hf", "preset": "1b"},
        "preset",
    ),
    "an override that cannot be": ({"target": "hf", "overrides": {"rope_theta": -1.0}}, "theta"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_wrong_use_is_refused_and_writes_nothing(hf: Path, tmp_path: Path, refusal: str) -> None:
    settings, message = REFUSALS[refusal]
    with pytest.raises(LlamitaError, match=message):
        run_conversion(hf, tmp_path / "out", **settings)
    assert names(tmp_path) == []


def test_a_suffix_of_another_format_is_refused(hf: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="suffix of gguf"):
        run_conversion(hf, tmp_path / "out.gguf", target="hf")
    assert names(tmp_path) == []


class TestWhatIsThere:
    """A destination that exists, or that holds the source."""

    def test_is_never_replaced_unasked(self, hf: Path, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine.txt").write_text("mine")
        with pytest.raises(CheckpointError, match="exists") as caught:
            run_conversion(hf, tmp_path / "out", target="hf")
        assert "--overwrite" in str(caught.value)
        assert names(tmp_path / "out") == ["mine.txt"]

    def test_an_empty_folder_is_nothing(self, hf: Path, tmp_path: Path, no_runtime: None) -> None:
        (tmp_path / "out").mkdir()
        assert run_conversion(hf, tmp_path / "out", target="hf")["status"] == "self-check"

    def test_overwrite_replaces_a_former_result(
        self, hf: Path, tmp_path: Path, no_runtime: None
    ) -> None:
        run_conversion(hf, tmp_path / "out", target="hf")
        report = run_conversion(
            hf, tmp_path / "out", target="hf", quantization="bf16", overwrite=True
        )
        assert report["quantization"] == "bf16"
        assert load_checkpoint(tmp_path / "out").dtype == torch.bfloat16

    def test_overwrite_spares_a_model_that_was_not_converted(
        self, hf: Path, tmp_path: Path
    ) -> None:
        shutil.copytree(hf, tmp_path / "out")
        with pytest.raises(CheckpointError, match="not the result of a conversion"):
            run_conversion(hf, tmp_path / "out", target="hf", overwrite=True)
        assert names(tmp_path / "out") == names(hf)

    def test_overwrite_spares_other_things_beside_a_result(
        self, hf: Path, tmp_path: Path, no_runtime: None
    ) -> None:
        run_conversion(hf, tmp_path / "out", target="hf")
        (tmp_path / "out" / "notes").mkdir()
        (tmp_path / "out" / "notes" / "mine.txt").write_text("mine")
        with pytest.raises(CheckpointError, match=r"notes/mine\.txt"):
            run_conversion(hf, tmp_path / "out", target="hf", overwrite=True)
        assert (tmp_path / "out" / "notes" / "mine.txt").read_text() == "mine"

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_the_source_is_no_destination(self, hf: Path, tmp_path: Path, overwrite: bool) -> None:
        shutil.copytree(hf, tmp_path / "a" / "b")
        for destination in (tmp_path / "a" / "b", tmp_path / "a", tmp_path / "a" / "b" / ".."):
            with pytest.raises(CheckpointError, match="is the source"):
                run_conversion(tmp_path / "a" / "b", destination, target="hf", overwrite=overwrite)
        assert names(tmp_path / "a" / "b") == names(hf)

    def test_a_file_is_no_folder(self, hf: Path, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("mine")
        with pytest.raises(CheckpointError, match="is a file"):
            run_conversion(hf, tmp_path / "out", target="hf", overwrite=True)
        assert (tmp_path / "out").read_text() == "mine"

    def test_a_report_of_something_else_is_not_touched(self, hf: Path, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "verify.json").write_text("[1]")
        with pytest.raises(CheckpointError, match="no report of a conversion"):
            run_conversion(hf, tmp_path / "out", target="hf", overwrite=True)
        assert (tmp_path / "out" / "verify.json").read_text() == "[1]"


def break_writer(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A writer that changes one number of one tensor."""
    right = huggingface.write_model_files

    def wrong(config: Any, tensors: Any, *rest: Any) -> None:
        def change(numbers: torch.Tensor) -> torch.Tensor:
            numbers = numbers.clone()
            numbers.view(-1)[7] += 1e-6
            return numbers

        right(config, {**tensors, name: tensors[name].then(change)}, *rest)

    monkeypatch.setattr(huggingface, "write_model_files", wrong)


class TestFailedVerification:
    """The result is kept, and does not look like one that passed."""

    def test_is_marked_and_says_why(
        self, hf: Path, tmp_path: Path, no_runtime: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        break_writer(monkeypatch, "model.layers.1.mlp.up_proj.weight")
        report = run_conversion(hf, tmp_path / "out", target="hf")
        assert report["status"] == "failed"
        assert report["same"] is False
        assert "1 of 20 tensors" in report["differences"][0]
        assert "model.layers.1.mlp.up_proj.weight (1 of" in report["differences"][0]
        mark = (tmp_path / "out" / "UNVERIFIED").read_text()
        assert report["differences"][0] in mark
        assert json.loads((tmp_path / "out" / "verify.json").read_text())["status"] == "failed"

    def test_a_run_that_succeeds_takes_the_mark_away(
        self, hf: Path, tmp_path: Path, no_runtime: None
    ) -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            break_writer(monkeypatch, "model.norm.weight")
            run_conversion(hf, tmp_path / "out", target="hf")
        assert (tmp_path / "out" / "UNVERIFIED").exists()
        run_conversion(hf, tmp_path / "out", target="hf", overwrite=True)
        assert not (tmp_path / "out" / "UNVERIFIED").exists()

    def test_a_result_that_cannot_be_read_back_has_failed(
        self, hf: Path, tmp_path: Path, no_runtime: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = huggingface.write_model_files

        def half(config: Any, tensors: Any, directory: Path, *rest: Any) -> None:
            right(config, tensors, directory, *rest)
            data = (directory / "model.safetensors").read_bytes()
            (directory / "model.safetensors").write_bytes(data[: len(data) // 2])

        monkeypatch.setattr(huggingface, "write_model_files", half)
        report = run_conversion(hf, tmp_path / "out", target="hf")
        assert report["status"] == "failed"
        assert "cannot be read back" in report["differences"][0]
        assert str(tmp_path / "out") in report["differences"][0]
        assert ".tmp" not in report["differences"][0]

    def test_a_tokenizer_with_a_swapped_token_has_failed(
        self, hf: Path, tmp_path: Path, no_runtime: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def swapped(self: Any, directory: Path, file_name: str | None) -> None:
            self.write(directory)
            for name, data in self.side_files.items():
                if name == "tokenizer.json":
                    content = json.loads(data)
                    vocabulary = content["model"]["vocab"]
                    a, b = list(vocabulary)[300:302]
                    vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]
                    data = json.dumps(content).encode()
                (directory / name).write_bytes(data)

        monkeypatch.setattr("llamita.shipping.targets.Plan.write_all", swapped)
        report = run_conversion(hf, tmp_path / "out", target="hf")
        assert report["status"] == "failed"
        assert report["token_ids_equal"] is False

    def test_a_runtime_that_crashes_has_failed(
        self, hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runtimes, "WORKER", ["-c", "import os; os.abort()"])
        report = run_conversion(hf, tmp_path / "out", target="hf")
        assert report["status"] == "failed"
        assert "transformers cannot use it: it ended with code -6" in report["differences"][0]

    def test_a_runtime_that_answers_otherwise_has_failed(
        self, hf: Path, tmp_path: Path, worker_here: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a fault shared by our reader and writer looks like."""
        right = verify_conversion._compare_models

        def shifted(*arguments: Any) -> Any:
            probe = right(*arguments)
            probe.logits.mul_(1.001)
            return probe

        monkeypatch.setattr(verify_conversion, "_compare_models", shifted)
        report = run_conversion(hf, tmp_path / "out", target="hf")
        assert report["status"] == "failed"
        assert "transformers gives other logits" in report["differences"][0]


def test_a_model_too_large_for_the_memory_is_compared_by_tensors_alone(
    hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_conversion, "available_memory", lambda: 1e6)
    report = run_conversion(hf, tmp_path / "out", target="hf")
    assert report["status"] == "self-check"
    assert report["max_logit_gap"] is None
    assert report["tensors_compared"] == 20
    assert "logits were not compared" in report["notes"][0]


class TestStoppedHalfWay:
    """Nothing under the final name, and what is left goes away."""

    @pytest.mark.parametrize("exception", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
    def test_leaves_nothing(
        self, hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exception: BaseException
    ) -> None:
        def stop(*arguments: Any) -> None:
            raise exception

        monkeypatch.setattr(huggingface, "write_json", stop)
        with pytest.raises(type(exception)):
            run_conversion(hf, tmp_path / "out", target="hf")
        assert names(tmp_path) == []

    def test_leaves_the_former_result(
        self, hf: Path, tmp_path: Path, no_runtime: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        former = run_conversion(hf, tmp_path / "out", target="hf")

        def stop(*arguments: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(verify_conversion, "compare", stop)
        with pytest.raises(KeyboardInterrupt):
            run_conversion(hf, tmp_path / "out", target="hf", quantization="bf16", overwrite=True)
        assert json.loads((tmp_path / "out" / "verify.json").read_text()) == former
        assert load_checkpoint(tmp_path / "out").dtype == torch.float32

    def test_what_a_killed_run_left_is_removed_by_the_next(
        self, hf: Path, tmp_path: Path, no_runtime: None
    ) -> None:
        left = tmp_path / ".out.99999999.abcdefgh.tmp"
        left.mkdir()
        (left / "model.safetensors").write_bytes(b"half")
        run_conversion(hf, tmp_path / "out", target="hf")
        assert names(tmp_path) == ["out"]

    def test_a_disk_too_small_is_told_before_writing(
        self, hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 1000))
        with pytest.raises(CheckpointError, match="are free there"):
            run_conversion(hf, tmp_path / "deep" / "out", target="hf")
        assert names(tmp_path) == []
