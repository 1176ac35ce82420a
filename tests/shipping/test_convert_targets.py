"""Every format as a target: what it holds, what it refuses, and files beside files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import llamita
from llamita.errors import CheckpointError, ConfigError, LlamitaError, TokenizerError
from llamita.formats.checkpoint import HEAD
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.shipping.verify import compare
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.train import train_tokenizer
from tests.shipping.conftest import SENTENCES, run_conversion, small_model

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
TARGETS = ("hf", "meta", "hermes", "armgpt", "gguf")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def golden(case: str) -> Path:
    folder = GOLDEN / case
    return folder / "checkpoint.pt" if (folder / "checkpoint.pt").exists() else folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_a_golden_case_goes_there_and_back_to_the_bit(
    case: str, target: str, tmp_path: Path, no_runtime: None
) -> None:
    source = golden(case)
    checkpoint = load_checkpoint(source)
    if target == "armgpt" and checkpoint.format != "armgpt":
        with pytest.raises(ConfigError, match="ArmGPT layout cannot express"):
            run_conversion(source, tmp_path / "there", target=target)
        assert names(tmp_path) == []
        return
    there = run_conversion(source, tmp_path / "there", target=target)
    back = run_conversion(tmp_path / "there", tmp_path / "back", target=checkpoint.format)
    assert there["status"] == back["status"] == "self-check"
    returned = load_checkpoint(tmp_path / "back")
    assert returned.tensors.keys() == checkpoint.tensors.keys()
    for name, tensor in checkpoint.tensors.items():
        assert torch.equal(tensor.read(), returned.tensors[name].read()), name
    inputs = json.loads((GOLDEN / case / "inputs.json").read_text())
    expected = load_file(GOLDEN / case / "expected.safetensors")["logits"]
    for folder in ("there", "back"):
        logits = llamita.load(tmp_path / folder).logits(inputs["input_ids"])
        assert float((logits[:, : expected.shape[1]] - expected).abs().max()) < 2e-5


@pytest.mark.parametrize("case", ["meta-llama-2-shards-mha", "hermes-tied"])
def test_transformers_judges_what_came_from_a_golden_case(
    case: str, tmp_path: Path, worker_here: None
) -> None:
    report = run_conversion(golden(case), tmp_path / "out", target="hf")
    assert report["status"] == "verified"
    assert report["runtime"]["name"] == "transformers"


@pytest.mark.parametrize("quantization", [None, "q8_0", "q4_0"])
def test_llama_cpp_judges_a_gguf(hf: Path, tmp_path: Path, quantization: str | None) -> None:
    report = run_conversion(hf, tmp_path / "m.gguf", quantization=quantization)
    assert report["status"] == "verified"
    assert report["runtime"]["name"] == "llama.cpp"
    assert report["runtime"]["positions"] >= 64
    assert report["runtime"]["top_token_agreement"] >= 0.95
    assert report["runtime"]["token_ids_equal"] is True
    assert names(tmp_path) == ["m.gguf", "verify.json"]
    if quantization is None:
        assert report["runtime"]["max_logprob_gap"] < 0.01
    else:
        assert report["bits_per_byte"]["after"] == pytest.approx(
            report["bits_per_byte"]["before"], abs=0.2
        )


def test_llama_cpp_finds_a_fault_that_reader_and_writer_share(
    hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key rows permuted by the query heads' count, both ways: a round trip shows nothing."""
    from llamita.formats import key_map

    monkeypatch.setattr(key_map.InterleavedHeads, "_heads", lambda self, tensor, config: 1)
    report = run_conversion(hf, tmp_path / "m.gguf")
    assert report["max_logit_gap"] == 0.0
    assert report["status"] == "failed"
    assert "llama.cpp" in report["differences"][0]
    assert names(tmp_path) == ["m.gguf", "m.gguf.UNVERIFIED", "verify.json"]


@pytest.mark.parametrize("target", ["meta", "hermes"])
def test_a_sentencepiece_tokenizer_goes_along(
    hf_spm: Path, tmp_path: Path, target: str, no_runtime: None
) -> None:
    report = run_conversion(hf_spm, tmp_path / "out", target=target)
    assert report["token_ids_equal"] is True
    assert report["status"] == "self-check"
    assert "tokenizer.model" in report["files"]
    assert llamita.load(tmp_path / "out").tokenizer is not None


@pytest.mark.parametrize("target", ["meta", "hermes"])
def test_a_tokenizer_that_the_target_cannot_hold_is_refused_with_the_way_out(
    hf: Path, tmp_path: Path, target: str, no_runtime: None
) -> None:
    with pytest.raises(TokenizerError, match="cannot be written") as caught:
        run_conversion(hf, tmp_path / "out", target=target)
    assert "--no-tokenizer" in str(caught.value)
    assert names(tmp_path) == []
    report = run_conversion(hf, tmp_path / "out", target=target, keep_tokenizer=False)
    assert report["token_ids_equal"] is None


@pytest.mark.parametrize("target", ["hf", "gguf", "hermes", "meta"])
def test_the_chat_template_travels_into_every_format(
    spm_tokenizer: Tokenizer, tmp_path: Path, target: str, no_runtime: None
) -> None:
    tokenizer = spm_tokenizer.with_chat_template(CHATML)
    save_model_directory(small_model(tokenizer), tmp_path / "in", tokenizer)
    report = run_conversion(tmp_path / "in", tmp_path / "out", target=target)
    assert report["chat_equal"] is True
    lm = llamita.load(tmp_path / "out")
    assert lm.tokenizer is not None
    assert lm.tokenizer.chat_template == CHATML
    said = [note for note in report["notes"] if "chat template lies beside" in note]
    assert len(said) == (target in ("hermes", "meta"))


def test_a_chat_template_that_is_lost_has_failed(
    bpe_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = bpe_tokenizer.with_chat_template(CHATML)
    save_model_directory(small_model(tokenizer), tmp_path / "in", tokenizer)
    monkeypatch.setattr("llamita.shipping.targets.to_vocabulary", _without_template)
    report = run_conversion(tmp_path / "in", tmp_path / "out.gguf")
    assert report["status"] == "failed"
    assert report["chat_equal"] is False
    assert "chat template is lost" in report["differences"][0]


def _without_template(tokenizer: Tokenizer) -> object:
    from dataclasses import replace

    from llamita.tokenizer.gguf_vocabulary import to_vocabulary

    return replace(to_vocabulary(tokenizer), chat_template=None)


REFUSED = {
    "hermes": {"attention_bias": True},
    "meta": {"head_dim": 16},
    "armgpt": {"num_key_value_heads": 2},
    "gguf": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
}


@pytest.mark.parametrize("target", REFUSED)
def test_what_a_target_cannot_express_is_refused_by_field_and_value(
    bpe_tokenizer: Tokenizer, tmp_path: Path, target: str
) -> None:
    [(field, value)] = REFUSED[target].items()
    model = small_model(bpe_tokenizer, **REFUSED[target])
    save_model_directory(model, tmp_path / "in")
    with pytest.raises(LlamitaError) as caught:
        run_conversion(tmp_path / "in", tmp_path / "out", target=target)
    assert field in caught.value.message
    shown = "dynamic" if isinstance(value, dict) else json.dumps(value)
    assert shown in caught.value.message
    assert names(tmp_path) == ["in"]


def test_rows_that_fill_no_blocks_are_named(
    bpe_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    save_model_directory(
        small_model(bpe_tokenizer, intermediate_size=40), tmp_path / "in", bpe_tokenizer
    )
    report = run_conversion(tmp_path / "in", tmp_path / "out.gguf", quantization="q8_0")
    assert report["status"] == "self-check"
    [note] = [note for note in report["notes"] if "do not fill blocks" in note]
    assert "mlp.down_proj.weight and 1 more are stored as F16: rows of 40 numbers" in note


def test_blocks_of_a_gguf_are_taken_over_and_not_rounded_again(
    hf: Path, tmp_path: Path, no_runtime: None
) -> None:
    run_conversion(hf, tmp_path / "a" / "q.gguf", quantization="q4_0")
    report = run_conversion(tmp_path / "a" / "q.gguf", tmp_path / "b" / "q.gguf")
    assert report["max_logit_gap"] == 0.0
    assert report["bits_per_byte"] is None
    sizes = [(tmp_path / folder / "q.gguf").stat().st_size for folder in "ab"]
    assert abs(sizes[0] - sizes[1]) < 200
    report = run_conversion(tmp_path / "b" / "q.gguf", tmp_path / "hf", target="hf")
    assert report["max_logit_gap"] == 0.0
    assert load_checkpoint(tmp_path / "hf").dtype == torch.float32


def test_a_scale_that_float16_lacks_is_refused_before_writing(
    bpe_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = small_model(bpe_tokenizer)
    with torch.no_grad():
        model.model.layers[0].mlp.gate_proj.weight[0, 0] = 1e9
    save_model_directory(model, tmp_path / "in", bpe_tokenizer)
    for quantization in ("q8_0", "q4_0", "q4_1", "f16"):
        with pytest.raises(ConfigError, match=r"layers\.0\.mlp\.gate_proj\.weight"):
            run_conversion(tmp_path / "in", tmp_path / "o.gguf", quantization=quantization)
    assert names(tmp_path) == ["in"]


class TestFilesInAFolder:
    """A destination with the suffix of its format is that file, beside whatever is there."""

    def test_each_has_its_report(self, hf: Path, tmp_path: Path, no_runtime: None) -> None:
        (tmp_path / "mine.txt").write_text("mine")
        run_conversion(hf, tmp_path / "a.gguf")
        run_conversion(hf, tmp_path / "b.gguf", quantization="q8_0")
        assert names(tmp_path) == ["a.gguf", "b.gguf", "mine.txt", "verify.json"]
        report = json.loads((tmp_path / "verify.json").read_text())
        assert report["file"] == "b.gguf"
        assert report["others"]["a.gguf"]["status"] == "self-check"
        run_conversion(hf, tmp_path / "a.gguf", overwrite=True)
        report = json.loads((tmp_path / "verify.json").read_text())
        assert report["file"] == "a.gguf"
        assert list(report["others"]) == ["b.gguf"]
        assert "others" not in report["others"]["b.gguf"]

    def test_a_file_that_was_not_converted_stays(self, hf: Path, tmp_path: Path) -> None:
        (tmp_path / "a.gguf").write_bytes(b"mine")
        for overwrite in (False, True):
            with pytest.raises(CheckpointError):
                run_conversion(hf, tmp_path / "a.gguf", overwrite=overwrite)
        assert names(tmp_path) == ["a.gguf"]
        assert (tmp_path / "a.gguf").read_bytes() == b"mine"

    def test_another_tokenizer_beside_it_stays(
        self, hf_spm: Path, tmp_path: Path, no_runtime: None
    ) -> None:
        (tmp_path / "tokenizer.model").write_bytes(b"mine")
        with pytest.raises(CheckpointError, match=r"tokenizer\.model is there already"):
            run_conversion(hf_spm, tmp_path / "m.pt", target="hermes")
        assert names(tmp_path) == ["tokenizer.model"]

    def test_the_same_tokenizer_beside_it_serves_both(
        self, hf_spm: Path, tmp_path: Path, no_runtime: None
    ) -> None:
        run_conversion(hf_spm, tmp_path / "a.pt", target="hermes")
        report = run_conversion(hf_spm, tmp_path / "b.pt", target="hermes")
        assert report["token_ids_equal"] is True
        assert "tokenizer.model" in names(tmp_path)

    def test_a_tokenizer_that_another_result_is_read_with_is_not_replaced(
        self, hf_spm: Path, tmp_path: Path, no_runtime: None
    ) -> None:
        other = train_tokenizer(["another text of other words " * 40, *SENTENCES], "spm:480")
        save_model_directory(small_model(other), tmp_path / "other", other)
        out = tmp_path / "out"
        for name in ("a.pt", "b.pt"):
            run_conversion(hf_spm, out / name, target="hermes")
        before = (out / "tokenizer.model").read_bytes()
        with pytest.raises(CheckpointError, match=r"tokenizer\.model .* a\.pt is read with it"):
            run_conversion(tmp_path / "other", out / "b.pt", target="hermes", overwrite=True)
        assert (out / "tokenizer.model").read_bytes() == before
        (out / "a.pt").unlink()
        reports = json.loads((out / "verify.json").read_text())
        (out / "verify.json").write_text(json.dumps({**reports, "others": {}}))
        run_conversion(tmp_path / "other", out / "b.pt", target="hermes", overwrite=True)
        assert (out / "tokenizer.model").read_bytes() != before

    def test_a_chat_template_that_another_result_would_be_read_with_is_refused(
        self, hf_spm: Path, spm_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
    ) -> None:
        tokenizer = spm_tokenizer.with_chat_template(CHATML)
        save_model_directory(small_model(tokenizer), tmp_path / "chat", tokenizer)
        run_conversion(hf_spm, tmp_path / "out" / "a.pt", target="hermes")
        with pytest.raises(CheckpointError, match=r"chat_template\.jinja .* a\.pt is read with it"):
            run_conversion(tmp_path / "chat", tmp_path / "out" / "b.pt", target="hermes")
        assert names(tmp_path / "out") == ["a.pt", "tokenizer.model", "verify.json"]

    def test_a_file_that_would_be_read_as_its_tokenizer_is_named(
        self, hf_spm: Path, tmp_path: Path, no_runtime: None
    ) -> None:
        (tmp_path / "chat_template.jinja").write_text("mine")
        with pytest.raises(CheckpointError, match=r"chat_template\.jinja is there already"):
            run_conversion(hf_spm, tmp_path / "a.pt", target="hermes")
        assert names(tmp_path) == ["chat_template.jinja"]

    def test_what_a_former_result_had_and_the_new_one_has_not_goes(
        self, hf_spm: Path, spm_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
    ) -> None:
        tokenizer = spm_tokenizer.with_chat_template(CHATML)
        save_model_directory(small_model(tokenizer), tmp_path / "chat", tokenizer)
        run_conversion(tmp_path / "chat", tmp_path / "out" / "a.pt", target="hermes")
        assert "chat_template.jinja" in names(tmp_path / "out")
        run_conversion(hf_spm, tmp_path / "out" / "a.pt", target="hermes", overwrite=True)
        assert names(tmp_path / "out") == ["a.pt", "tokenizer.model", "verify.json"]

    def test_the_mark_of_a_failure_goes_with_success(
        self, hf: Path, tmp_path: Path, no_runtime: None
    ) -> None:
        from llamita.shipping import verify_conversion

        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(
                verify_conversion,
                "compare_tensors",
                lambda expected, written, differences: differences.append("made up") or 0,
            )
            assert run_conversion(hf, tmp_path / "a.gguf")["status"] == "failed"
        assert names(tmp_path) == ["a.gguf", "a.gguf.UNVERIFIED", "verify.json"]
        run_conversion(hf, tmp_path / "a.gguf", overwrite=True)
        assert names(tmp_path) == ["a.gguf", "verify.json"]

    def test_a_source_beside_it_is_no_obstacle(
        self, hf: Path, tmp_path: Path, no_runtime: None
    ) -> None:
        run_conversion(hf, tmp_path / "a.gguf")
        report = run_conversion(tmp_path / "a.gguf", tmp_path / "b.gguf", quantization="bf16")
        assert report["status"] == "self-check"


def test_tied_and_untied_heads_stay_so(
    bpe_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    for tied in (True, False):
        model = small_model(bpe_tokenizer, tie_word_embeddings=tied)
        save_model_directory(model, tmp_path / f"{tied}", bpe_tokenizer)
        for target in ("gguf", "hermes", "meta"):
            out = tmp_path / f"{tied}-{target}"
            run_conversion(tmp_path / f"{tied}", out, target=target, keep_tokenizer=False)
            assert (HEAD not in load_checkpoint(out).tensors) is tied


def test_a_model_read_part_by_part_gives_the_same_report(
    hf: Path, tmp_path: Path, no_runtime: None
) -> None:
    reports = [
        run_conversion(hf, tmp_path / name, target="hf", quantization="bf16", memory=memory)
        for name, memory in (("whole", 1e10), ("parts", 1.0))
    ]
    for key in ("status", "max_logit_gap", "rounded_logit_gap", "bits_per_byte", "differences"):
        assert reports[0][key] == reports[1][key]


def test_a_part_that_is_wrong_is_found_part_by_part(
    hf: Path, tmp_path: Path, no_runtime: None
) -> None:
    """A changed eps leaves every tensor alone."""
    from llamita.formats.config_write import config_to_json

    def wrong(config: object, **settings: object) -> dict[str, object]:
        return {**config_to_json(config, **settings), "rms_norm_eps": 1e-3}  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("llamita.formats.huggingface.config_to_json", wrong)
        report = run_conversion(hf, tmp_path / "out", target="hf", memory=1.0)
    assert report["status"] == "failed"
    assert any("rms_norm_eps" in sentence for sentence in report["differences"])
    assert any("logits differ" in sentence for sentence in report["differences"])


def test_compare_says_the_same_of_a_converted_model(
    hf: Path, tmp_path: Path, no_runtime: None
) -> None:
    run_conversion(hf, tmp_path / "out.gguf")
    assert compare(llamita.load(hf), llamita.load(tmp_path / "out.gguf")).same
