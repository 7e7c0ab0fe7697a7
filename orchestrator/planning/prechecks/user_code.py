"""The user's own code in a config: its names and its sources, read without an import."""

from dataclasses import replace
from pathlib import Path

from jobs.spec.users_code import UserCode, is_object_name
from jobs.techniques.hooks import service
from orchestrator.labels import option
from orchestrator.planning.keys.config_model import OwnCodeSection
from orchestrator.planning.problems import KeyPath, KeyProblem


def read_user_code(
    asked: OwnCodeSection | None, folder: Path, *, is_allowed: bool
) -> tuple[UserCode | None, list[KeyProblem]]:
    """The user's own code with the digest of its sources, and what is wrong with it. Without
    ``is_allowed`` nothing of it is read, and its presence is the problem."""
    if asked is None:
        return None, []
    texts = {name: value or "" for name, value in asked.model_dump(exclude={"callbacks"}).items()}
    own = UserCode(**texts, callbacks=asked.callbacks, folder=str(folder))
    if not is_allowed:
        message = (
            f"runs code of your own ({', '.join(own.names)}); to allow it, give "
            f"{option('allow-own-code')} on the command line, too"
        )
        return None, [(("own_code",), message)]
    problems = _name_problems(own)
    if problems:
        return None, problems
    digest = service("source_digest")
    # Each object is first looked up alone, so that a problem names the key of the missing object.
    for at, name in _named(own):
        try:
            digest(UserCode(entry=name, folder=own.folder))
        except ValueError as error:
            return None, [(at, str(error))]
    return replace(own, digest=digest(own)), []


def _name_problems(own: UserCode) -> list[KeyProblem]:
    form = "is not of the form module:object, such as my_package.train:MyTrainer"
    named = _named(own)
    problems = [(at, f'"{name}" {form}') for at, name in named if not is_object_name(name)]
    if not named:
        message = "names nothing: give trainer, callbacks, collator or entry"
        problems.append((("own_code",), message))
    if own.entry and own.trainer:
        message = "contradicts entry, which makes the Trainer itself; remove one of them"
        problems.append((("own_code", "trainer"), message))
    return problems


def _named(own: UserCode) -> list[tuple[KeyPath, str]]:
    keys: list[KeyPath] = [("trainer",), ("collator",), ("entry",)]
    keys += [("callbacks", index) for index in range(len(own.callbacks))]
    names = (own.trainer, own.collator, own.entry, *own.callbacks)
    named = zip(keys, names, strict=True)
    return [(("own_code", *key), name) for key, name in named if name]
