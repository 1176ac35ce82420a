"""`verify.json`: what a conversion found, beside what it wrote.

A folder that was written as a whole has the report of itself. Of files that were written into a
folder, the last one's report stands on top with the key `file`, those of earlier ones under
`others`, by their names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llamita.errors import CheckpointError, LlamitaError
from llamita.files import read_json, write_json

VERIFY_JSON = "verify.json"
MARK = "UNVERIFIED"
_OTHERS = "others"


def mark_name(file_name: str | None) -> str:
    """The file that says at a glance that a check failed."""
    return MARK if file_name is None else f"{file_name}.{MARK}"


def read_reports(folder: Path) -> dict[str | None, dict[str, Any]]:
    """The reports in a folder by file name; that of the folder itself under None.

    Raises:
        CheckpointError: there is a `verify.json` that is none of ours.
    """
    path = folder / VERIFY_JSON
    if not path.exists():
        return {}
    try:
        content = read_json(path, CheckpointError)
    except LlamitaError as error:
        raise _foreign(path) from error
    if not isinstance(content, dict) or "status" not in content or "target" not in content:
        raise _foreign(path)
    others = content.pop(_OTHERS, {})
    if not isinstance(others, dict):
        raise _foreign(path)
    return {content.get("file"): content, **{name or None: x for name, x in others.items()}}


def write_reports(
    folder: Path,
    file_name: str | None,
    report: dict[str, Any],
    earlier: dict[str | None, dict[str, Any]],
) -> None:
    """Write `report` as `folder`'s `verify.json`, with the earlier ones of other files."""
    others = {name or "": other for name, other in earlier.items() if name != file_name}
    write_json(folder / VERIFY_JSON, {**report, **({_OTHERS: others} if others else {})})


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    gap, scale = report["max_logit_gap"], report["logit_scale"]
    kept = report["quantization"] or "every number as it was"
    rows = [
        ("written", f"{report['destination']} ({report['target']}, {kept})"),
        ("weights", f"{sum(w['bytes'] for w in report['weights'].values()):,} bytes"),
    ]
    if report["status"] != "unverified":
        rows += [
            ("tensors read back", f"{report['tensors_compared']}"),
            ("largest logit gap", "not compared" if gap is None else f"{gap:.3g} of {scale:.3g}"),
            ("greedy tokens", _verdict(report["greedy_equal"], "not compared")),
            ("token ids", _verdict(report["token_ids_equal"], "no tokenizer")),
            ("chat", _verdict(report["chat_equal"], "no template")),
        ]
    if report["bits_per_byte"]:
        found = report["bits_per_byte"]
        pairs = [("bits per byte", found), ("on your text", found.get("text"))]
        rows += [
            (name, f"{pair['before']:.4f} before, {pair['after']:.4f} after")
            for name, pair in pairs
            if pair and "before" in pair
        ]
    if report["runtime"] and report["runtime"].get("version"):
        rows.append((report["runtime"]["name"], _runtime(report["runtime"])))
    rows.append(("status", report["status"]))
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    lines += [f"differs: {sentence}" for sentence in report["differences"]]
    lines += [f"note: {sentence}" for sentence in report["notes"]]
    return "\n".join(lines)


def _runtime(found: dict[str, Any]) -> str:
    if "top_token_agreement" in found:
        return (
            f"same best token at {found['top_token_agreement']:.1%} of {found['positions']} "
            f"positions, log-probability within {found['max_logprob_gap']:.3g}"
        )
    if "max_logit_gap" in found:
        return f"logits within {found['max_logit_gap']:.3g} over {found['positions']} positions"
    return "failed"


def _verdict(equal: bool | None, otherwise: str) -> str:
    return otherwise if equal is None else "equal" if equal else "different"


def _foreign(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is no report of a conversion, and one would have to be written there.",
        hint="Name another folder.",
    )
