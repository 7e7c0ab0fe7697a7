"""Predicts the memory of trials. Those that differ only in batch or optimizer share traces."""

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout

from jobs.spec import TrialSpec, to_json
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.model_group import predictions
from orchestrator.prediction.prediction import Prediction
from orchestrator.prediction.step_work import UPDATE_ARGUMENTS
from orchestrator.prediction.unsupported import unpredictable

_BATCH_ARGUMENTS = ("per_device_train_batch_size", "gradient_accumulation_steps")
_UNTRACED_ARGUMENTS = (*UPDATE_ARGUMENTS, *_BATCH_ARGUMENTS, "tf32")
"""Training arguments that do not change how a micro-batch runs through the model."""
_UNTRACED_HOOKS = ("optimizer", "partitioner")
"""Places of hooks that change only the update, or only compiled code."""
_UNTRACED_PREFIXES = ("dataloader_", "logging_")


Watch = Callable[[int, int], object]
"""Called with how many trials are predicted, and how many there are."""


def unwatched(done: int, trials: int) -> None:
    """The ``Watch`` of a caller that shows no progress."""


def predict(trials: Sequence[TrialSpec], gpu: Gpu, watch: Watch = unwatched) -> list[Prediction]:
    """Predictions in the order of the trials. Output of libraries goes to stderr."""
    return [own for (own,) in predict_on(trials, [gpu], watch)]


def predict_on(
    trials: Sequence[TrialSpec], gpus: Sequence[Gpu], watch: Watch = unwatched
) -> list[list[Prediction]]:
    """For each trial, in order, its predictions by the constants of each GPU."""
    by_id: dict[str, list[Prediction]] = {}
    watch(0, len(trials))
    with quiet_libraries():
        for group in sharing_traces(trials):
            for own in predictions(group, gpus):
                by_id[own[0].trial_id] = own
                watch(len(by_id), len(trials))
    return [by_id[trial.trial_id] for trial in trials]


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Within it, libraries log and warn of nothing, and print to stderr."""
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def sharing_traces(trials: Iterable[TrialSpec]) -> list[list[TrialSpec]]:
    """The trials in groups that share traces: each group has one model and one way to run it."""
    groups: dict[str, list[TrialSpec]] = {}
    for spec in trials:
        groups.setdefault(model_key(spec), []).append(spec)
    return list(groups.values())


def model_key(spec: TrialSpec) -> str:
    """Equal for trials that share traces."""
    settings = to_json(spec.settings)
    arguments = {
        name: value
        for name, value in settings["training_arguments"].items()
        if name not in _UNTRACED_ARGUMENTS and not name.startswith(_UNTRACED_PREFIXES)
    }
    hooks = {place: own for place, own in settings["hooks"].items() if place not in _UNTRACED_HOOKS}
    parts = [
        to_json(spec.model),
        to_json(spec.data),
        arguments,
        settings["model_kwargs"],
        hooks,
        settings["deepspeed"],
        spec.world_size,
        spec.measure.evaluate_and_save,
        spec.measure.upkeep.compute_metrics_rows,
        bool(unpredictable(spec)),
    ]
    return json.dumps(parts, sort_keys=True)
