"""The parameters of a library's configuration class, read from its source without an import.

Importing PEFT or transformers takes seconds, and a config's check must be instant.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_MOST_STEPS = 8
"""How many modules a name is followed through, and how many base classes."""
_NEXT_STATEMENT = re.compile(r"^[^\s#)\]}]", re.MULTILINE)
"""Where a class at the top level ends: a line that is neither indented nor closes a bracket."""
_IMPORT = re.compile(r"^from [.\w]+ import (?P<names>\([^)]*\)|.*)$", re.MULTILINE)
_OF_DEFAULT: Mapping[type, str] = {bool: "bool", int: "float", float: "float", str: "str"}
"""Type of a default -> the annotation that a parameter without one is taken to have."""


@functools.cache
def parameters_of(reference: str) -> Mapping[str, ast.expr | None] | None:
    """Parameter -> its annotation (None: any value) for the class ``module:Class``.

    They are the fields of a dataclass, or the arguments of ``__init__``. None if the library is not
    installed, or has no such class.
    """
    module, _, name = reference.partition(":")
    definitions = list(_inheritance_chain(module, name))
    if not definitions:
        return None
    # From the base down, so that a class overrides what it inherits.
    parameters: dict[str, ast.expr | None] = {}
    for definition in reversed(definitions):
        parameters |= _fields(definition)
        parameters |= _constructor_arguments(definition)
    return parameters


def _inheritance_chain(module: str, name: str) -> Iterator[ast.ClassDef]:
    """The class, then its first base, and so on as far as they can be found."""
    for _ in range(_MOST_STEPS):
        found = _definition(module, name)
        if found is None:
            return
        module, definition = found
        yield definition
        bases = [base.id for base in definition.bases if isinstance(base, ast.Name)]
        if not bases:
            return
        name = bases[0]


@functools.cache
def _definition(module: str, name: str) -> tuple[str, ast.ClassDef] | None:
    """The module that defines a class, and the definition, through the imports of its name."""
    for _ in range(_MOST_STEPS):
        text = _text(module)
        if text is None:
            return None
        definition = _class_in(text, name)
        if definition is not None:
            return module, definition
        statement = _import_of(text, name)
        if statement is None:
            return None
        module = _absolute(statement, module)
    return None


def _class_in(text: str, name: str) -> ast.ClassDef | None:
    """The class of this name at the top level of a module; None if there is none."""
    begin = max(text.find(f"\nclass {name}{sign}") for sign in "(:")
    if begin < 0:
        return None
    end = _NEXT_STATEMENT.search(text, begin + len("\nclass"))
    # Only the class is parsed: a whole module would take ten times as long.
    lines = text[begin : end.start() if end else None]
    try:
        (statement,) = ast.parse(lines).body
    except SyntaxError:
        # A docstring that is not indented looks like the end of the class.
        classes = [found for found in ast.parse(text).body if isinstance(found, ast.ClassDef)]
        (statement,) = (found for found in classes if found.name == name)
    assert isinstance(statement, ast.ClassDef)
    return statement


def _import_of(text: str, name: str) -> ast.ImportFrom | None:
    """The last ``from ... import`` at the top level of a module that gives the name."""
    imports = [match for match in _IMPORT.finditer(text) if name in match["names"]]
    for match in reversed(imports):
        (statement,) = ast.parse(match[0]).body
        assert isinstance(statement, ast.ImportFrom)
        if name in [alias.asname or alias.name for alias in statement.names]:
            return statement
    return None


def _absolute(statement: ast.ImportFrom, module: str) -> str:
    """The module that an import names; one dot is the package of the importing module."""
    if not statement.level:
        return statement.module or ""
    parts = module.split(".")
    path = _path(module)
    is_package = path is not None and path.name == "__init__.py"
    dropped = statement.level
    if is_package:
        dropped -= 1
    package = parts[: len(parts) - dropped]
    return ".".join([*package, *filter(None, [statement.module])])


@functools.cache
def _text(module: str) -> str | None:
    """The source of a module; None if there is none."""
    path = _path(module)
    if path is None:
        return None
    return path.read_text(encoding="utf-8")


@functools.cache
def _path(module: str) -> Path | None:
    """The file of a module; None if its library is not installed or has no such module."""
    package, *rest = module.split(".")
    # A top-level package is found without being imported; a module below it would not be.
    spec = importlib.util.find_spec(package) if package else None
    if spec is None or not spec.submodule_search_locations:
        return None
    base = Path(spec.submodule_search_locations[0]).joinpath(*rest)
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _fields(definition: ast.ClassDef) -> dict[str, ast.expr | None]:
    """The annotated names of a class body, without those that the constructor does not take."""
    fields: dict[str, ast.expr | None] = {}
    for statement in definition.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if ast.unparse(statement.annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        if not _is_left_out(statement.value):
            fields[statement.target.id] = statement.annotation
    return fields


def _is_left_out(default: ast.expr | None) -> bool:
    """Whether it is ``field(init=False)``."""
    if not isinstance(default, ast.Call):
        return False
    for keyword in default.keywords:
        if keyword.arg == "init" and isinstance(keyword.value, ast.Constant):
            return keyword.value.value is False
    return False


def _constructor_arguments(definition: ast.ClassDef) -> dict[str, ast.expr | None]:
    arguments: dict[str, ast.expr | None] = {}
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            # All but self; the defaults belong to the last arguments.
            named = statement.args.args[1:]
            defaults = statement.args.defaults
            padded = [None] * (len(named) - len(defaults)) + defaults
            for argument, default in zip(named, padded, strict=True):
                arguments[argument.arg] = argument.annotation or _annotation_of(default)
    return arguments


def _annotation_of(default: ast.expr | None) -> ast.expr | None:
    """The annotation that a default suggests; None if it suggests none."""
    if not isinstance(default, ast.Constant) or type(default.value) not in _OF_DEFAULT:
        return None
    return ast.Name(id=_OF_DEFAULT[type(default.value)])
