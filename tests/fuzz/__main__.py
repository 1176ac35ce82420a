"""`python -m tests.fuzz --case N` does one case again; `--from N --count M` does many."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from tests.fuzz.bases import make_bases
from tests.fuzz.cases import make_case
from tests.fuzz.harness import run_cases


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--case", type=int, help="the number of one case")
    parser.add_argument("--keep", type=Path, help="leave the damaged checkpoint of --case there")
    parser.add_argument("--from", type=int, default=0, dest="start")
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        bases, work = Path(name) / "bases", Path(name) / "work"
        work.mkdir()
        make_bases(bases)
        if options.case is None:
            numbers = range(options.start, options.start + options.count)
            result = run_cases(numbers, bases, work, show=True)
            print(result.outcomes, f"structured: {result.structured}")
            kinds = Counter(
                (answer.get("what", "").split(":")[0], answer["outcome"])
                for answer in result.answers
            )
            for (kind, outcome), count in sorted(kinds.items()):
                print(f"{count:5} {outcome:8} {kind}")
            return
        folder = options.keep or work / "kept"
        case = make_case(options.case, bases, folder)
        print(case.what)
        [answer] = run_cases([options.case], bases, work).answers
        print(answer["outcome"], answer["detail"])


if __name__ == "__main__":
    main()
