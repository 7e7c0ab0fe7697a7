"""``load_config`` reads a YAML file, checks all of it, and returns a frozen ``SweepConfig``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.planning.arguments import architecture_names
from orchestrator.planning.axes import AxisReader, Grids, read_grids
from orchestrator.planning.base_arguments import read_base_arguments
from orchestrator.planning.build_config import FORMAT_OF_SUFFIX, build_config, format_of
from orchestrator.planning.document import Document, Part, read_document
from orchestrator.planning.prechecks.model_keys import model_key_problems
from orchestrator.planning.prechecks.own_code import read_own_code
from orchestrator.planning.prechecks.secrets import secret_problems
from orchestrator.planning.problems import ConfigError, Problem, closest
from orchestrator.planning.renamed_keys import with_new_keys
from orchestrator.planning.schema_models import SweepSection
from orchestrator.planning.search_choice import search_problems
from orchestrator.planning.search_kinds import DEFAULT_KIND
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.validation_errors import section_of

__all__ = ["ConfigError", "SweepConfig", "load_config"]

_NEVER_RECORDED = ("loggers",)
"""Keys whose values may be secrets: no trial needs them, and run.json shows them as ``***``."""
MAX_TRIALS = 100_000
"""The most trials in a plan. It is written in seconds; a larger one takes weeks to run."""


def load_config(
    path: str | Path, *, trust_remote_code: bool = False, allow_own_code: bool = False
) -> SweepConfig:
    """Load the configuration in a YAML file. Raises ConfigError with all its problems.

    A file that asks for ``model.trust_remote_code`` or ``own_code`` is refused unless the caller
    allows it, too. Otherwise a file from a stranger could run code that the stranger chose.
    """
    renaming = with_new_keys(read_document(Path(path)))
    document = renaming.document
    section = section_of(document.value)
    # Read the axes apart from the schema, which cannot express what they may hold.
    reader = AxisReader(document)
    grids = read_grids(document.value, reader)
    base = read_base_arguments(document, reader.used)
    problems = [*renaming.problems, *reader.problems, *base.problems, *_search_problems(document)]
    whole_file = Part(document=document, at=(), value=document.value)
    problems += secret_problems(whole_file, except_keys=_NEVER_RECORDED)
    if not isinstance(section, SweepSection):
        problems += itertools.starmap(document.problem, section)
        raise ConfigError(problems)
    # A value of the right type may still name something that does not exist.
    problems += _content_problems(document, section, grids, trust_remote_code=trust_remote_code)
    own_code, own_problems = read_own_code(section, Path(path), is_allowed=allow_own_code)
    problems += [document.problem(at, message) for at, message in own_problems]
    if problems:
        raise ConfigError(problems)
    notes = [*renaming.notes, *base.notes]
    return build_config(Path(path), section, grids, base, notes, own_code=own_code)


def _content_problems(
    document: Document, section: SweepSection, grids: Grids, *, trust_remote_code: bool
) -> Iterator[Problem]:
    """Problems that are more than a wrong type of a single key."""
    yield from _model_problems(document, section, trust_remote_code=trust_remote_code)
    yield from _data_problems(document, section)
    yield from _size_problems(document, grids, section.measure.repeats)


def _search_problems(document: Document) -> Iterator[Problem]:
    for at, message in search_problems(document.value.get("search", DEFAULT_KIND)):
        yield document.problem(at, message)


def _model_problems(
    document: Document, section: SweepSection, *, trust_remote_code: bool
) -> Iterator[Problem]:
    name = section.model.architecture
    architectures = architecture_names()
    if name is not None and architectures is not None:
        if name in architectures:
            for at, message in model_key_problems(name, section.model.config):
                yield document.problem(("model", "config", *at), message)
        else:
            yield document.problem(("model", "architecture"), _unknown(name, architectures))
    # The command line must ask for it, too, because the file may come from a stranger.
    if section.model.trust_remote_code and not trust_remote_code:
        message = (
            "runs code that the checkpoint brings; to allow it, give --trust-remote-code on the "
            "command line, too"
        )
        yield document.problem(("model", "trust_remote_code"), message)


def _unknown(architecture: str, architectures: Iterable[str]) -> str:
    meant = closest(architecture, architectures)
    hint = "see transformers' list of model types"
    if meant:
        hint = f'did you mean "{meant}"?'
    return f'transformers has no architecture "{architecture}"; {hint}'


def _data_problems(document: Document, section: SweepSection) -> Iterator[Problem]:
    file = section.data.file
    if file is not None and format_of(file) is None:
        formats = ", ".join(dict.fromkeys(FORMAT_OF_SUFFIX.values()))
        message = f"needs a format for {file.path}; valid choices: {formats}, disk"
        yield document.problem(("data", "file"), message)


def _size_problems(document: Document, grids: Grids, repeats: int) -> Iterator[Problem]:
    # Count before exclusions are applied, because applying them to a huge grid takes too long.
    trials = repeats * grids.size
    if trials > MAX_TRIALS:
        message = (
            f"plans {trials:,} trials; more than {MAX_TRIALS:,} are a mistake, or need several "
            "sweeps"
        )
        yield document.problem(("axes",), message)
