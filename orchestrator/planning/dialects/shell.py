"""The commands of a shell script, with the variables and sums that it sets; nothing is run."""

import ast
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from operator import add, floordiv, mod, mul, sub

from orchestrator.planning.document import MAX_BYTES

Variables = dict[str, list[str]]
"""Name -> the values that a script gives it one after another, of which the last counts."""

_QUOTED = r"""(?<!\w)'[^']*'|"(?:\\[\s\S]|[^"\\])*\""""
_PARENTHESES = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1(.*)\n((?:.*\n)*?)\s*\2[ \t]*$", re.MULTILINE)
"""A text inside the script, which may be a script of its own."""
_BLANK = re.compile(
    # A comment begins a word and ends with its line; a line goes on after a backslash.
    rf"({_QUOTED}|\\[^\s])|\\[ \t]*(?:\n|\Z)|(?<![^\s;&|(])(?:#.*|\d+(?=[<>]))"
)
_COMMAND = re.compile(rf"(?:{_QUOTED}|[$=]{_PARENTHESES}|`[^`]*`|\\.|[^\n;|&<>()'\"`\\])+")
"""All before an operator or a redirection."""
_VARIABLE = re.compile(
    r"\$(?:(\w+)|\{(\w+)(?:\[[@*]\])?(?::?[-=]((?:[^{}]|\{[^{}]*\})*))?\})|"
    rf"\$({_PARENTHESES})|`([^`]*)`"
)
_LIST = re.compile(r"\s*(?:\w+ (?:-\w+ )?)?(\w+)(\+?)=\(([\s\S]*)\)\s*")
_REQUIRED = re.compile(r"\$\{(\w+):?\?[^{}]*\}")
"""A variable that the user must give, with the message if it is absent."""
_PLACEHOLDER = re.compile(r"(?<=[\s=\"'/])<[A-Za-z](?:[^<>|;&\n]*[^<>|;&\s])?>(?=[\s\"'/]|\Z)")
"""What the user of a text must write instead, as ``<your model>``: no redirection."""
_UNSET = re.compile(r"\$(\w+|[@*#]|\{.*\}|\(\.\.\.\))")
_BEFORE = ["export", "local", "declare", "readonly", "then", "else", "do", "{", "eval"]
"""Words before a command or an assignment."""
_OPERATIONS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: floordiv, ast.Mod: mod}


def commands(text: str, variables: Variables) -> Iterator[tuple[list[str], list[str]]]:
    """The words of each command, and those of its variables that had other values before."""
    text = _PLACEHOLDER.sub("${...}", _REQUIRED.sub(r"${\1}", text))
    parts = [_HERE.sub(r"\3\n", text), *(found[3] for found in _HERE.findall(text))]
    for part in parts:
        joined = _BLANK.sub(lambda found: (found[1] or " ").replace("\\\n", " "), part)
        for command in _COMMAND.findall(joined):
            expanded = _expanded(re.sub(r'"(\$\{\w+\[[@*]\]\})"', r"\1", command), variables)
            # Variables of variables can fill any memory.
            if len(expanded) < MAX_BYTES // 32:
                named = (name for found in _VARIABLE.findall(command) for name in found[:2])
                yield from _read(expanded, list(named), variables)


def written_files(text: str, variables: Variables) -> dict[str, str]:
    """The files that a script writes as texts inside it: ``cat > NAME <<END``."""
    files = {}
    for found in _HERE.finditer(text):
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()] + found[3]
        if name := re.search(r">\s*([^\s>|]+)", _expanded(line, variables)):
            body = re.sub(r"^\$\S+$", "", _expanded(found[4], variables), flags=re.MULTILINE)
            files[name[1].strip("\"'")] = body
    return files


def is_unset(value: object) -> bool:
    """Whether a value depends on a variable or command of the shell that is not known."""
    return _UNSET.search(str(value)) is not None


def _read(
    expanded: str, named: list[str], variables: Variables
) -> Iterator[tuple[list[str], list[str]]]:
    if found := _LIST.fullmatch(expanded):
        _assign(found[1], f" {found[3]}", variables, adds=bool(found[2]))
        return
    try:
        words = shlex.split(expanded)
    except ValueError:
        return
    text = ""
    while words:
        if found := re.match(r"(\w+)(\+?)=", words[0]):
            _assign(found[1], words[0][found.end() :], variables, adds=bool(found[2]))
        elif words[0] not in _BEFORE:
            break
        elif words[0] == "eval":
            text = " ".join(words[1:])
        del words[0]
    for shell, option, inside in zip(words, words[1:], words[2:], strict=False):
        text = inside if shell.endswith("sh") and option in ("-c", "-lc") else text
    if text:
        yield from commands(text, variables)
    elif words:
        yield words, [name for name in named if len(set(variables.get(name, ()))) > 1]


def _assign(name: str, value: str, variables: Variables, *, adds: bool) -> None:
    values = variables.setdefault(name, [])
    if adds and values:
        value = values.pop() + value
    if not _UNSET.fullmatch(value):
        values.append(value)
    elif not values:
        del variables[name]  # a default beside it counts


def _expanded(text: str, variables: Variables) -> str:
    def known(found: re.Match[str]) -> str:
        if inner := found[4] or found[5]:
            return _whole_number(_expanded(inner, variables), variables) or "$(...)"
        if values := variables.get(found[1] or found[2]):
            return values[-1]
        return found[0] if found[3] is None else _expanded(found[3], variables)

    return _VARIABLE.sub(known, text)


def _whole_number(text: str, variables: Variables) -> str:
    """The result of ``$((8 / 4))`` or ``$(expr 8 / 4)``; empty if it is no such arithmetic."""
    text = re.sub(r"^(\(?)\s*expr\s", r"\1", text).replace("\\", "")
    text = re.sub(r"[A-Za-z_]\w*", lambda found: variables.get(found[0], "?")[-1], text).strip()
    with suppress(SyntaxError, KeyError, TypeError, ValueError, ZeroDivisionError):
        if re.fullmatch(r"[\d\s()+*/%-]{1,99}", text):
            return str(_result(ast.parse(text, mode="eval").body))
    return ""


def _result(node: ast.expr) -> int:
    """The value of an expression. Raises an error for what is neither a number nor a sum."""
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_result(node.left), _result(node.right))
    return int(ast.literal_eval(node))
