"""``load_config`` reads a YAML file, checks all of it, and returns a frozen ``SweepConfig``."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.permissions import model_refusals
from jobs.spec import (
    DatasetFile,
    DataSpec,
    MeasureSpec,
    ModelSpec,
    RowLengthDistribution,
    SyntheticData,
    UpkeepSpec,
    UserCode,
)
from orchestrator.labels import option
from orchestrator.planning.choices.axes import Grids, read_grids
from orchestrator.planning.choices.base_arguments import (
    BaseArguments,
    baseline,
    own_defaults,
    read_base_arguments,
)
from orchestrator.planning.document import Document, Source, folder_of, read_document, read_text
from orchestrator.planning.keys.config_errors import typed
from orchestrator.planning.keys.config_model import ConfigFile, FollowUpPolicy, FollowUpSection
from orchestrator.planning.plan import configurations
from orchestrator.planning.prechecks.model_configuration import (
    ModelConfiguration,
    model_key_problems,
    model_types,
)
from orchestrator.planning.prechecks.user_code import read_user_code
from orchestrator.planning.problems import ConfigError, KeyProblems, closest, did_you_mean
from orchestrator.planning.settings import SweepConfig

__all__ = ["ConfigError", "SweepConfig", "load_config"]

MAX_TRIALS = 100_000
"""The most trials in a plan. It is written in seconds; a larger one takes weeks to run."""

_DTYPES = frozenset({"dtype", "torch_dtype"})
_NO_MODEL = frozenset({"_name_or_path", "architectures", "model_type", "transformers_version"})
"""Keys of a config.json that a user may paste, and that change nothing in the model, too."""


def load_config(
    source: str | Source,
    *,
    trust_remote_code: bool = False,
    allow_own_code: bool = False,
    choices: Sequence[str] = (),
) -> SweepConfig:
    """Load a configuration, mostly from a YAML file. ``choices``, such as "precision=bf16", stand
    in place of the file's. Raises ConfigError with all its problems. A file that asks for
    ``model.trust_remote_code`` or ``own_code`` is refused unless the caller allows it, too.
    Otherwise a file from a stranger could run code that the stranger chose."""
    source = Path(source) if isinstance(source, str) else source
    document = with_choices(read_document(source), choices)
    file = typed(document.value)
    # Axes are read apart from the model, which cannot express what they may hold.
    grids, used, problems = read_grids(document)
    base = read_base_arguments(document, used)
    problems += base.problems
    if not isinstance(file, ConfigFile):
        problems += itertools.starmap(document.problem, file)
        raise ConfigError(problems)
    user_code, found = read_user_code(file.own_code, folder_of(source), is_allowed=allow_own_code)
    found += [*_model_problems(file, trust_remote_code), *_size_problems(file, grids)]
    problems += itertools.starmap(document.problem, found)
    if problems:
        raise ConfigError(problems)
    config = _checked(source, file, grids, base, user_code)
    if config.exclude and next(configurations(config), None) is None:
        raise ConfigError([document.problem(("exclude",), "leaves no trial")])
    return config


def _size_problems(file: ConfigFile, grids: Grids) -> KeyProblems:
    # Counted before exclusions are applied, because applying them to a huge grid takes too long.
    trials = file.measure.repeats * grids.size
    if trials > MAX_TRIALS:
        too_many = f"more than {MAX_TRIALS:,} are a mistake, or need several sweeps"
        yield ("axes",), f"plans {trials:,} trials; {too_many}"


def _model_problems(file: ConfigFile, trust_remote_code: bool) -> KeyProblems:
    if file.model.architecture is not None:
        yield from _architecture_problems(file, file.model.architecture)
    for at, message in model_refusals(_of_the_model(file.model.config)):
        yield ("model", "config", *at), message
    # The command line must ask for it, too, because the file may come from a stranger.
    if file.model.trust_remote_code and not trust_remote_code:
        message = (
            "runs code that the checkpoint brings; to allow it, give "
            f"{option('trust-remote-code')} on the command line, too"
        )
        yield ("model", "trust_remote_code"), message


def _architecture_problems(file: ConfigFile, name: str) -> KeyProblems:
    model_type = file.model.config.get("model_type", name)
    if model_type != name:
        message = f'is "{model_type}", and model.architecture is "{name}"; remove one of them'
        yield ("model", "config", "model_type"), message
    known = model_types()
    if known and name not in known:
        meant = closest(name, known)
        hint = did_you_mean(meant) if meant else "see transformers' list of model types"
        message = f'transformers has no architecture "{name}"; {hint}'
        yield ("model", "architecture"), message
        return
    keys = _of_the_model(file.model.config)
    model = ModelSpec(task=file.model.task, architecture=name, config=keys)
    for at, message in model_key_problems(ModelConfiguration.of(model), keys):
        yield ("model", "config", *at), message


def _checked(
    source: Source, file: ConfigFile, grids: Grids, base: BaseArguments, user_code: UserCode | None
) -> SweepConfig:
    stem = source.stem.strip(".") if isinstance(source, Path) else ""
    name = file.name or stem or "sweep"
    folder = folder_of(source)
    data = _data(file, folder)
    return SweepConfig(
        name=name,
        source=source,
        model=_model(file, folder),
        data=data,
        training_arguments=base.training_arguments,
        left_aside=base.left_aside,
        deepspeed=base.deepspeed,
        axes=grids.axes,
        subsets=grids.subsets,
        exclude=grids.exclude,
        trials=grids.trials,
        measure=_measure(file),
        repeats=file.measure.repeats,
        follow_up=_follow_up(file.follow_up),
        cpu_fallback=file.cpu_fallback,
        resources=file.resources,
        budgets=tuple(file.budgets),
        search=file.search,
        loggers=file.loggers.model_dump(exclude_unset=True),
        output=file.output or Path("runs", name),
        own_code=user_code,
        notes=(*_notes_on_the_model(file), *base.notes, *_notes_on_defaults(grids, base)),
        baseline=baseline(grids, base, data),
    )


def _model(file: ConfigFile, folder: Path) -> ModelSpec:
    fields = file.model.model_dump()
    fields["config"] = _of_the_model(fields["config"])
    return ModelSpec(**{**fields, "name_or_path": _located(file.model.name_or_path, folder)})


def _of_the_model(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that describe the model; a whole config.json has others, too."""
    return {key: value for key, value in config.items() if key not in _NO_MODEL | _DTYPES}


def _notes_on_the_model(file: ConfigFile) -> Iterator[str]:
    left_aside = sorted(_NO_MODEL & file.model.config.keys())
    if left_aside:
        yield f"model.config: left aside, because they describe no model: {', '.join(left_aside)}"
    for key in sorted(_DTYPES & file.model.config.keys()):
        value = file.model.config[key]
        yield f"model.config.{key}: {value} has no effect: the axis precision sets the data types"


def _notes_on_defaults(grids: Grids, base: BaseArguments) -> Iterator[str]:
    decided = {*base.choices, *grids.axes, *grids.baseline}
    own = [f"{axis}: {name}" for axis, name in own_defaults(grids).items() if axis not in decided]
    if own:
        yield (
            f"the baseline has TRL's own {', '.join(own)}, because the file sets no other; "
            "gradient_checkpointing and bf16 in training_arguments decide them"
        )


def _data(file: ConfigFile, folder: Path) -> DataSpec:
    synthetic, rows = file.data.synthetic, file.data.file
    if synthetic is not None:
        lengths = synthetic.lengths and RowLengthDistribution(**dict(synthetic.lengths))
        return DataSpec(synthetic=SyntheticData(**{**dict(synthetic), "lengths": lengths}))
    assert rows is not None
    tokenizer = rows.tokenizer
    if tokenizer is None and file.model.task == "image-text-to-text":
        # The checkpoint's own processor reads images with texts.
        tokenizer = file.model.name_or_path
    located = {
        "path": str(folder / rows.path),
        "format": rows.known_format,
        "tokenizer": _located(tokenizer, folder),
    }
    return DataSpec(file=DatasetFile(**{**dict(rows), **located}))


def _located(name: str | None, folder: Path) -> str | None:
    """The absolute path of a folder beside the config; a name on the Hub as it is."""
    # A name with one slash can be a folder or a repository; the folder wins if it exists.
    if name is None or not (name.startswith((".", "/")) or (folder / name).is_dir()):
        return name
    return os.path.abspath(folder / name)


def _follow_up(section: FollowUpSection) -> FollowUpPolicy:
    fields = dict(section)
    if section.profile != "frontier":
        fields["profiles"] = 0  # with "all", every trial of the search profiles itself
    return FollowUpPolicy(**fields)


def _measure(file: ConfigFile) -> MeasureSpec:
    fields = file.measure.model_dump(exclude={"repeats", "timeout", "evaluate_and_save"})
    upkeep = file.measure.evaluate_and_save
    if file.measure.steps is None:
        fields["relative_error"] = 0.0  # a whole epoch is never cut short
    return MeasureSpec(
        **fields,
        timeout_seconds=file.measure.timeout,
        evaluate_and_save=upkeep is not None,
        upkeep=UpkeepSpec(**dict(upkeep or ())),
        profile=file.follow_up.profile == "all",
    )


def with_choices(document: Document, texts: Sequence[str]) -> Document:
    """The document as if it had choices such as "precision=bf16": wherever it names the axis, and
    in its baseline; a list of values is in its axes. Raises ConfigError for a wrong choice."""
    if not texts:
        return document
    pairs = (text.partition("=") for text in texts)
    given = read_text(
        "--set", "\n".join(["axes:", *(f"  {at}: {value}" for at, _, value in pairs)])
    )
    _, _, problems = read_grids(given)
    if problems:
        raise ConfigError(problems)
    chosen = given.value["axes"]
    lists = {axis: values for axis, values in chosen.items() if isinstance(values, list)}
    singles = {axis: value for axis, value in chosen.items() if axis not in lists}
    content = {"axes": {}, "baseline": {}, **document.value}
    for key in content.keys() & {"axes", "baseline", "trials"}:
        content[key] = _named(content[key], chosen)
    if isinstance(subsets := content.get("subsets"), dict):
        # A subset may have the name of an axis.
        content["subsets"] = {name: _named(own, chosen) for name, own in subsets.items()}
    for key, added in (("axes", lists), ("baseline", singles)):
        if isinstance(content[key], dict):
            content[key] |= added
    return replace(document, value=content)


def _named(section: Any, chosen: Mapping[str, Any]) -> Any:
    """A section with the chosen values of all axes that it names."""
    if isinstance(section, list):
        return [_named(own, chosen) for own in section]
    if not isinstance(section, dict):
        return section
    return {key: chosen.get(key, _named(own, chosen)) for key, own in section.items()}
