"""Facts of the installed libraries and of models, asked of another process once and remembered.

``jobs.library_facts`` imports the libraries, which takes seconds. So an answer is kept in the
user's cache folder, under a name that changes with the libraries. Another process may write the
same answer at the same time: a file appears whole, and both have the same content.
"""

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jobs import library_facts, self_process
from jobs.techniques import AXES
from orchestrator.storage.layout import written_beside

_LIBRARIES = ("transformers", "torch", "peft", "trl", "accelerate", "liger_kernel")
"""The packages that the answers depend on, by their import names."""


class NoAnswerError(RuntimeError):
    """The process gave no answer; the text says why in one sentence."""


@functools.cache
def facts() -> Mapping[str, Any]:
    """What ``jobs.library_facts.collected`` collects; empty if transformers is not installed. If
    the libraries are broken, a note says so, and nothing is checked against them."""
    if importlib.util.find_spec("transformers") is None:
        return {}
    library = f"transformers {installed_version('transformers')}"
    note = f"reading the classes of {library}, once after an upgrade (about 15 s)"
    families = [family for axis in AXES.values() for family in axis.families.values()]
    # Classes of our own are at hand.
    classes = {family.config_class for family in families if not is_ours(family.config_class)}
    try:
        question = {"classes": sorted(classes)}
        answer: Mapping[str, Any] = answer_of(question, note, _say)
    except NoAnswerError as error:
        _say(f"names and values are not checked, because the libraries cannot be read: {error}")
        return {}
    return answer


def is_ours(reference: str) -> bool:
    """Whether a class ``module:Class`` is one of this program."""
    return reference.startswith("jobs.")


def answer_of(question: Mapping[str, Any], note: str, say: Callable[[str], object]) -> Any:
    """The answer of ``jobs.library_facts`` to a question, as ``answers_of`` has it."""
    return answers_of([question], note, say)[0]


def answers_of(
    questions: Sequence[Mapping[str, Any]], note: str, say: Callable[[str], object]
) -> list[Any]:
    """The answers of ``jobs.library_facts``: remembered ones, and those of one process for all that
    is new. ``say`` is called with the note if something is. Raises NoAnswerError."""
    paths = [_folder() / f"{digest(question, *_identities())}.json" for question in questions]
    answers = list(map(_remembered, paths))
    missing = [at for at, answer in enumerate(answers) if answer is None]
    if missing:
        say(note)
        asked = _asked([questions[at] for at in missing])
        for at, answer in zip(missing, asked, strict=True):
            answers[at] = answer
            # With a reason, nothing may be wrong another time: the model has been downloaded.
            if "reason" not in answer:
                _remember(paths[at], answer)
    return answers


def _remembered(path: Path) -> Any:
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))


def _remember(path: Path, answer: Any) -> None:
    # A cache that cannot be written costs only the time to ask again.
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with written_beside(path) as partial:
            partial.write_text(json.dumps(answer), encoding="utf-8")


def digest(*parts: Any) -> str:
    """A short name for JSON values."""
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "orchestrator", "library_facts")


@functools.cache
def _identities() -> list[Any]:
    """What the answers depend on: Python, the installed packages, the libraries and where they lie,
    and our own code."""
    identities: list[Any] = [platform.python_version(), _installed()]
    for name in _LIBRARIES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            identities.append([name, installed_version(name), spec.origin, changed_at(spec.origin)])
    for path in sorted(Path(library_facts.__file__).parent.glob("*.py")):
        identities.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return identities


def _installed() -> list[str]:
    """Every installed package with its version, by the folders of their metadata. Any of them may
    decide an answer: transformers refuses some models without ``kernels``."""
    names: list[str] = []
    for folder in sys.path:
        with contextlib.suppress(OSError):
            names += [name for name in os.listdir(folder or ".") if name.endswith(".dist-info")]
    return sorted(names)


def installed_version(package: str) -> str:
    """The version of a package; ``none`` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def changed_at(path: str | Path) -> int:
    """When a file changed, in nanoseconds; 0 if there is none."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_mtime_ns
    return 0


def _asked(questions: Sequence[Mapping[str, Any]]) -> Any:
    """The answers of a process that sees no GPU and may not download from Hugging Face."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    try:
        ran = subprocess.run(
            self_process.command(library_facts.__name__),
            input=json.dumps(questions),
            capture_output=True,
            text=True,
            timeout=300,  # a slow network drive takes minutes to import the libraries
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"no answer within {error.timeout:.0f} s") from None
    except OSError as error:
        raise NoAnswerError(error.strerror or type(error).__name__) from None
    try:
        # A library may print other lines first.
        return json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        errors = ran.stderr.strip().splitlines() or [f"exit status {ran.returncode}"]
        raise NoAnswerError(errors[-1][:300]) from None


def _say(note: str) -> None:
    print(f"note: {note}", file=sys.stderr, flush=True)
