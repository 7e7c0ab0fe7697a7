"""The user's own code in a config: its names and its sources, read without an import."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobs.spec.users_code import UserCode, is_object_name
from jobs.techniques.hooks import service
from orchestrator.planning.config_model import OwnCodeSection
from orchestrator.planning.problems import KeyPath

KeyProblem = tuple[KeyPath, str]
"""The path of a key, and what is wrong with its value."""


def read_user_code(
    asked: OwnCodeSection, path: Path, *, is_allowed: bool
) -> tuple[UserCode | None, list[KeyProblem]]:
    """The user's own code with the digest of its sources, and what is wrong with it.

    Without ``is_allowed`` nothing of it is read, and its presence is the problem.
    """
    own = UserCode(
        trainer=asked.trainer or "",
        callbacks=tuple(asked.callbacks),
        collator=asked.collator or "",
        entry=asked.entry or "",
        folder=str(path.absolute().parent),
    )
    if not is_allowed:
        return None, [(("own_code",), _refused(own))]
    problems = _name_problems(own)
    if problems:
        return None, problems
    return _with_digest(own)


def _refused(own: UserCode) -> str:
    return (
        f"runs code of your own ({', '.join(own.names)}); to allow it, give --allow-own-code on "
        "the command line, too"
    )


def _name_problems(own: UserCode) -> list[KeyProblem]:
    problems: list[KeyProblem] = []
    for at, name in _named(own):
        if not is_object_name(name):
            message = (
                f'"{name}" is not of the form module:object, such as my_package.train:MyTrainer'
            )
            problems.append((at, message))
    if not own.names:
        problems.append(
            (("own_code",), "names nothing: give trainer, callbacks, collator or entry")
        )
    if own.entry and own.trainer:
        message = "contradicts entry, which makes the Trainer itself; remove one of them"
        problems.append((("own_code", "trainer"), message))
    return problems


def _with_digest(own: UserCode) -> tuple[UserCode | None, list[KeyProblem]]:
    """The code with its digest.

    Each object is first looked up alone, so that a problem names the key of the missing object.
    """
    digest = service("source_digest")
    for at, name in _named(own):
        try:
            digest(UserCode(entry=name, folder=own.folder))
        except ValueError as error:
            return None, [(at, str(error))]
    return replace(own, digest=digest(own)), []


def _named(own: UserCode) -> list[tuple[KeyPath, str]]:
    """Key path and text of each object."""
    named: list[tuple[KeyPath, str]] = []
    for key, name in (("trainer", own.trainer), ("collator", own.collator), ("entry", own.entry)):
        if name:
            named.append((("own_code", key), name))
    for index, name in enumerate(own.callbacks):
        named.append((("own_code", "callbacks", index), name))
    return named
