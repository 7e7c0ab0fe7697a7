"""All checks of a configuration's text and files before the first trial."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.spec import DatasetFile
from jobs.techniques.hooks import service
from orchestrator.planning.document import read_document
from orchestrator.planning.prechecks import checkpoints
from orchestrator.planning.prechecks.batch_shape import Shapes, batch_shapes, in_words
from orchestrator.planning.prechecks.configuration_class import configuration_class
from orchestrator.planning.prechecks.data_columns import data_problems
from orchestrator.planning.prechecks.images import image_problems
from orchestrator.planning.prechecks.lengths import (
    lengths_of_axis,
    sequence_lengths,
    used_choices,
)
from orchestrator.planning.prechecks.model_keys import model_key_problems
from orchestrator.planning.prechecks.model_size import ModelSize, model_size
from orchestrator.planning.prechecks.pairs import (
    PromptFindings,
    pair_problems,
    prompt_findings,
    reads_pairs,
)
from orchestrator.planning.prechecks.positions import trained_positions, usable_positions
from orchestrator.planning.prechecks.technique_requirements import model_keys
from orchestrator.planning.problems import ConfigError, KeyPath, Problem
from orchestrator.planning.settings import SweepConfig

_DEFAULT_LABELS = 2
"""Number of classes of a model whose configuration names none, as in transformers."""
Finding = tuple[KeyPath, str]
"""The path of a key, and a sentence about its value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """The size of the model, and the shape of its batches."""

    size: ModelSize
    shapes: Shapes
    """The tensors of one batch at the smallest micro-batch of the plan."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Name and text of each fact."""
        if self.size.parameters is not None:
            yield "model", f"{self.size.parameters:,} parameters"
        elif self.size.reason:
            yield "model", f"parameters not counted: {self.size.reason}"
        if self.shapes:
            yield "one batch", in_words(self.shapes)

    def to_json(self) -> dict[str, Any]:
        """The facts as plain JSON values."""
        shapes = {name: list(sizes) for name, sizes in self.shapes.items()}
        return {"parameters": self.size.parameters, "one_batch": shapes}


def check_files(
    config: SweepConfig, *, runs_elsewhere: bool = False, asks_hub: bool = False
) -> tuple[str, ...]:
    """Check the files of a configuration. Returns notes about it if there is no problem.

    ``runs_elsewhere`` says that the trials run on other machines. Then a file that is missing here
    is only a note. ``asks_hub`` says whether to ask the Hub for checkpoints that this machine does
    not have. Raises ConfigError with all problems.
    """
    missing = list(_file_findings(config, asks_hub=asks_hub and not runs_elsewhere))
    unusual = list(_length_notes(config))
    mistakes = list(_text_findings(config))
    if not missing:
        long_prompts = _prompt_findings(config)
        mistakes += long_prompts.mistakes
        unusual += long_prompts.notes
    if runs_elsewhere:
        for at, message in missing:
            unusual.append((at, f"{message} (on this machine; the trials run on others)"))
    else:
        mistakes += missing
    if not mistakes and asks_hub:
        # Last, because it runs the user's modules, which takes seconds.
        mistakes += _own_code_findings(config)
    if mistakes:
        raise ConfigError(_at_their_lines(config, mistakes))
    return tuple(map(str, _at_their_lines(config, unusual)))


def _own_code_findings(config: SweepConfig) -> Iterator[Finding]:
    """A problem if the user's own objects cannot be imported."""
    if config.own_code is None:
        return
    message = service("user_code_problem")(config.own_code)
    if message:
        yield ("own_code",), message


def _at_their_lines(config: SweepConfig, findings: Sequence[Finding]) -> list[Problem]:
    """The findings with their lines in the file."""
    # Reading the file again takes a while, and only a finding needs its lines.
    if not findings:
        return []
    document = read_document(config.path)
    return [document.problem(at, message) for at, message in findings]


def model_facts(config: SweepConfig, micro_batch: int, say: Callable[[str], object]) -> ModelFacts:
    """The model's size and the shape of one batch.

    ``say`` is called with a note before the parameters are counted, if that takes some seconds.
    Raises ConfigError if the model cannot be built from its configuration.
    """
    size = model_size(config.model, say)
    if size.mistake:
        document = read_document(config.path)
        raise ConfigError([document.problem(("model", "config"), _refused(size.mistake))])
    model_type, given = model_keys(config.model)
    return ModelFacts(size=size, shapes=batch_shapes(config, model_type, given, micro_batch))


def _refused(mistake: str) -> str:
    return f"transformers cannot build this model: {mistake}"


def _file_findings(config: SweepConfig, *, asks_hub: bool) -> Iterator[Finding]:
    """Problems of the checkpoint, the tokenizer and the data."""
    file = config.data.file
    for at, name, check in _named_files(config):
        problem = check(name)
        if not problem and asks_hub and not checkpoints.is_on_this_machine(name):
            problem = _unreachable(name)
        if problem:
            yield at, problem
    if file is not None:
        for below, message in _data_problems(config, file):
            yield ("data", "file", *below), message


def _data_problems(config: SweepConfig, file: DatasetFile) -> Iterator[Finding]:
    """Problems of the data file, for each kind of rows that a loop of the plan reads from it."""
    of_pairs = set(map(reads_pairs, used_choices(config, "loop")))
    if True in of_pairs:
        yield from pair_problems(file)
    if False in of_pairs:
        task = config.model.task
        yield from data_problems(file, task, _num_labels(config), _vocabulary(config))


def _named_files(config: SweepConfig) -> Iterator[tuple[KeyPath, str, Callable[[str], str]]]:
    """The checkpoint and the tokenizer of the configuration: key, name, and the check for it."""
    if config.model.name_or_path is not None:
        yield ("model", "name_or_path"), config.model.name_or_path, checkpoints.model_problem
    file = config.data.file
    if file is not None and file.tokenizer is not None:
        yield ("data", "file", "tokenizer"), file.tokenizer, checkpoints.tokenizer_problem


@functools.cache
def _unreachable(name: str) -> str:
    """Why a checkpoint cannot be had from the Hub; empty if it can.

    The answer is cached, because a model and its tokenizer mostly have the same name.
    """
    return checkpoints.unreachable(name)


def _text_findings(config: SweepConfig) -> Iterator[Finding]:
    """Problems with the model's configuration: unknown keys, and sequences that are too long."""
    yield from _lengths_of_images(config)
    model_type, given = model_keys(config.model)
    yield from image_problems(config, model_type, given)
    if model_type is None:
        return
    if config.model.name_or_path is not None:
        # Only for checkpoints: ``load_config`` has checked the keys of an architecture.
        saved = checkpoints.checkpoint_config(config.model.name_or_path) or {}
        for at, message in model_key_problems(model_type, config.model.config):
            if at[0] not in saved:
                yield ("model", "config", *at), message
    positions = usable_positions(model_type, given)
    for at, length in sequence_lengths(config):
        if positions is None or length <= positions:
            continue
        yield (
            at,
            f"is {length} tokens, and {model_type} has positions for {positions}; give at most "
            f"{positions}, or a larger model.config.max_position_embeddings",
        )


def _length_notes(config: SweepConfig) -> Iterator[Finding]:
    """A note if sequences are longer than those that the model was trained for."""
    model_type, given = model_keys(config.model)
    trained = trained_positions(model_type or "", given)
    for at, length in sequence_lengths(config):
        if trained is None or length <= trained:
            continue
        yield (
            at,
            f"is {length} tokens, and {model_type} was made for {trained}; it runs all the same",
        )


def _prompt_findings(config: SweepConfig) -> PromptFindings:
    """Prompts of pairs that leave no room for an answer; none without pairs."""
    file = config.data.file
    if file is None or not any(map(reads_pairs, used_choices(config, "loop"))):
        return PromptFindings()
    return prompt_findings(file, list(sequence_lengths(config)))


def _lengths_of_images(config: SweepConfig) -> Iterator[Finding]:
    """Sequence lengths of a model whose samples have none."""
    if config.model.task == "image-classification":
        for at, _ in lengths_of_axis(config):
            yield at, "images have no tokens: remove this axis; their size is in model.config"


def _num_labels(config: SweepConfig) -> int | None:
    """The number of classes of the model; None if its configuration is not on this machine."""
    model_type, given = model_keys(config.model)
    if model_type is None or configuration_class(model_type) is None:
        return None
    labels = given.get("id2label")
    if "num_labels" in config.model.config or not isinstance(labels, Mapping):
        count = given.get("num_labels", _DEFAULT_LABELS)
        if isinstance(count, int):
            return count
        return None
    return len(labels)


def _vocabulary(config: SweepConfig) -> int | None:
    """The number of token ids of the model; None if its configuration does not say."""
    model_type, given = model_keys(config.model)
    described_class = configuration_class(model_type or "")
    if described_class is None:
        return None
    count = described_class.value("vocab_size", given)
    return count if isinstance(count, int) else None
