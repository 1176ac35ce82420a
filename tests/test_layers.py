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
    "tools",
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
# The same within training; "" is the run itself, the files that lie in no package of their own.
TRAINING_LAYERS = (
    "settings",
    "machine",
    "memory",
    "ranks",
    "records",
    "sources",
    "steps",
    "checkpointing",
    "",
    "finetuning",
    "planning",
    "reporting",
)


def _imports(path: Path) -> set[str]:
    """The modules that a file imports or imports from, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        found |= set(names)
    return found


def test_every_room_imports_only_from_rooms_below_it() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in ("__init__", "__main__"):
            continue
        allowed = LAYERS[: LAYERS.index(room) + 1]
        others = {name.split(".")[1] for name in _imports(path) if name.startswith("llamita.")}
        wrong += [f"{path}: {other}" for other in others if other not in allowed]
    assert wrong == []


def test_every_package_of_training_imports_only_from_those_below_it() -> None:
    wrong = []
    training = PACKAGE / "training"
    for path in training.rglob("*.py"):
        layer = path.parent.relative_to(training).as_posix().removeprefix(".")
        allowed = TRAINING_LAYERS[: TRAINING_LAYERS.index(layer) + 1]
        names = [name for name in _imports(path) if f"{name}.".startswith("llamita.training.")]
        others = [[*name.split("."), ""][2] for name in names]
        others = [other if (training / other).is_dir() else "" for other in others]
        wrong += [f"{path}: {other}" for other in others if other not in allowed]
    assert wrong == []


# Beside these, generating works on NumPy and Python, for backends that need no PyTorch.
WITH_TORCH = {"lm", "modes", "scores", "torch_backend"}


def _loaded_with(path: Path) -> set[str]:
    """The modules whose code runs when a file is imported; those of functions come later, if ever.

    Of "from a import b" both a and a.b, since b may be a module.
    """
    found = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        waiting += ast.iter_child_nodes(node)
    # A package is loaded before its modules.
    return found | {name[:at] for name in found for at, c in enumerate(name) if c == "."}


def _file_of(module: str) -> Path | None:
    path = PACKAGE.parent / Path(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def _way_to_torch(path: Path, ways: dict[Path, list[str] | None]) -> list[str] | None:
    """The files by which importing one file comes to load PyTorch; None where it does not."""
    if path not in ways:
        ways[path] = None  # while it is looked into
        for module in sorted(_loaded_with(path)):
            following = _file_of(module)
            way = ["torch"] if module == "torch" else following and _way_to_torch(following, ways)
            if way:
                ways[path] = [path.stem, *way]
                break
    return ways[path]


def test_generating_loads_torch_where_it_is_said_to_and_nowhere_else() -> None:
    ways = {path.stem: _way_to_torch(path, {}) for path in (PACKAGE / "inference").glob("*.py")}
    assert {name: way for name, way in ways.items() if way and name not in WITH_TORCH} == {}
    assert {name for name, way in ways.items() if way} == WITH_TORCH


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
