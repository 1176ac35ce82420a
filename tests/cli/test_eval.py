"""`llamita eval`: figures and their JSON, that every byte is paid for, comparisons, reports."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace

import pytest

import llamita
from llamita.cli.eval import first_bytes
from llamita.cli.eval_measures import text_bytes
from llamita.cli.eval_wanted import Wanted
from llamita.cli.main import run
from llamita.config import ModelConfig
from llamita.evaluation.bits_per_byte import bits_per_byte
from llamita.evaluation.multiple_choice import WAYS, multiple_choice
from llamita.evaluation.questions import read_questions
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.text.sources import find_text_files
from llamita.tokenizer import train_tokenizer
from llamita.tokenizer.chat_templates import BUILT_IN

TEXT = "  The cat sat.\r\n\r\n\n“é” 🦙\t on the mat  \n\n" * 8


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory):
    tokenizer = train_tokenizer([TEXT], "bpe:270")
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    directory = tmp_path_factory.mktemp("model") / "tiny"
    save_model_directory(Transformer(config).initialize(0), directory, tokenizer)
    return str(directory)


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "held-out.txt"
    path.write_bytes(TEXT.encode())
    return path


def evaluate(capsys, *arguments: str):
    assert run(["eval", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_holds_the_keys_and_every_byte_of_the_file(model_directory, text_file, capsys):
    result = evaluate(capsys, model_directory, "--text", str(text_file))
    lm = llamita.load(model_directory)
    expected = bits_per_byte(lm.model, lm.tokenizer, [TEXT])
    settings = result.pop("settings")
    assert result == {
        "bits_per_byte": expected.bits_per_byte,
        "bits_per_byte_stderr": expected.bits_per_byte_stderr,
        "perplexity": expected.perplexity,
        "bytes": text_file.stat().st_size,
        "tokens": len(lm.tokenizer.encode(TEXT)),
        "documents": 1,
        "stderr_over": "tokens",
    }
    digest = hashlib.sha256(text_file.read_bytes()).hexdigest()
    size = text_file.stat().st_size
    assert settings == {
        "llamita": llamita.__version__,
        "model": model_directory,
        "parameters": sum(p.numel() for p in lm.model.parameters()),
        "dtype": "float32",
        "device": str(lm.device),
        "files": [{"file": str(text_file), "bytes": size, "sha256": digest}],
        "options": {"field": "text", "encoding": "utf-8"},
    }


def test_the_line_for_people_shows_the_standard_error(model_directory, text_file, capsys):
    result = evaluate(capsys, model_directory, "--text", str(text_file))
    assert run(["eval", model_directory, "--text", str(text_file)]) == 0
    printed = capsys.readouterr().out
    figure, error = result["bits_per_byte"], result["bits_per_byte_stderr"]
    assert printed.startswith(f"{figure:.4f} ± {error:.4f} bits per byte")
    assert printed.count("\n") == 1


def test_several_files_jsonl_and_gzip_are_read_as_documents(model_directory, tmp_path, capsys):
    lines = [{"text": "one é"}, {"text": "two\n"}]
    jsonl = tmp_path / "docs.jsonl"
    jsonl.write_text("\n".join(json.dumps(line) for line in lines))
    packed = tmp_path / "more.txt.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    result = evaluate(capsys, model_directory, "--text", str(jsonl), "--text", str(packed))
    assert result["bytes"] == len("one étwo\n".encode() + TEXT.encode())
    lm = llamita.load(model_directory)
    expected = bits_per_byte(lm.model, lm.tokenizer, ["one é", "two\n", TEXT])
    assert result["bits_per_byte"] == pytest.approx(expected.bits_per_byte, rel=1e-6)


def test_limit_bytes_scores_the_beginning_alone(model_directory, text_file, capsys):
    result = evaluate(capsys, model_directory, "--text", str(text_file), "--limit-bytes", "30")
    assert result["bytes"] == len(TEXT.encode()[:30].decode(errors="ignore").encode())


@pytest.mark.parametrize("limit", range(1, 12))
def test_the_first_bytes_end_between_characters(limit):
    texts = ["aé", "🦙b", "cde"]
    whole = "".join(texts).encode()
    cut = "".join(first_bytes(texts, limit))
    assert cut == whole[:limit].decode(errors="ignore")


def test_a_shorter_context_costs_more_windows(model_directory, text_file, capsys):
    short = evaluate(capsys, model_directory, "--text", str(text_file), "--context-length", "4")
    full = evaluate(capsys, model_directory, "--text", str(text_file))
    assert short["bytes"] == full["bytes"]
    assert short["bits_per_byte"] != full["bits_per_byte"]


def test_the_error_of_a_single_token_is_null(model_directory, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("a")
    result = evaluate(capsys, model_directory, "--text", str(tmp_path / "a.txt"))
    assert result["bits_per_byte_stderr"] is None
    assert run(["eval", model_directory, "--text", str(tmp_path / "a.txt")]) == 0
    assert capsys.readouterr().out.startswith(f"{result['bits_per_byte']:.4f} bits per byte")


def test_text_in_another_encoding_is_scored_as_the_same_text(model_directory, tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes("the café".encode("utf-16"))
    result = evaluate(capsys, model_directory, "--text", str(path), "--encoding", "utf-16")
    path.write_bytes("the café".encode())
    plain = evaluate(capsys, model_directory, "--text", str(path))
    assert result.pop("settings") != plain.pop("settings")
    assert result == plain
    assert run(["eval", model_directory, "--text", str(path), "--encoding", "klingon"]) == 2
    assert "klingon" in capsys.readouterr().err


def test_a_missing_file_and_an_empty_file_are_errors(model_directory, tmp_path, capsys):
    assert run(["eval", model_directory, "--text", str(tmp_path / "no.txt")]) == 2
    assert "no.txt" in capsys.readouterr().err
    (tmp_path / "empty.txt").write_text("")
    assert run(["eval", model_directory, "--text", str(tmp_path / "empty.txt")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "empty.txt" in printed.err


def test_a_model_without_a_tokenizer_is_an_error(tmp_path, text_file, capsys):
    config = ModelConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
    )
    save_model_directory(Transformer(config).initialize(0), tmp_path / "bare")
    assert run(["eval", str(tmp_path / "bare"), "--text", str(text_file)]) == 2
    assert "no tokenizer" in capsys.readouterr().err


def ask(path, *golds, **others):
    lines = [{"question": "The cat?", "choices": ["sat", "mat", "on"], "gold": g} for g in golds]
    path.write_text("\n".join(json.dumps(line | others) for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def other_directory(tmp_path_factory, model_directory):
    """The same shape and tokenizer with other weights."""
    lm = llamita.load(model_directory)
    directory = tmp_path_factory.mktemp("model") / "other"
    save_model_directory(Transformer(lm.config).initialize(1), directory, lm.tokenizer)
    return str(directory)


def test_questions_are_a_block_of_their_own(model_directory, tmp_path, capsys):
    path = ask(tmp_path / "q.jsonl", 0, 1, 2)
    result = evaluate(capsys, model_directory, "--mcq", path, "--gold", "index0")
    assert set(result) == {"mcq", "settings"}
    assert result["mcq"]["questions"] == 3
    assert result["mcq"]["chance"] == pytest.approx(1 / 3)
    accuracies = {w: {s: f["accuracy"] for s, f in result["mcq"][w].items()} for w in WAYS}
    lm = llamita.load(model_directory)
    expected = multiple_choice(
        lm.model, lm.tokenizer, read_questions(tmp_path / "q.jsonl", "index0")
    )
    for (way, score), points in expected.points.items():
        assert accuracies[way][score] == pytest.approx(points.mean())
    # One question in three golds: each score is right once.
    assert accuracies["full"]["sum"] == pytest.approx(1 / 3)


def test_fields_and_prompt_are_the_users(model_directory, tmp_path, capsys):
    path = ask(tmp_path / "q.jsonl", 1, 2, endings=["sat", "mat"], ctx="The cat")
    options = ("--mcq-fields", "question=ctx,choices=endings", "--mcq-prompt", r"\n{question}")
    result = evaluate(capsys, model_directory, "--mcq", path, "--gold", "index1", *options)
    assert result["mcq"]["chance"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "nothing is asked for"),
        (("--mcq", "q.jsonl"), "--gold is missing"),
        (("--mcq", "q.jsonl", "--gold", "number"), "number"),
        (("--mcq", "q.jsonl", "--gold", "index1"), "q.jsonl:1: the gold is 0"),
        (("--mcq", "q.jsonl", "--gold", "index0", "--mcq-fields", "a=b"), "a=b"),
        (("--mcq", "q.jsonl", "--gold", "index0", "--mcq-prompt", "?"), "places for the question"),
        (("--text", "q.jsonl", "--gold", "index0"), "without --mcq"),
        (("--text", "q.jsonl", "--fewshot", "2"), "without --tasks"),
        (("--text", "q.jsonl", "--chat"), "without --mcq"),
        (("--text", "q.jsonl", "--no-constraint"), "without --tools"),
        (("--text", "q.jsonl", "--mcq-prompt", "{question}"), "--mcq-prompt is given without"),
        (("--speed", "--context-length", "4"), "--context-length is given without --text"),
        (("--speed", "--limit-bytes", "4"), "--limit-bytes is given without --text"),
        (("--speed", "--field", "text"), "--field is given without --text"),
        (("--speed", "--encoding", "utf-8"), "--encoding is given without --text"),
        (("--tasks", ","), "names no task"),
        (("--tasks", ""), "names no task"),
        (("--text", ""), "--text is given an empty name"),
        (("--text", "q.jsonl", "--html", "q.jsonl/a.html"), "is no folder"),
        (("--text", "q.jsonl", "--html", "a", "--markdown", "a"), "are both"),
        (("--tools", "q.jsonl"), "q.jsonl:1 is no chat"),
        (("--text", "q.jsonl", "--html", "q.jsonl"), "is no report"),
    ],
)
def test_mistakes_are_told_before_a_model_is_loaded(tmp_path, monkeypatch, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    ask(tmp_path / "q.jsonl", 0)
    assert run(["eval", "no-such-model", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err


def test_speed_is_a_block_too(model_directory, capsys):
    speed = evaluate(capsys, model_directory, "--speed")["speed"]
    assert speed["decode_tok_s"] > 0
    assert speed["batch_size"] == 1


def test_two_models_are_compared_on_the_same_data(
    model_directory, other_directory, text_file, tmp_path, capsys
):
    more = tmp_path / "more.jsonl"
    more.write_text("\n".join(json.dumps({"text": f"the mat {n}"}) for n in range(9)))
    path = ask(tmp_path / "q.jsonl", 0, 1, 2, 2)
    data = ("--text", str(text_file), "--text", str(more), "--mcq", path, "--gold", "index0")
    both = evaluate(capsys, "--compare", model_directory, other_directory, *data)
    alone = [evaluate(capsys, model, *data) for model in (model_directory, other_directory)]
    assert both["models"] == [model_directory, other_directory]
    assert [both["a"], both["b"]] == alone
    text = both["comparison"]["text"]["bits_per_byte"]
    first, second = (one["bits_per_byte"] for one in alone)
    assert text["difference"] == pytest.approx(first - second)
    assert (text["units"], text["stderr_over"]) == (10, "documents")
    assert 0 < text["p_value"] <= 1
    answers = both["comparison"]["mcq"]["full"]["sum"]
    accuracies = [one["mcq"]["full"]["sum"]["accuracy"] for one in alone]
    assert answers["difference"] == pytest.approx(accuracies[0] - accuracies[1])
    assert run(["eval", "--compare", model_directory, other_directory, *data]) == 0
    assert "difference" in capsys.readouterr().out


def test_a_model_compared_with_itself_differs_in_nothing(model_directory, text_file, capsys):
    data = ("--text", str(text_file))
    both = evaluate(capsys, "--compare", model_directory, model_directory, *data)
    assert both["comparison"]["text"]["bits_per_byte"]["difference"] == 0
    assert run(["eval", "--compare", model_directory, model_directory, *data]) == 0
    assert f"{model_directory} (2)" in capsys.readouterr().out


def test_a_model_or_two_to_compare_are_named(model_directory, text_file, capsys):
    data = ("--text", str(text_file))
    assert run(["eval", *data]) == 2
    assert "no model" in capsys.readouterr().err
    assert run(["eval", model_directory, "--compare", "a", "b", *data]) == 2
    assert "three models are named" in capsys.readouterr().err
    assert run(["eval", "--compare", "a", *data]) == 2
    assert "Two models follow it" in capsys.readouterr().err


def test_reports_are_written_beside_the_json(model_directory, text_file, tmp_path, capsys):
    page, markdown = tmp_path / "out" / "page.html", tmp_path / "page.md"
    files = ("--html", str(page), "--markdown", str(markdown))
    result = evaluate(capsys, model_directory, "--text", str(text_file), *files)
    figure = f"{result['bits_per_byte']:.4f} ± {result['bits_per_byte_stderr']:.4f}"
    digest = result["settings"]["files"][0]["sha256"]
    for written in (page.read_text(encoding="utf-8"), markdown.read_text(encoding="utf-8")):
        assert figure in written
        assert digest in written


def test_a_file_of_one_document_says_what_its_error_is_over(model_directory, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("The cat sat. " * 300)
    assert run(["eval", model_directory, "--text", str(tmp_path / "a.txt")]) == 0
    assert "stretches of 1,024 bytes" in capsys.readouterr().out


@pytest.fixture(scope="module")
def chat_directory(tmp_path_factory, model_directory):
    """The same shape and tokenizer with a chat template, and room for tools."""
    lm = llamita.load(model_directory)
    tokenizer = lm.tokenizer.with_chat_template(BUILT_IN["chatml-tools"].template)
    config = replace(lm.config, max_position_embeddings=4096)
    directory = tmp_path_factory.mktemp("model") / "chat"
    save_model_directory(Transformer(config).initialize(2), directory, tokenizer)
    return str(directory)


TOOL = {
    "name": "add",
    "description": "Add.",
    "parameters": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
}
CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": true}'}}


def chats(path, *answers):
    lines = [
        {"messages": [{"role": "user", "content": "Add."}, answer], "tools": [TOOL]}
        for answer in answers
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(path)


def test_tool_calls_are_a_block_and_are_compared(chat_directory, tmp_path, capsys):
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    path = chats(tmp_path / "c.jsonl", calling, {"role": "assistant", "content": "No."})
    for options in ((), ("--no-constraint",)):
        tools = evaluate(capsys, chat_directory, "--tools", path, *options)["tools"]
        assert (tools["turns"], tools["turns_with_calls"]) == (2, 1)
        assert tools["constrained"] == (not options)
        assert 0 <= tools["exact_call_accuracy"] <= 1
    both = evaluate(capsys, "--compare", chat_directory, chat_directory, "--tools", path)
    assert both["comparison"]["tools"]["exact_call_accuracy"]["difference"] == 0
    assert both["comparison"]["tools"]["abstention_accuracy"]["questions"] == 1
    assert run(["eval", chat_directory, "--tools", path]) == 0
    assert "Tool calls" in capsys.readouterr().out


def test_questions_can_be_put_through_the_chat_template(
    chat_directory, model_directory, tmp_path, capsys
):
    path = ask(tmp_path / "q.jsonl", 0, 1, 2)
    options = ("--mcq", path, "--gold", "index0", "--chat")
    assert evaluate(capsys, chat_directory, *options)["mcq"]["questions"] == 3
    assert run(["eval", model_directory, *options]) == 2
    assert "no chat template" in capsys.readouterr().err


def test_a_report_that_fails_late_does_not_take_the_figures_along(
    model_directory, text_file, tmp_path, monkeypatch, capsys
):
    def full(path, *others):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("llamita.evaluation.report.write_own", full)
    data = ("--text", str(text_file), "--html", str(tmp_path / "a.html"))
    assert run(["eval", model_directory, *data, "--json"]) != 0
    assert json.loads(capsys.readouterr().out)["bits_per_byte"] > 0


def test_what_the_second_model_lacks_is_told_before_the_first_is_measured(
    model_directory, chat_directory, text_file, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("llamita.cli.eval_measures.measure", None)
    text = ("--text", str(text_file))
    path = ask(tmp_path / "q.jsonl", 0, choices=["sat", "mat" * 40])
    chat = chats(tmp_path / "c.jsonl", {"role": "assistant", "content": "No."})
    asked = ("--mcq", path, "--gold", "index0")
    for second, data, told in (
        (str(tmp_path / "none"), text, "there is nothing at"),
        (model_directory, (*text, "--context-length", "100"), "context_length is 100"),
        (model_directory, (*asked, "--chat"), "no chat template"),
        (model_directory, asked, "an answer has"),
        (model_directory, (*text, "--tools", chat), "no chat template"),
        (model_directory, (*text, "--tasks", "no_such_task"), "no_such_task"),
    ):
        if "--tasks" in data:
            pytest.importorskip("lm_eval")
        assert run(["eval", "--compare", chat_directory, second, *data]) == 2
        assert told in capsys.readouterr().err


def test_the_time_left_is_of_the_text_and_not_of_the_lines_it_stands_in(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 50)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x", "more": "y" * 500}))
    plain, lines = (find_text_files([tmp_path / name]).files for name in ("a.txt", "a.jsonl"))
    assert text_bytes(Wanted(files=plain)) == 50
    assert text_bytes(Wanted(files=plain, limit_bytes=90)) == 50
    assert text_bytes(Wanted(files=plain, limit_bytes=9)) == 9
    assert text_bytes(Wanted(files=lines)) is None


def test_half_characters_in_a_text_are_said(model_directory, tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "the \ud83e"}))
    run(["eval", model_directory, "--text", str(path)])
    assert "1 halves of characters" in capsys.readouterr().err
