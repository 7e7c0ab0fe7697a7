"""How heavy the project is: its lines, functions, constants, repeated names and walks.

    python -m tests.benchmarks.style [FOLDER]      (`make style`)

FOLDER is another checkout, to compare with. A *walk* calls a function and notes each file of
the project in the order in which its functions are called for the first time: its stops, and
how many of them return to a file that the walk had left.
"""

import ast
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

RUN = "docs/results/2026-11-21-bert_large-h200"
"""The recorded run that is published for the walk."""


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    source = {path: path.read_text() for path in python_files(root, "orchestrator", "jobs")}
    trees = {path: ast.parse(text) for path, text in source.items()}
    nodes = [weight for tree in trees.values() for weight in function_weights(tree)]
    constants = {path: numeric_constants(tree) for path, tree in trees.items()}
    search = sum(count for path, count in constants.items() if "search" in path.parts)
    tests = sum(len(path.read_text().splitlines()) for path in python_files(root, "tests"))
    classes = (n.name for t in trees.values() for n in ast.walk(t) if isinstance(n, ast.ClassDef))
    measures: dict[str, Any] = {
        "source lines": sum(len(text.splitlines()) for text in source.values()),
        "of them code": sum(code_lines(text, trees[path]) for path, text in source.items()),
        "test lines": tests,
        "modules": len(source),
        "files over 300 lines": sum(len(text.splitlines()) > 300 for text in source.values()),
        "functions": len(nodes),
        "syntax nodes of the median function": round(statistics.median(nodes)),
        "numeric constants": sum(constants.values()),
        "of them in search": search,
        "file names that stand twice": repeated(path.name for path in source),
        "class names that stand twice": repeated(classes),
        "import circles": circles(root),
    }
    measures |= walks(root)
    for name, value in measures.items():
        print(f"{name:40}{value:>10,}")


def python_files(root: Path, *folders: str) -> list[Path]:
    """The Python files that git knows, or would add, below some folders."""
    command = ["git", "ls-files", "-co", "--exclude-standard", *folders]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    paths = (root / name for name in listed.stdout.split())
    return [path for path in paths if path.suffix == ".py" and path.exists()]


def code_lines(text: str, tree: ast.Module) -> int:
    """Lines that are neither blank, nor a comment, nor part of a docstring."""
    documented = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(bool(line.split("#")[0].strip()) and n not in documented for n, line in lines)


def function_weights(tree: ast.Module) -> Iterator[int]:
    """The statements and expressions of each function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield sum(isinstance(part, ast.stmt | ast.expr) for part in ast.walk(node))


def numeric_constants(tree: ast.Module) -> int:
    """Assignments of the module's top level whose value is arithmetic on written numbers."""
    values = (node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
    return sum(value is not None and is_number(value) for value in values)


def is_number(value: ast.expr) -> bool:
    """Whether an expression is arithmetic on written numbers."""
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def repeated(names: Iterator[str]) -> int:
    """How many names stand more than once, other than those that Python gives."""
    counts = Counter(name for name in names if not name.startswith("__"))
    return sum(count > 1 for count in counts.values())


def circles(root: Path) -> int:
    """Modules that import each other in a circle, found by removing those that import no other."""
    import grimp

    sys.path.insert(0, str(root))
    graph = grimp.build_graph("orchestrator", "jobs", exclude_type_checking_imports=True)
    needs = {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    while free := [name for name, imported in needs.items() if not imported & needs.keys()]:
        for name in free:
            del needs[name]
    return len(needs)


def walks(root: Path) -> dict[str, int]:
    """The files and returns of two walks that a reader takes."""
    from orchestrator.planning.config import load_config
    from orchestrator.reporting.publish import publish

    measures = {}
    with tempfile.TemporaryDirectory() as folder:
        run = shutil.copytree(root / RUN, Path(folder) / "run")
        config = root / "configs/bert_large.yaml"
        for name, call in {
            "load_config": lambda: load_config(config),
            "publish": lambda: publish(run),
        }.items():
            stops = walk(root, call)
            measures[f"files of {name}"] = len(set(stops))
            measures[f"returns of {name}"] = len(stops) - len(set(stops))
    return measures


def walk(root: Path, call: Callable[[], object]) -> list[str]:
    """The files in the order in which their functions are first called."""
    seen: set[CodeType] = set()
    stops: list[str] = []
    packages = (str(root / "orchestrator"), str(root / "jobs"))

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in seen or code.co_name.startswith("<"):
            return
        seen.add(code)
        name = code.co_filename
        if name.startswith(packages) and stops[-1:] != [name]:
            stops.append(name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return stops


if __name__ == "__main__":
    main()
