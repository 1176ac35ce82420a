"""What was measured, for who reads the figures later: model, files, and how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamita.cli.eval_wanted import Wanted

if TYPE_CHECKING:
    from llamita.inference.lm import LM


def file_facts(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Each file with its bytes as they lie on the disk, and their SHA-256."""
    from llamita.files.reading import sha256_file

    return [
        {"file": str(path), "bytes": path.stat().st_size, "sha256": sha256_file(path)}
        for path in dict.fromkeys(paths)
    ]


def settings_of(
    name: str, lm: LM, wanted: Wanted, files: Sequence[dict[str, Any]], given: dict[str, Any]
) -> dict[str, Any]:
    """The block `settings` of a result, as plain data.

    name: the model's, as it was given. files: of `file_facts`. given: options of how the model is
    read; those that are None are left out.
    """
    import llamita

    return {
        "llamita": llamita.__version__,
        "model": name,
        "parameters": sum(parameter.numel() for parameter in lm.model.parameters()),
        "dtype": str(next(lm.model.parameters()).dtype).removeprefix("torch."),
        "device": str(lm.device),
        "files": list(files),
        "options": {
            **wanted.options,
            **{option: value for option, value in given.items() if value is not None},
        },
    }
