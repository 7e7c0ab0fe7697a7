"""The sources of the user's own modules, read without an import."""

import ast
import contextlib
import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from jobs.spec import UserCode


class SourceError(ValueError):
    """The source of an object was not found, or cannot be read. The message is one sentence."""


def source_digest(user_code: UserCode) -> str:
    """The digest of the sources of the user's objects. It covers their modules, and what these
    import from the config's folder or from their own package. Raises SourceError for a module that
    is not found, or that does not define its object."""
    content = hashlib.sha256()
    files: dict[str, Path] = {}
    for name in user_code.names:
        module, _, attribute = name.partition(":")
        path = file_of(module, user_code.folder)
        if path is None:
            raise SourceError(
                f"{name}: there is no module {module} in {user_code.folder} or in the environment"
            )
        if not _may_define(_parsed(path), attribute):
            raise SourceError(f"{name}: {path} defines no {attribute}")
        files |= _with_imports(module, user_code.folder)
    for module, path in sorted(files.items()):
        content.update(module.encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()[:16]


def file_of(module: str, folder: str) -> Path | None:
    """The file of a module in the config's folder, else in the environment. None if there is none,
    or if it has no source."""
    path = _below(Path(folder), module.split("."))
    if path is not None:
        return path
    package, *rest = module.split(".")
    try:
        # A top-level package is found without being imported; a module below it would not be.
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    for location in spec.submodule_search_locations or ():
        if path := _below(Path(location), rest):
            return path
    if rest or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)


def _below(folder: Path, parts: list[str]) -> Path | None:
    base = folder.joinpath(*parts)
    candidates = [base / "__init__.py"]
    if parts:
        candidates.append(base.with_name(base.name + ".py"))
    return next((path for path in candidates if path.is_file()), None)


def _with_imports(module: str, folder: str) -> dict[str, Path]:
    """Module -> file, for this module and the user's own modules that it imports."""
    package = module.partition(".")[0]
    files: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = file_of(name, folder)
        is_own = path is not None and (
            path.is_relative_to(folder) or name.partition(".")[0] == package
        )
        if name in files or path is None or not is_own:
            continue
        files[name] = path
        # Importing a module runs the packages that it is in.
        parts = name.split(".")
        waiting += [".".join(parts[:count]) for count in range(1, len(parts))]
        waiting += _imported(_parsed(path), name, is_package=path.name == "__init__.py")
    return files


def _imported(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[str]:
    """The names of modules that a source may import, wherever it does so."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):  # dots that lead out of the package
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield base
                # What is imported from a package may be a module of it.
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, SyntaxError, ValueError) as error:
        raise SourceError(f"{path} cannot be read as Python: {error}") from None


def _may_define(tree: ast.Module, attribute: str) -> bool:
    """Whether a module has the name anywhere; what ``import *`` brings is not known."""
    # Nodes that bind a name have it as one of these fields.
    names = (
        getattr(node, "asname", None) or getattr(node, "name", getattr(node, "id", None))
        for node in ast.walk(tree)
    )
    return not {attribute, "*", "__getattr__"}.isdisjoint(names)
