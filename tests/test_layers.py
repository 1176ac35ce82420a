"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import llamita

PACKAGE = Path(llamita.__file__).parent
# From the bottom up: each may import only from those before it.
LAYERS = (
    "errors",
    "files",
    "config",
    "model",
    "quantization",
    "formats",
    "tokenizer",
    "text",
    "data",
    "native",
    "inference",
    "evaluation",
    "training",
    "shipping",
    "serving",
    "cli",
)


def _imports(path: Path) -> set[str]:
    """The rooms of llamita that a file imports from, at the top or inside functions."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        rooms |= {name.split(".")[1] for name in names if name.startswith("llamita.")}
    return rooms


def test_every_room_imports_only_from_rooms_below_it() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in ("__init__", "__main__"):
            continue
        allowed = LAYERS[: LAYERS.index(room) + 1]
        wrong += [f"{path}: {other}" for other in _imports(path) if other not in allowed]
    assert wrong == []


def test_importing_llamita_loads_no_torch() -> None:
    code = "import llamita, sys; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_of_every_command_loads_no_torch() -> None:
    code = """
import sys
from llamita.cli.main import COMMANDS, run
for name in COMMANDS:
    assert run([name, "--help"]) == 0, name
sys.exit("torch" in sys.modules)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


def test_files_stay_short_enough_for_one_head() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {path: count for path, count in lengths.items() if count > 400} == {}
