"""Writes all files of an export to the folder to train from."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from jobs.flags import LOSS
from jobs.permissions import refusal
from jobs.spec import ModelSpec, TrialSpec, to_json
from jobs.spec.limits import MAX_SEED
from orchestrator.analysis.configuration import MISMATCH, Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.environment_results import EnvironmentResults
from orchestrator.analysis.recommendation.offers import Offer
from orchestrator.export import arguments
from orchestrator.export.generated_code import NotExportableError
from orchestrator.export.packages import packages, requirements
from orchestrator.export.script import readme, train_script
from orchestrator.export.source_lifting import FILE_NAME, RANDOM_ROWS, data_module
from orchestrator.export.source_trial import source_trial
from orchestrator.planning.choices.arguments import (
    EXPORTED,
    LOGGING,
    argument_names,
)
from orchestrator.planning.dialects.write_back.changed_file import changed_file
from orchestrator.prediction.estimator import quiet_libraries
from orchestrator.reporting import flags
from orchestrator.reporting.recommendation_notes import notes
from orchestrator.storage.layout import written_beside
from orchestrator.storage.redaction import secret_paths
from orchestrator.storage.user_files import refuse_used_folder
from orchestrator.units import memory, number

_DAMAGE = (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError)
"""Errors that code for trials can raise if a spec comes from a damaged or foreign record."""


def export(
    spec: TrialSpec,
    folder: Path,
    *,
    label: str,
    epochs: float = 1,
    logging: Mapping[str, object] | None = None,
    peak_bytes: int | None = None,
    measured: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    versions: Mapping[str, object] | None = None,
    copies: Mapping[str, str] | None = None,
    force: bool = False,
) -> tuple[Path, ...]:
    """Write the files to train as the trial ``spec`` to ``folder``. Returns their paths.

    ``logging`` are the user's arguments about logs. ``versions`` are those of the packages
    that it was measured with; ``copies`` are other files to write, as name -> text; ``force``
    replaces files of the same names. Raises NotExportableError or FileExistsError before it writes
    anything.
    """
    refuse_used_folder(folder, force=force)
    _refuse_secrets(spec)
    # Make all texts before writing, so that a failure leaves no half-written folder.
    try:
        if reason := refusal(spec):
            raise NotExportableError(reason)
        with quiet_libraries():  # the code of a loop is copied from its modules, which import them
            texts = _training_files(spec, label, epochs, logging or {}, peak_bytes)
        texts["README.md"] = readme(spec, label, measured or {}, notes)
        texts["requirements.txt"] = requirements(spec, versions or {})
    except NotExportableError:
        raise
    except _DAMAGE as error:
        raise NotExportableError(
            f"the row's settings are not those of a trial ({error!r})"
        ) from None
    return _written({**texts, **(copies or {})}, folder)


def _refuse_secrets(spec: TrialSpec) -> None:
    """A configuration with a secret is refused today, but earlier versions recorded it."""
    for at in secret_paths(to_json(spec)):
        name = ".".join(map(str, at))
        raise NotExportableError(f"{name} looks like a secret, which no script may hold")


def _training_files(
    spec: TrialSpec,
    label: str,
    epochs: float,
    logging: Mapping[str, object],
    peak_bytes: int | None,
) -> dict[str, str]:
    texts = _settings_files(spec, epochs, logging)
    texts["train.py"] = train_script(spec, label, peak_bytes=peak_bytes)
    # Random images with texts have a layout for each family, random pairs a length for each answer.
    has_own_form = spec.model.task == "image-text-to-text" or "preferences" in spec.settings.hooks
    is_file = spec.data.file is not None
    texts[FILE_NAME] = data_module() if is_file or has_own_form else data_module(RANDOM_ROWS)
    return texts


def _written(texts: Mapping[str, str], folder: Path) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        # Written beside, so that a link of that name is replaced and not followed.
        with written_beside(folder / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return tuple(folder / name for name in texts)


def _settings_files(
    spec: TrialSpec, epochs: float, logging: Mapping[str, object]
) -> dict[str, str]:
    settings = {**arguments.training_arguments(spec, epochs=epochs), **logging}
    texts = {
        "training_arguments.yaml": yaml.safe_dump(settings, sort_keys=False),
        "training_arguments.json": _json(settings),
        "accelerate.yaml": yaml.safe_dump(arguments.accelerate(spec), sort_keys=False),
    }
    deepspeed = arguments.deepspeed(spec)
    if deepspeed is not None:
        texts[arguments.DEEPSPEED_FILE] = _json(deepspeed)
    return texts


def _json(values: Mapping[str, object]) -> str:
    return json.dumps(values, indent=2) + "\n"


def export_candidate(
    dataset: Dataset,
    candidate: Offer,
    folder: Path,
    *,
    epochs: float | None = None,
    own_file: Path | None = None,
    report_to: str | Sequence[str] = (),
    force: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> tuple[Path, ...]:
    """Write the files to train a candidate with. Returns their paths. ``own_file`` is a file of
    another trainer, of which a changed copy is written, too; ``say`` gets what it changes.

    ``epochs`` or steps, the seed and what is logged are those of the user's training arguments,
    otherwise one epoch, and the seed of the measurement. ``report_to`` comes from the caller and
    never from the run, which may be a stranger's. Raises NotExportableError if its losses do not
    match the reference's or it is unknown how its row ran; FileExistsError if ``folder`` has files.
    """
    results = dataset.environment_of(candidate.measured.environment_id)
    if results is None:
        raise NotExportableError("the candidate is not of this run")
    _refuse_wrong_losses(dataset, candidate.configuration)
    spec, warnings = _source(dataset, results, candidate)
    own = dataset.run.config.get("left_aside", {})
    own = own if isinstance(own, Mapping) else {}
    label = dataset.label(candidate.configuration.choices)
    copies, about = _changed_copy(own_file, spec)
    written = export(
        _with_own_seed(spec, own),
        folder,
        copies=copies,
        label=f"{label} (trial {candidate.measured.row['trial_id']})",
        epochs=epochs or float(_own_number(own, "num_train_epochs") or 1),
        logging=_own_logging(own, epochs, report_to),
        peak_bytes=_peak_bytes(candidate),
        measured=_measured(candidate.measured, results, packages(spec)),
        notes=[*warnings, *about, *_about_arguments(own, report_to)],
        versions=results.environment,
        force=force,
    )
    for note in about:
        say(note)
    return written


def _source(
    dataset: Dataset, results: EnvironmentResults, candidate: Offer
) -> tuple[TrialSpec, list[str]]:
    row = candidate.measured.row
    spec, is_checked = source_trial(dataset, row)
    warnings = notes(results, candidate)
    if not is_checked:
        warnings.append(
            f"rebuilt from the table: this version would run trial {row['trial_id']} as "
            f"{spec.trial_id}. Techniques or settings have changed since; compare the files "
            "with what you know of the run"
        )
    # An inferred candidate has another accumulation or micro-batch than its measured row.
    if candidate.is_inferred:
        spec = arguments.with_batch(spec, candidate.micro_batch, candidate.accumulation)
    return spec, warnings


def _changed_copy(path: Path | None, spec: TrialSpec) -> tuple[dict[str, str], list[str]]:
    """A copy of the user's file with a trial's choices, by its name; and what to know of it."""
    if path is None:
        return {}, []
    changed = changed_file(path, spec.choices)
    name, copy = path.name, f"changed_{path.name}"
    about = [f"{copy} is your {name} with {'; '.join(changed.changes) or 'no change'}"]
    if changed.not_written:
        choices = "; ".join(changed.not_written)
        about.append(f"{copy} does not have {choices}, as measured, but its own choices there")
    if _is_other_model(changed.model, spec.model):
        about.append(
            f"{name} trains another model than the run, so the figures are not those of {name}"
        )
    return {copy: changed.text}, about


def _is_other_model(own: Mapping[str, Any], measured: ModelSpec) -> bool:
    """Whether two models differ in what both say of themselves."""
    known = {**to_json(measured), **measured.config}
    said = {**own, **own.get("config", {})}
    shared = (said.keys() & known.keys()) - {"config"}
    return any(None not in (said[key], known[key]) and said[key] != known[key] for key in shared)


def _with_own_seed(spec: TrialSpec, own: Mapping[str, Any]) -> TrialSpec:
    seed = own.get("seed")
    if type(seed) is not int or not 0 <= seed <= MAX_SEED:
        return spec
    return dataclasses.replace(spec, measure=dataclasses.replace(spec.measure, seed=seed))


def _own_number(own: Mapping[str, Any], name: str) -> float | None:
    """An argument of the user's that is a number above zero."""
    number = own.get(name)
    return number if isinstance(number, int | float) and 0 < number < math.inf else None


def _own_logging(
    own: Mapping[str, Any], epochs: float | None, report_to: str | Sequence[str]
) -> dict[str, Any]:
    """The user's arguments about logs that have the type of their field; without ``epochs``, their
    number of steps, too, which goes before epochs, and over which a schedule runs."""
    kinds = {"logging_steps": int | float, "logging_first_step": bool}
    given = {name: own[name] for name in LOGGING if isinstance(own.get(name), kinds.get(name, str))}
    if _own_number(own, "logging_steps") is None:
        given.pop("logging_steps", None)
    if not epochs and (steps := _own_number(own, "max_steps")) is not None:
        given["max_steps"] = int(steps)
    return {**given, "report_to": report_to} if report_to else given


def _about_arguments(own: Mapping[str, Any], report_to: str | Sequence[str]) -> Iterator[str]:
    """What is reported to, and which of the user's arguments are not carried."""
    # A run folder may come from a stranger, so only names of arguments are shown.
    left = own.keys() & (argument_names() or frozenset()) - {"output_dir", *EXPORTED}
    if report_to:
        left -= {"report_to"}
        names = [report_to] if isinstance(report_to, str) else report_to
        yield f"reports to {', '.join(names)}: install what it needs; --report_to none is without"
    if left:
        yield (
            f"of your own arguments, these are not carried: {', '.join(sorted(left))}. train.py "
            "takes them on its command line"
        )


def _refuse_wrong_losses(dataset: Dataset, configuration: Configuration) -> None:
    wrong = [flag for flag in configuration.flags if flag.kind in LOSS | MISMATCH]
    if not wrong:
        return
    sentences = map(flags.with_heading, wrong)
    raise NotExportableError(
        f"not exported: {dataset.label(configuration.choices)} does not train as its reference "
        f"does ({'; '.join(sentences)}). Choose a configuration that does"
    )


def _peak_bytes(candidate: Offer) -> int | None:
    """The row's peak memory if the exported training should reach the same, else None."""
    row = candidate.measured.row
    # A training with another batch has another peak, and a run on a CPU has none.
    if candidate.is_inferred or not row["gpu_model"]:
        return None
    return row.get("peak_allocated_bytes")


def _measured(
    configuration: Configuration, results: EnvironmentResults, libraries: Sequence[str]
) -> dict[str, str]:
    """``libraries`` are named with their versions."""
    known = results.environment
    return {
        "memory": f"{memory(configuration.memory_bytes)} ({results.memory_column})",
        "speed": f"{number(configuration.samples_per_second)} samples/s",
        "on": results.hardware,
        "with": ", ".join(f"{name} {known[name]}" for name in libraries if name in known),
    }
