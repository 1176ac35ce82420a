"""`llamita finetune` and `llamita merge`: what they print, and what they refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import llamita
from llamita.cli.main import run
from llamita.cli.options import CHAT_FORMATS
from llamita.tokenizer import train_tokenizer
from llamita.tokenizer.chat import BUILT_IN
from llamita.training.settings.recipe_file import load_recipe
from tests.training.finetuning.conftest import TEXT, chats, save_base, write

QUICK = [
    "--set", "watch.sample_tokens=4", "--set", "watch.validations=2",
    "--set", "machine.precision=float32", "--set", "machine.compile=off",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model and chats."""
    folder = tmp_path_factory.mktemp("finetune")
    tokenizer = train_tokenizer(iter([TEXT]), "bpe:290", seed=0, log=lambda line: None)
    save_base(folder / "model", tokenizer)
    write(folder / "chats.jsonl", chats())
    return folder


def _finetune(folder: Path, out: Path, *flags: str) -> int:
    return run(
        ["finetune", str(folder / "model"), str(folder / "chats.jsonl"), "-o", str(out), *flags]
    )


def test_the_last_lines_say_which_step_is_best_and_how_to_chat(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _finetune(folder, tmp_path / "run", "--steps", "4", *QUICK) == 0
    printed = capsys.readouterr()
    best = tmp_path / "run" / "best"
    assert "is best (validation loss " in printed.out
    assert printed.out.rstrip().endswith(f"llamita chat {best}")
    assert "conversations to learn from" in printed.err
    assert "control tokens that its tokenizer lacked" in printed.err
    assert run(["report", str(tmp_path / "run")]) == 0
    # The same command again has nothing to do.
    assert _finetune(folder, tmp_path / "run", "--steps", "4", *QUICK) == 0
    assert "(finished before)" in capsys.readouterr().out


def test_json_has_the_figures_and_nothing_else(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--epochs", "1", "--lora", "2", "--patience", "3", "--seed", "5", "--json", *QUICK]
    assert _finetune(folder, tmp_path / "run", *flags) == 0
    result = json.loads(capsys.readouterr().out)
    assert Path(result["model"]) == tmp_path / "run" / "best"
    assert result["conversations"] + result["held_out_conversations"] == 24
    assert (result["dropped_conversations"], result["cut_conversations"]) == (0, 0)
    assert result["best_step"] <= result["steps"]
    assert result["added_tokens"][0] == "<tool_call>"
    recipe = load_recipe(tmp_path / "run" / "recipe.toml")
    assert (recipe.seed, recipe.watch.patience) == (5, 3)
    assert recipe.lora is not None
    assert recipe.lora.rank == 2
    assert result["adapter"] == str(tmp_path / "run" / "adapter")
    model, tensors = llamita.load(tmp_path / "run" / "best"), 0
    for name, tensor in load_file(
        tmp_path / "run" / "adapter" / "adapter_model.safetensors"
    ).items():
        tensors += tensor.numel()
        assert "lora_" in name or "token_adapter" in name
    assert result["trained_parameters"] == tensors
    assert result["parameters"] == model.config.count_parameters()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--resume"], "no run to resume"),
        (["--steps", "0"], "steps is 0"),
        (["--steps", "3", "--epochs", "2"], "--epochs is 2, and"),
        (["--epochs", "0"], "--epochs is 0"),
        (["--steps", "3", "--minutes", "2"], "steps and minutes"),
        (["--val-fraction", "1.5"], "--val-fraction is 1.5"),
        (["--val", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--context", "1"], "--context is 1"),
        (["--lora", "0"], "lora.rank is 0"),
        (["--set", "watch.patienc=1"], "patience"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--long", "shrink"], "shrink"),
    ],
)
def test_a_mistake_is_one_clear_error_and_leaves_no_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    assert _finetune(folder, tmp_path / "run", *flags) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""
    assert not (tmp_path / "run").exists()


def test_a_wrong_line_is_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = write(tmp_path / "wrong.jsonl", [*chats(3), {"prompt": "a"}])
    arguments = ["finetune", str(folder / "model"), str(wrong), "-o", str(tmp_path / "run")]
    assert run(arguments) == 2
    assert "wrong.jsonl:4 is no chat; its fields are: 'prompt'" in capsys.readouterr().err
    assert run(["finetune", str(tmp_path / "none"), str(wrong), "-o", str(tmp_path / "run")]) == 2
    assert "there is nothing at" in capsys.readouterr().err


def test_an_adapter_and_its_base_become_one_model(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _finetune(folder, tmp_path / "run", "--lora", "2", "--steps", "4", *QUICK) == 0
    adapter = tmp_path / "run" / "adapter"
    assert f"is in {adapter}" in capsys.readouterr().out
    assert run(["merge", str(adapter), "-o", str(tmp_path / "merged"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "model": str(tmp_path / "merged"), "base": str(folder / "model"), "dtype": "float32"
    }  # fmt: skip
    best, merged = llamita.load(tmp_path / "run" / "best"), llamita.load(tmp_path / "merged")
    ids = torch.tensor([[1, 2, 3, 290, 5]])
    assert torch.allclose(best.logits(ids), merged.logits(ids), atol=1e-5)
    assert best.stop_token_ids == merged.stop_token_ids
    assert best.config.eos_token_ids == merged.config.eos_token_ids
    flags = ["--base", str(folder / "model"), "--dtype", "bfloat16"]
    assert run(["merge", str(adapter), "-o", str(tmp_path / "half"), *flags]) == 0
    assert "in bfloat16" in capsys.readouterr().out


def test_what_is_no_adapter_is_not_merged(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["merge", str(folder / "model"), "-o", str(tmp_path / "merged")]) == 2
    assert "is no adapter" in capsys.readouterr().err
    assert not (tmp_path / "merged").exists()


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_merging_overwrites_nothing_unasked_and_what_it_reads_never(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _finetune(folder, tmp_path / "run", "--lora", "2", "--steps", "2", *QUICK) == 0
    adapter, other = tmp_path / "run" / "adapter", tmp_path / "other"
    shutil.copytree(folder / "model", other)
    kept = _files(folder / "model"), _files(other), _files(tmp_path / "run")

    def merge(out: Path, *flags: str) -> str:
        assert run(["merge", str(adapter), "-o", str(out), *flags]) == 2
        return capsys.readouterr().err

    assert "exists" in merge(other)
    for place in (folder / "model", folder / "model" / "new", folder, adapter, tmp_path / "run"):
        assert "merging reads that" in merge(place, "--overwrite")
    for place in (tmp_path / "run" / "best", tmp_path / "run" / "merged"):
        assert "belongs to the run" in merge(place, "--overwrite")
    assert (_files(folder / "model"), _files(other), _files(tmp_path / "run")) == kept
    assert run(["merge", str(adapter), "-o", str(other), "--overwrite"]) == 0
    assert _files(other) != kept[1]
    # The run that has the adapter will do; its models are whole already.
    assert run(["merge", str(tmp_path / "run"), "-o", str(tmp_path / "of_run")]) == 0
    assert _files(tmp_path / "of_run") == _files(other)
    capsys.readouterr()
    assert run(["merge", str(tmp_path / "run" / "best"), "-o", str(tmp_path / "x")]) == 2
    assert f"The adapter is {adapter}" in capsys.readouterr().err


def test_a_run_goes_on_by_what_is_named_and_refuses_what_differs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = ["--epochs", "2", "--context", "96", "--lora", "2", "--long", "cut"]
    assert _finetune(folder, tmp_path / "run", *begun, *QUICK) == 0
    for same in (["--lora", "2"], ["--context", "96"], begun, ["--epochs", "2"], [], ["--resume"],
                 ["--set", "checkpoints.keep=1"], ["--long", "cut"]):  # fmt: skip
        assert _finetune(folder, tmp_path / "run", *same) == 0, same
        assert "(finished before)" in capsys.readouterr().out
    for flags, words in (
        (["--lora", "3"], "lora.rank was 2 and is now 3"),
        (["--context", "128"], "--context was 96 and is now 128"),
        (["--long", "drop"], "--long was cut and is now drop"),
        (["--val-fraction", "0.4"], "--val-fraction was 0.1 and is now 0.4"),
        (["--epochs", "7"], "(--epochs 7)"),
        (["--patience", "2"], "watch.patience was 0 and is now 2"),
    ):
        assert _finetune(folder, tmp_path / "run", *flags) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("is now") == 1, error


def test_the_chat_format_is_that_of_the_run_from_its_first_call(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("--chat-format", "chatml-signatures")
    assert _finetune(folder, tmp_path / "run", "--steps", "2", *QUICK, *named) == 0
    template = (tmp_path / "run" / "best" / "chat_template.jinja").read_text()
    assert template == BUILT_IN["chatml-signatures"].template
    assert _finetune(folder, tmp_path / "run") == 0
    assert _finetune(folder, tmp_path / "run", *named) == 0
    capsys.readouterr()
    assert _finetune(folder, tmp_path / "run", "--chat-format", "llama3") == 2
    assert "--chat-format was chatml-signatures and is now llama3" in capsys.readouterr().err
    assert all(name in CHAT_FORMATS for name in BUILT_IN)


def test_another_model_is_not_passed_over(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _finetune(folder, tmp_path / "run", "--steps", "2", *QUICK) == 0
    tokenizer = train_tokenizer(iter([TEXT]), "bpe:290", seed=0, log=lambda line: None)
    other = save_base(tmp_path / "other", tokenizer, hidden_size=16)
    capsys.readouterr()
    same = [str(folder / "chats.jsonl"), "-o", str(tmp_path / "run")]
    for flags in ([], ["--steps", "2", *QUICK]):
        for model in (other, tmp_path / "gone"):
            assert run(["finetune", str(model), *same, *flags]) == 2
            assert f"was begun with {folder / 'model'}, not with" in capsys.readouterr().err
    copy = shutil.copytree(folder / "model", tmp_path / "copy")
    assert run(["finetune", str(copy), *same]) == 0


def test_patience_without_anything_to_validate_on_is_said(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--val-fraction", "0", "--patience", "2", "--steps", "2"]
    assert _finetune(folder, tmp_path / "run", *flags, *QUICK) == 0
    assert "--patience has nothing to go by" in capsys.readouterr().err
