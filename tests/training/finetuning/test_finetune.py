"""Fine-tuning as a whole: what is learned, what comes out, and that a stopped run goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import llamita
from llamita.data.folder import DataFolder
from llamita.data.rows import IGNORED, make_rows
from llamita.errors import ConfigError, DataError, Interrupted, TokenizerError, TrainingError
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.tokenizer import Tokenizer, load_tokenizer
from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.training.finetuning.chat_data import Chats
from llamita.training.finetuning.finetune import prepare_finetuning
from llamita.training.records.metrics import read_metrics
from llamita.training.reporting.record import read_record
from llamita.training.settings.recipe_file import load_recipe
from tests.training.finetuning.conftest import chats, save_base, write
from tests.training.finetuning.runs import Said, finetune
from tests.training.runs import assert_same_runs, stop_after, weights_of


def test_the_answers_are_learned_and_end_where_generation_stops(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    settings = ("optimizer.learning_rate=0.02", "schedule.warmup_fraction=0.1")
    result = finetune(base, chats_path, tmp_path / "run", *settings, steps=None, epochs=40)
    lm = llamita.load(tmp_path / "run" / "best")
    assert lm.tokenizer is not None
    end = lm.tokenizer.special_tokens["<|im_end|>"]
    assert end in lm.stop_token_ids
    answer = lm.chat(chats()[3]["messages"][:1], max_tokens=30, temperature=0.0)
    assert answer.finish_reason == "stop"
    assert answer.text.startswith("There are ")
    assert (result.summary.best_loss or 9) < 1.5
    config = json.loads((tmp_path / "run" / "best" / "generation_config.json").read_text())
    assert end in config["eos_token_id"]


def test_rows_begin_as_prompts_do_and_only_answers_are_labels(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    finetune(base, chats_path, tmp_path / "run")
    recipe = load_recipe(tmp_path / "run" / "recipe.toml")
    assert recipe.batch.packing == "documents"
    folder = DataFolder.open(tmp_path / "run" / "data")
    chat_format = ChatFormat.of(folder.tokenizer)
    rows = make_rows(folder.dataset("train"), recipe.batch.context_length, "documents")
    learned = {tuple(chat_format.encode(c["messages"])): c["messages"] for c in chats()}
    found = 0
    for index in range(rows.count):
        inputs, labels, documents = rows.read(index)
        for number in range(documents.max() + 1):
            ids = inputs[documents == number].tolist()
            if tuple(ids) not in learned:
                assert (labels[documents == number] == IGNORED).all()  # padding
                continue
            messages = learned[tuple(ids)]
            said = [i for i in labels[documents == number].tolist() if i != IGNORED]
            text = folder.tokenizer.decode(said, skip_special_tokens=False)
            assert text == f"{messages[1]['content']}<|im_end|>{messages[3]['content']}<|im_end|>"
            prompt = chat_format.encode(messages[:1], add_generation_prompt=True)
            assert ids[: len(prompt)] == prompt
            found += 1
    assert found == folder.manifest.train.documents


def test_case_18_a_conversation_sees_nothing_of_the_others_in_its_row(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    finetune(base, chats_path, tmp_path / "run")
    folder = DataFolder.open(tmp_path / "run" / "data")
    rows = make_rows(folder.dataset("train"), 256, "documents")
    inputs, _, documents = (torch.from_numpy(part)[None] for part in rows.read(0))
    assert int(documents.max()) >= 2
    model = llamita.load(tmp_path / "run").model
    with torch.no_grad():
        before = model(inputs, document_ids=documents)
        changed = torch.where(documents == 0, (inputs + 7) % 200, inputs)
        after = model(changed, document_ids=documents)
    others = documents[0] != 0
    assert torch.equal(before[0, others], after[0, others])
    assert not torch.equal(before[0, ~others], after[0, ~others])


def test_a_separator_that_ends_turns_tears_no_conversation_apart(
    plain_tokenizer: Tokenizer, chats_path: Path, tmp_path: Path
) -> None:
    # As SmolLM2's: what ends a turn is the end of texts, and nothing stands before a chat.
    config = json.loads(plain_tokenizer.side_files["tokenizer_config.json"])
    config |= {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    plain_tokenizer.save(tmp_path / "tokenizer")
    path = tmp_path / "tokenizer" / "tokenizer_config.json"
    path.write_text(json.dumps(config))
    definition = json.loads((tmp_path / "tokenizer" / "tokenizer.json").read_text())
    definition["post_processor"] = None
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(json.dumps(definition))
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    tokenizer = tokenizer.with_chat_template(BUILT_IN["chatml-tools"].template)
    assert tokenizer.separator_id == tokenizer.special_tokens["<|im_end|>"]
    model = save_base(tmp_path / "model", tokenizer)
    finetune(model, chats_path, tmp_path / "run")
    folder = DataFolder.open(tmp_path / "run" / "data")
    rows = make_rows(folder.dataset("train"), 256, "documents")
    written = [tuple(ChatFormat.of(tokenizer).encode(chat["messages"])) for chat in chats()]
    whole = 0
    for index in range(rows.count):
        inputs, labels, documents = rows.read(index)
        for number in range(documents.max() + 1):
            mine = documents == number
            ids = inputs[mine].tolist()
            # The token that ends the last turn is a label alone.
            if (*ids, tokenizer.separator_id) in written:
                whole += 1
                assert labels[mine][-1] == tokenizer.separator_id
            else:
                assert (labels[mine] == IGNORED).all()
    assert whole == folder.manifest.train.documents


def test_new_control_tokens_reach_tokenizer_and_tables_alike(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    said = Said()
    result = finetune(
        base, chats_path, tmp_path / "run", "optimizer.learning_rate=1e-30", reporter=said
    )
    names = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
    assert result.added_tokens == names
    assert any("learns chatml-tools" in line for line in said.lines)
    assert any(", ".join(names) in line for line in said.lines)
    old = load_file(base / "model.safetensors")["model.embed_tokens.weight"]
    new = weights_of(tmp_path / "run", "best")["model.embed_tokens.weight"]
    assert len(new) == len(old) + 4
    # Those that the vocabulary was made with, which no text had, begin anew as well.
    ids = llamita.load(base).tokenizer.special_tokens  # type: ignore[union-attr]
    unseen = [ids["<|im_start|>"], ids["<|im_end|>"]]
    others = [i for i in range(len(old)) if i not in unseen]
    assert torch.equal(new[others], old[others])
    for rows in (new[len(old) :], new[unseen]):
        assert torch.allclose(rows, old.mean(0).expand(len(rows), -1))
    loaded = AutoTokenizer.from_pretrained(tmp_path / "run" / "best")
    assert loaded.convert_tokens_to_ids(list(names)) == list(range(len(old), len(new)))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "best")
    prompt = torch.tensor([[1, 5, len(old) + 1, 7]])
    ours = llamita.load(tmp_path / "run" / "best").logits(prompt)
    assert torch.allclose(theirs(prompt).logits, ours, atol=1e-4)


def test_an_untied_head_gets_its_rows_too(
    plain_tokenizer: Tokenizer, chats_path: Path, tmp_path: Path
) -> None:
    model = save_base(tmp_path / "model", plain_tokenizer, tie_word_embeddings=False)
    finetune(model, chats_path, tmp_path / "run", "optimizer.learning_rate=1e-30")
    old = load_file(model / "model.safetensors")["lm_head.weight"]
    new = weights_of(tmp_path / "run", "best")["lm_head.weight"]
    assert torch.allclose(new[len(old) :], old.mean(0).expand(4, -1))


def test_a_template_of_its_own_stays(
    plain_tokenizer: Tokenizer, chats_path: Path, tmp_path: Path
) -> None:
    template = BUILT_IN["chatml-tools"].template.replace("You have access", "Here is access")
    model = save_base(tmp_path / "model", plain_tokenizer.with_chat_template(template))
    result = finetune(model, chats_path, tmp_path / "run")
    assert result.added_tokens == ()
    for name in ("best", "latest", "data"):
        assert (tmp_path / "run" / name / "chat_template.jinja").read_text() == template


def test_a_model_without_a_template_learns_the_format_that_is_named(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    said, signatures = Said(), BUILT_IN["chatml-signatures"].template
    finetune(base, chats_path, tmp_path / "run", chat_format="chatml-signatures", reporter=said)
    assert any("learns chatml-signatures" in line for line in said.lines)
    for name in ("best", "latest", "data"):
        assert (tmp_path / "run" / name / "chat_template.jinja").read_text() == signatures
    # Of a model that has it, the same may be asked for, and no other.
    best = tmp_path / "run" / "best"
    finetune(best, chats_path, tmp_path / "more", chat_format="chatml-signatures")
    with pytest.raises(TokenizerError, match="not that of chatml-tools") as error:
        finetune(best, chats_path, tmp_path / "other", chat_format="chatml-tools")
    assert "--chat-format" in (error.value.hint or "")
    assert not (tmp_path / "other").exists()
    with pytest.raises(TokenizerError, match="no chat format 'alpaca'") as error:
        finetune(best, chats_path, tmp_path / "other", chat_format="alpaca")
    assert "chatml-tools, chatml-signatures" in (error.value.hint or "")


def test_a_run_goes_on_in_the_format_it_was_begun_with(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        finetune(
            base, chats_path, out, steps=6, chat_format="chatml-signatures",
            observer=stop_after(3),
        )  # fmt: skip
    with pytest.raises(TrainingError, match="was chatml-signatures and is now chatml-tools"):
        prepare_finetuning(base, Chats([chats_path]), out, chat_format="chatml-tools")
    prepare_finetuning(base, Chats([chats_path]), out, chat_format="chatml-signatures")
    prepared = prepare_finetuning(base, Chats([chats_path]), out)
    assert prepared.train().summary.steps == 6
    signatures = BUILT_IN["chatml-signatures"].template
    assert (out / "best" / "chat_template.jinja").read_text() == signatures


def test_a_template_of_ones_own_has_no_name(
    plain_tokenizer: Tokenizer, chats_path: Path, tmp_path: Path
) -> None:
    template = BUILT_IN["chatml-tools"].template.replace("You have access", "Here is access")
    model = save_base(tmp_path / "model", plain_tokenizer.with_chat_template(template))
    finetune(model, chats_path, tmp_path / "run")
    with pytest.raises(TrainingError, match="was the model's own and is now chatml-tools"):
        prepare_finetuning(model, Chats([chats_path]), tmp_path / "run", chat_format="chatml-tools")


def test_a_stopped_run_goes_on_to_the_bit_and_without_its_model(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(base, tmp_path / "model")
    finetune(model, chats_path, tmp_path / "whole", steps=6)
    with pytest.raises(Interrupted):
        finetune(model, chats_path, tmp_path / "parts", steps=6, observer=stop_after(3))
    shutil.rmtree(model)
    prepared = prepare_finetuning(model, Chats([chats_path]), tmp_path / "parts")
    assert prepared.train().summary.steps == 6
    assert_same_runs(tmp_path / "whole", tmp_path / "parts")


def test_the_same_call_without_settings_goes_on_as_it_was_begun(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    wanted = Chats([chats_path], val_fraction=0.3, context=64)
    with pytest.raises(Interrupted):
        finetune(base, wanted, tmp_path / "run", steps=6, observer=stop_after(3))
    prepared = prepare_finetuning(base, Chats([chats_path]), tmp_path / "run")
    assert prepared.train().summary.steps == 6
    # With others it is refused, as any run is.
    with pytest.raises(TrainingError, match=r"length\.steps was 6 and is now 7"):
        finetune(base, wanted, tmp_path / "run", steps=7)
    other = write(tmp_path / "other.jsonl", chats(25))
    with pytest.raises(DataError, match="other text or with other settings") as error:
        prepare_finetuning(base, Chats([other]), tmp_path / "run")
    assert "another -o" in (error.value.hint or "")


def test_a_report_and_the_best_step_are_those_of_any_run(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    summary = finetune(base, chats_path, tmp_path / "run").summary
    figures = read_record(tmp_path / "run").figures()
    assert figures["finished"]
    assert (figures["best_step"], figures["best_validation_loss"]) == (
        summary.best_step,
        summary.best_loss,
    )
    assert load_checkpoint(tmp_path / "run").path == tmp_path / "run" / "latest"
    samples = [line["sample"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")
               if "sample" in line]  # fmt: skip
    assert samples
    assert all(" in box " in sample and " → " in sample for sample in samples)


def test_epochs_become_steps_that_read_every_row_so_often(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    finetune(base, chats_path, tmp_path / "run", "batch.sequences=2", steps=None, epochs=2)
    recipe = load_recipe(tmp_path / "run" / "recipe.toml")
    folder = DataFolder.open(tmp_path / "run" / "data")
    rows = make_rows(folder.dataset("train"), recipe.batch.context_length, "documents").count
    assert recipe.length.steps == -(-2 * rows // (2 * recipe.batch.accumulation))
    with pytest.raises(ConfigError, match=r"--epochs is 2, and the recipe has a length"):
        finetune(base, chats_path, tmp_path / "other", steps=3, epochs=2)


def test_a_context_beyond_the_models_is_said_and_beyond_rope_refused(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"batch\.context_length is 512"):
        finetune(base, Chats([chats_path], context=512), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    said = Said()
    stretched = '{"rope_type": "linear", "factor": 2}'
    settings = (f"model.rope_scaling={stretched}", "model.max_position_embeddings=512")
    finetune(base, Chats([chats_path], context=512), tmp_path / "run", *settings, reporter=said)
    assert any(
        "a context of 512 tokens, longer than the model's own (256)" in x for x in said.lines
    )
    assert llamita.load(tmp_path / "run").config.max_position_embeddings == 512
    with pytest.raises(ConfigError, match=r"--context is 64, and batch\.context_length is 32"):
        finetune(base, Chats([chats_path], context=64), tmp_path / "b", "batch.context_length=32")


def test_other_content_in_the_folder_is_left_alone(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match="no training run and not empty"):
        finetune(base, chats_path, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_model_without_a_tokenizer_cannot_learn_chats(
    base: Path, chats_path: Path, tmp_path: Path
) -> None:
    save_model_directory(llamita.load(base).model, tmp_path / "bare")
    with pytest.raises(TrainingError, match="a model without a tokenizer"):
        finetune(tmp_path / "bare", chats_path, tmp_path / "run")
