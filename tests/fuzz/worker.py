"""Opens damaged checkpoints, one after another, with little memory and little time.

Reads numbers of cases from stdin; answers each with a line of JSON. A case that is too much for it
ends the process, which the harness sees.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from llamita.errors import LlamitaError
from llamita.formats.checkpoint import build_model
from llamita.formats.detect import load_checkpoint
from llamita.tokenizer.chat import ChatFormat
from llamita.tokenizer.load import checkpoint_tokenizer
from tests.fuzz.bases import BASES
from tests.fuzz.cases import Case, make_case

MEMORY = 1 << 30
TEXT = "The llama's 12 wörlds <|im_end|>\n\tdef f(x): return {'a': [1, 2]}  ▁é Բարև"
CHAT = [{"role": "user", "content": "12*9?"}, {"role": "assistant", "content": "108"}]


def open_as_a_user_would(target: Path, overrides: dict[str, Any]) -> None:
    """Load, tokenize, render a chat, read every tensor, run four tokens."""
    checkpoint = load_checkpoint(target, overrides)
    tokenizer = checkpoint_tokenizer(checkpoint)
    if tokenizer is not None:
        ids = tokenizer.encode(TEXT, add_special_tokens=True)
        tokenizer.decode(ids)
        tokenizer.decode(range(tokenizer.vocab_size), skip_special_tokens=False)
        tokenizer.summary()
        if tokenizer.chat_template is not None:
            chat = ChatFormat.of(tokenizer)
            chat.encode(CHAT, add_generation_prompt=True)
            chat.turn_end_ids  # noqa: B018
    model = build_model(checkpoint, dtype=torch.float32)
    with torch.no_grad():
        last = checkpoint.config.vocab_size - 1
        model(torch.tensor([[0, last, last // 2, 0]]))


def judge(case: Case) -> dict[str, Any]:
    """What became of a case: "ok", "refused" (one clear error), or "fault" and why."""
    try:
        open_as_a_user_would(case.target, case.base.overrides)
    except LlamitaError as error:
        text = str(error)
        names = [path.name for path in case.folder.iterdir()]
        names += [case.folder.name, "the chat template"]
        if len(text.splitlines()) > 2 or len(text) > 5000:
            return {"outcome": "fault", "detail": f"a long message: {text[:300]!r}"}
        if not any(name in text for name in names):
            return {"outcome": "fault", "detail": f"a message that names no file: {text!r}"}
        return {"outcome": "refused", "detail": text}
    except BaseException as error:  # a panic of the tokenizers library is no Exception
        frames = []
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            frames.append(f"{Path(code.co_filename).name}:{trace.tb_lineno}")
            trace = trace.tb_next
        where = " > ".join(frames[-6:])
        return {"outcome": "fault", "detail": f"{type(error).__name__}: {error!s:.300} at {where}"}
    return {"outcome": "ok", "detail": ""}


def plant(name: str) -> None:
    """Spoil the reader, so that the harness can show that it notices."""

    def raises(*_: Any, **__: Any) -> Any:
        raise ValueError("planted")

    def spins(*_: Any, **__: Any) -> Any:
        while True:
            pass

    def allocates(*_: Any, **__: Any) -> Any:
        return bytearray(2 * MEMORY)

    def crashes(*_: Any, **__: Any) -> Any:
        os.abort()

    def mumbles(*_: Any, **__: Any) -> Any:
        raise LlamitaError("something is wrong.")

    faults: dict[str, Callable[..., Any]] = {
        f.__name__: f for f in (raises, spins, allocates, crashes, mumbles)
    }
    globals()["build_model"] = faults[name]
    globals()["load_checkpoint"] = faults[name]


def limit_memory() -> None:
    """From here on the process may take so much more memory, and not more."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def limit_time(seconds: int) -> None:
    """From here on the process may compute for so long; the system ends it then."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(usage.ru_utime + usage.ru_stime)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds + 1, hard))


def main() -> None:
    bases, folder, seconds, planted = (
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4:],
    )
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    torch.set_num_threads(1)
    for base in BASES:  # imports and pools that sound files need are no growth
        open_as_a_user_would(bases / base.name / base.target, base.overrides)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limit_memory()
    for name in planted:
        plant(name)
    for line in sys.stdin:
        number = int(line)
        place = folder / f"case-{number}"
        case = make_case(number, bases, place)
        limit_time(seconds)
        answer = {"case": number, "structured": case.structured, "what": case.what, **judge(case)}
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown * (1 if sys.platform == "darwin" else 1024) > MEMORY:
            answer |= {"outcome": "fault", "detail": f"memory: {grown:,} KB more"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
