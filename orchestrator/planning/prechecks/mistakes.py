"""All checks of a configuration's text and files before the first trial."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.spec import SyntheticData, Task, TrialSpec
from jobs.tasks import SPEECH
from jobs.techniques.hooks import service
from orchestrator.planning.document import folder_of, read_document
from orchestrator.planning.prechecks import checkpoints
from orchestrator.planning.prechecks.built_model import ModelSize, changes_of, size_and_refused
from orchestrator.planning.prechecks.data_columns import data_problems, left_out_tools
from orchestrator.planning.prechecks.images import damaged_image, image_problems
from orchestrator.planning.prechecks.lengths import lengths_of_axis, sequence_lengths, used_choices
from orchestrator.planning.prechecks.model_configuration import (
    ModelConfiguration,
    model_key_problems,
)
from orchestrator.planning.prechecks.model_sizes import size_remarks
from orchestrator.planning.prechecks.pairs import long_prompts, pair_problems, reads_pairs
from orchestrator.planning.prechecks.sounds import sound_problems
from orchestrator.planning.problems import (
    ConfigError,
    KeyPath,
    KeyProblem,
    KeyProblems,
    Problem,
    Remark,
)
from orchestrator.planning.settings import SweepConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """The size of the model, and what of the plan it cannot have."""

    size: ModelSize
    refused: tuple[str, ...] = ()
    """A sentence for each adapter, or names of weights to train, that the model cannot have."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Name and text of each fact."""
        if self.size.parameters is not None:
            yield "model", f"{self.size.parameters:,} parameters"
        elif self.size.reason:
            yield "model", f"parameters not counted: {self.size.reason}"

    def to_json(self) -> dict[str, Any]:
        """The facts as plain JSON values."""
        return {"parameters": self.size.parameters}


def check_files(
    config: SweepConfig, *, runs_elsewhere: bool = False, asks_hub: bool = False
) -> tuple[str, ...]:
    """Check the files of a configuration. Returns notes about it if there is no problem.

    ``runs_elsewhere`` says that the trials run on other machines. Then a file that is missing here
    is only a note. ``asks_hub`` says whether to ask the Hub for checkpoints that this machine does
    not have. Raises ConfigError with all problems.
    """
    configuration = ModelConfiguration.of(config.model)
    missing = [
        *_missing_checkpoints(config, asks_hub=asks_hub and not runs_elsewhere),
        *_problems_of_data(config, configuration),
    ]
    found = [*_problems_of_text(config, configuration), *size_remarks(config, configuration)]
    if not missing:
        found += _long_prompts(config)
    if runs_elsewhere:
        suffix = " (on this machine; the trials run on others)"
        missing = [Remark(at, f"{message}{suffix}", True) for at, message, _ in missing]
    found += missing
    if asks_hub and config.own_code is not None and all(finding.is_note for finding in found):
        # Last, because it runs the user's modules, which takes seconds.
        message = service("user_code_problem")(config.own_code)
        if message:
            found.append(Remark(("own_code",), message))
    mistakes = [finding for finding in found if not finding.is_note]
    if mistakes:
        raise ConfigError(_at_their_lines(config, mistakes))
    return tuple(map(str, _at_their_lines(config, found)))


def _long_prompts(config: SweepConfig) -> Iterator[Remark]:
    is_pairs, file = True in _kinds_of_rows(config), config.data.file
    if file is None or not (is_pairs or config.model.task == "causal-lm"):
        return
    # A parameter of TRL's SFT can have the prompts learned, too, so that it is no mistake.
    is_sft = not is_pairs and "sft" in "".join(map(str, used_choices(config, "loop")))
    for remark in long_prompts(file, list(sequence_lengths(config)), is_pairs=is_pairs):
        yield remark._replace(is_note=remark.is_note or is_sft)


def _at_their_lines(config: SweepConfig, findings: Sequence[Remark]) -> list[Problem]:
    # Reading the file again takes a while, and only a finding needs its lines.
    document = read_document(config.source) if findings else None
    return [document.problem(at, message) for at, message, _ in findings] if document else []


def model_facts(
    config: SweepConfig, say: Callable[[str], object], trials: Sequence[TrialSpec] = ()
) -> ModelFacts:
    """The size of the model, and what it cannot have of the adapters of ``trials``. ``say`` gets a
    note first if that takes some seconds. Raises ConfigError if the model cannot be built from its
    configuration."""
    size, refused = size_and_refused(config.model, changes_of(trials), say)
    if size.mistake:
        message = f"transformers cannot build this model: {size.mistake}"
        raise ConfigError(_at_their_lines(config, [Remark(("model", "config"), message)]))
    return ModelFacts(size=size, refused=refused)


def _missing_checkpoints(config: SweepConfig, *, asks_hub: bool) -> Iterator[Remark]:
    file = config.data.file
    tokenizer = None if file is None else file.tokenizer
    named: tuple[tuple[KeyPath, str | None, Callable[[str], str]], ...] = (
        (("model", "name_or_path"), config.model.name_or_path, checkpoints.model_problem),
        (("data", "file", "tokenizer"), tokenizer, checkpoints.tokenizer_problem),
    )
    for at, name, check in named:
        if name is None:
            continue
        problem = checkpoints.missing_folder(name, folder_of(config.source)) or check(name)
        if not problem and asks_hub and not checkpoints.is_on_this_machine(name):
            problem = checkpoints.unreachable(name)
        if problem:
            yield Remark(at, problem)
        elif "/" not in name and not checkpoints.is_on_this_machine(name):
            yield Remark(at, checkpoints.taken_for_a_name(name, folder_of(config.source)), True)


def _kinds_of_rows(config: SweepConfig) -> set[bool]:
    """Whether the loops of the plan read pairs of answers from the data file, and other rows."""
    return set(map(reads_pairs, used_choices(config, "loop")))


def _problems_of_data(config: SweepConfig, configuration: ModelConfiguration) -> Iterator[Remark]:
    file = config.data.file
    if file is None:
        return
    problems: list[KeyProblem] = []
    kinds = _kinds_of_rows(config)
    if True in kinds:
        problems += pair_problems(file)
    if False in kinds:
        problems += data_problems(file, config.model.task, configuration)
    if not problems and file.format == "imagefolder" and (damage := damaged_image(Path(file.path))):
        problems.append((("path",), damage))
    yield from (Remark(("data", "file", *below), message) for below, message in problems)


_TASKS_OF: Mapping[str, Sequence[Task]] = {
    "images": ("image-text-to-text",),
    "image_size": ("image-classification", "image-text-to-text"),
    "seconds": SPEECH,
    "target_length": ("seq2seq-lm",),
}
"""Key of random samples -> the tasks that it is for."""


def _keys_of_other_tasks(config: SweepConfig, _: ModelConfiguration) -> KeyProblems:
    given = config.data.synthetic or SyntheticData()
    for key, tasks in _TASKS_OF.items():
        is_given = getattr(given, key) != getattr(SyntheticData(), key)
        if is_given and config.model.task not in tasks:
            kinds = "task" if len(tasks) == 1 else "tasks"
            yield ("data", "synthetic", key), f"is for the {kinds} {' and '.join(tasks)} only"


def _problems_of_text(config: SweepConfig, configuration: ModelConfiguration) -> Iterator[Remark]:
    if config.data.file is not None:
        yield from left_out_tools(config.data.file)
    if config.model.task == "image-classification":
        message = "images have no tokens: remove this axis; their size is in model.config"
        yield from (Remark(at, message) for at, _ in lengths_of_axis(config))
    for problems in (_keys_of_other_tasks, image_problems, sound_problems):
        yield from itertools.starmap(Remark, problems(config, configuration))
    if config.model.name_or_path is None:
        return  # ``load_config`` has checked the keys of an architecture
    saved = checkpoints.checkpoint_config(config.model.name_or_path) or {}
    for at, message in model_key_problems(configuration, config.model.config):
        if at[0] not in saved:
            yield Remark(("model", "config", *at), message)
