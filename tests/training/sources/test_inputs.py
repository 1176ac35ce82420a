"""What a run reads: one or several DATA, recorded so that its recipe alone replays it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamita.cli.main import run as run_command
from llamita.data.folder import DataFolder
from llamita.data.prepare import prepare
from llamita.errors import DataError, Interrupted, TrainingError
from llamita.training.records.manifest import RunManifest
from llamita.training.records.metrics import read_metrics
from llamita.training.records.observer import Observer
from llamita.training.reporting.record import read_record
from llamita.training.run import train
from llamita.training.settings.recipe import Recipe, Source
from llamita.training.settings.recipe_file import load_recipe, save_recipe
from llamita.training.sources import inputs
from tests.training.recipes import small_recipe
from tests.training.runs import are_same, stop_after, weights_of


def _heard(said: list[str]) -> Observer:
    return Observer(say=said.append, on_step=lambda *values: None)


@pytest.fixture
def both(data: Path, other_data: Path) -> list[Source]:
    return [Source(path=str(data), weight=3), Source(path=str(other_data), weight=1)]


def _packed(*assignments: str, steps: int = 6) -> Recipe:
    return small_recipe(
        "batch.packing=documents", "batch.accumulation=2", *assignments, steps=steps
    )


def test_a_run_is_replayed_from_its_recipe_alone(
    data: Path,
    other_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_recipe(_packed("model.residual_dropout=0.1"), tmp_path / "asked.toml")
    monkeypatch.chdir(data.parent)
    command = ["train", data.name, str(other_data), "--weights", "3,1", "-o", str(tmp_path / "a")]
    assert run_command([*command, "--config", str(tmp_path / "asked.toml")]) == 0
    monkeypatch.chdir("/")
    recipe = tmp_path / "a" / "recipe.toml"
    replay = ["train", "--config", str(recipe), "-o", str(tmp_path / "b"), "--json"]
    capsys.readouterr()
    assert run_command(replay) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 6
    assert are_same(weights_of(tmp_path / "a"), weights_of(tmp_path / "b"))
    assert recipe.read_text() == (tmp_path / "b" / "recipe.toml").read_text()
    assert run_command(replay) == 0  # finished: nothing to do


def test_a_resumed_mixture_ends_as_the_uninterrupted_one(
    both: list[Source], tmp_path: Path
) -> None:
    train(both, tmp_path / "whole", _packed())
    with pytest.raises(Interrupted):
        train(both, tmp_path / "parts", _packed(), observer=stop_after(2))
    with pytest.raises(Interrupted):
        train(None, tmp_path / "parts", observer=stop_after(5))
    train(None, tmp_path / "parts")
    assert are_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))


def test_each_source_has_its_loss_and_its_epochs_in_the_log(
    both: list[Source], tmp_path: Path
) -> None:
    said: list[str] = []
    train(both, tmp_path / "run", _packed(), observer=_heard(said))
    lines = [m for m in read_metrics(tmp_path / "run" / "metrics.jsonl") if "sample" in m]
    assert len(lines) == 2
    for line in lines:
        first, second = (line[f"validation_loss/data-{n}"] for n in (1, 2))
        assert line["validation_loss"] == pytest.approx(0.75 * first + 0.25 * second)
    rows = [
        folder.dataset("train").tokens / 32
        for folder in (DataFolder.open(Path(source.path)) for source in both)
    ]
    epochs = [lines[-1][f"epochs/data-{n}"] for n in (1, 2)]
    assert epochs == pytest.approx([36 / rows[0], 12 / rows[1]], rel=0.1)
    assert sum("of them padding" in line for line in said) == 2


def test_changed_data_is_not_replayed_unless_that_is_asked_for(
    data: Path, other_data: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    train(copy, tmp_path / "a", small_recipe())
    shutil.rmtree(copy)
    shutil.copytree(other_data, copy)
    recipe = load_recipe(tmp_path / "a" / "recipe.toml")
    with pytest.raises(TrainingError, match="holds other data than the recipe") as error:
        train(None, tmp_path / "b", recipe)
    assert "--allow-changed-data" in (error.value.hint or "")
    assert not (tmp_path / "b").exists()
    with pytest.raises(TrainingError, match="begun with other data"):
        train(None, tmp_path / "a")
    said: list[str] = []
    train(None, tmp_path / "b", recipe, allow_changed_data=True, observer=_heard(said))
    assert any("taking it as it is" in line for line in said)
    assert load_recipe(tmp_path / "b" / "recipe.toml").data != recipe.data
    # What is named on the command line counts before the recipe.
    train(data, tmp_path / "c", recipe)
    assert are_same(weights_of(tmp_path / "a"), weights_of(tmp_path / "c"))


def test_a_run_remembers_that_its_data_was_changed(
    data: Path, other_data: Path, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=stop_after(3))
    before = RunManifest.load(tmp_path / "run")
    train(other_data, tmp_path / "run", allow_changed_data=True)
    after = RunManifest.load(tmp_path / "run")
    assert (before.earlier_data, after.earlier_data) == ([], [before.data_fingerprint])
    assert load_recipe(tmp_path / "run" / "recipe.toml").data[0].path == str(other_data)


def test_moved_data_is_the_same_data(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "here")
    with pytest.raises(Interrupted):
        train(tmp_path / "here", tmp_path / "run", small_recipe(), observer=stop_after(3))
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(DataError, match="here"):
        train(None, tmp_path / "run")
    train(tmp_path / "there", tmp_path / "run", small_recipe())
    train(data, tmp_path / "whole", small_recipe())
    assert are_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "run"))
    assert RunManifest.load(tmp_path / "run").earlier_data == []
    assert train(None, tmp_path / "run").was_finished


def test_other_weights_are_another_run(both: list[Source], tmp_path: Path) -> None:
    train(both, tmp_path / "run", small_recipe())
    other = [source.model_copy(update={"weight": 1.0}) for source in both]
    with pytest.raises(TrainingError, match="other data or weights"):
        train(other, tmp_path / "run")
    in_proportion = [s.model_copy(update={"weight": 2 * (s.weight or 0)}) for s in both]
    assert train(in_proportion, tmp_path / "run").was_finished


def test_a_shard_changed_in_place_is_found(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    with pytest.raises(Interrupted):
        train(tmp_path / "data", tmp_path / "run", small_recipe(), observer=stop_after(3))
    shard = tmp_path / "data" / "train-00000.bin"
    ids = np.fromfile(shard, dtype="<u2")
    ids[50] = 5 if ids[50] != 5 else 6
    ids.tofile(shard)
    for run in ("run", "new"):
        with pytest.raises(DataError, match=r"train-00000\.bin was changed"):
            train(tmp_path / "data", tmp_path / run)


def test_a_run_of_an_earlier_version_goes_on_with_the_data_it_names(
    data: Path, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=stop_after(3))
    recipe = load_recipe(tmp_path / "run" / "recipe.toml")
    save_recipe(recipe.model_copy(update={"data": ()}), tmp_path / "run" / "recipe.toml")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    for settings in (manifest["requested"], manifest["settled"]):
        del settings["data"], settings["batch"]["packing"]
    del manifest["earlier_data"]
    path.write_text(json.dumps(manifest))
    train(None, tmp_path / "run")
    train(data, tmp_path / "whole", small_recipe())
    assert are_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "run"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda data: [], ["no DATA to train on", "llamita train DATA"]),
        (lambda data: ["--weights", "1"], ["--weights is '1'", "no DATA"]),
        (lambda data: [str(data), "--weights", "1,2"], ["'1,2'", "not 1 numbers"]),
        (lambda data: [str(data), "--weights", "-1"], ["'-1'", "above 0"]),
        (lambda data: [str(data), "--weights", "much"], ["'much'", "above 0"]),
        (lambda data: [str(data), str(data)], ["the same tokens", "--weights"]),
    ],
)
def test_data_and_weights_that_do_not_fit_are_named(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: Callable[[Path], list[str]],
    words: list[str],
) -> None:
    run = tmp_path / "run"
    assert run_command(["train", *arguments(data), "-o", str(run)]) == 2
    errors = capsys.readouterr().err
    assert all(word in errors for word in words), errors
    assert not run.exists()


def test_a_source_that_holds_nothing_out_is_named(
    data: Path, other_data: Path, tmp_path: Path
) -> None:
    prepare([other_data.parent / "texts"], tmp_path / "all", tokenizer=str(data), val_fraction=0)
    said: list[str] = []
    sources = [Source(path=str(data)), Source(path=str(tmp_path / "all"))]
    train(sources, tmp_path / "run", small_recipe(), observer=_heard(said))
    assert any(line.startswith("all holds nothing out") for line in said)
    last = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert "validation_loss" in last
    assert "validation_loss/data" not in last


def test_chats_are_packed_as_documents_unless_the_stream_is_asked_for(
    data: Path, tmp_path: Path
) -> None:
    chats: list[dict[str, Any]] = [
        {
            "messages": [
                {"role": "user", "content": f"the llama {number}"},
                {"role": "assistant", "content": "walks home slowly when rain falls"},
            ]
        }
        for number in range(60)
    ]
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    prepare([path], tmp_path / "chats", tokenizer=str(data), loss="assistant")
    said: list[str] = []
    train(tmp_path / "chats", tmp_path / "run", small_recipe(steps=2), observer=_heard(said))
    assert any("chats: rows hold whole documents" in line for line in said)
    assert load_recipe(tmp_path / "run" / "recipe.toml").batch.packing == "documents"
    assert train(tmp_path / "chats", tmp_path / "run", small_recipe(steps=2)).was_finished
    recipe = small_recipe("batch.packing=stream", steps=2)
    train(tmp_path / "chats", tmp_path / "stream", recipe)
    assert load_recipe(tmp_path / "stream" / "recipe.toml").batch.packing == "stream"


def test_token_bins_are_trained_on_resumed_and_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bins = tmp_path / "bins"
    bins.mkdir()
    letters = sorted("\n abcdefghijklmnopqrstuvwxyz")
    itos = {str(number): letter for number, letter in enumerate(letters)}
    (bins / "char.json").write_text(json.dumps({"type": "char", "itos": itos}))
    ids = [letters.index(c) for c in "the llama walks home\n" * 60]
    np.array(ids, dtype="<u2").tofile(bins / "train.bin")
    np.array(ids[:200], dtype="<u2").tofile(bins / "val.bin")
    monkeypatch.setattr(inputs, "_WORTH_A_LINE", 2000)
    said: list[str] = []
    train(bins, tmp_path / "whole", small_recipe(), observer=_heard(said))
    assert said[0] == "checking 0.0 GB of tokens"  # before its first byte is read
    with pytest.raises(Interrupted):
        train(bins, tmp_path / "parts", small_recipe(), observer=stop_after(3))
    train(None, tmp_path / "parts")
    assert are_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))
    last = read_metrics(tmp_path / "whole" / "metrics.jsonl")[-1]
    assert last["validation_bits_per_byte"] == pytest.approx(
        last["validation_loss"] / np.log(2)  # a byte is a token here
    )
    record = read_record(tmp_path / "whole")
    assert (record.missing, record.data[str(bins)]["train"]["tokens"]) == ([], len(ids))
    np.array(ids[::-1], dtype="<u2").tofile(bins / "train.bin")
    with pytest.raises(TrainingError, match="other data"):
        train(None, tmp_path / "parts")
