"""The result of ``tune``: for each budget the pick, what it gains, and how sure the search is.

It is stored when the run is published; without the file it is computed when it is read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from pydantic import TypeAdapter

from jobs.flags import SHARED
from jobs.record import Outcome
from jobs.techniques import BATCH_AXES
from orchestrator.analysis.baseline import is_baseline
from orchestrator.analysis.configuration import choices_of
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.recommendation import Constraints, Offer, recommend
from orchestrator.analysis.recommendation.offers import as_measured
from orchestrator.analysis.technique_effects import labelled_way
from orchestrator.reporting import flags
from orchestrator.reporting.configurations import memory_meaning
from orchestrator.reporting.verbs.recommendation import RecommendationText
from orchestrator.reporting.verbs.recommendation_json import to_json as recommendation_json
from orchestrator.reporting.verbs.tune_advance import advance
from orchestrator.storage.layout import RESULT, read_regular
from orchestrator.storage.run_metadata import UnreadableRunError
from orchestrator.storage.search_summary import BudgetResult
from orchestrator.units import memory, number


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultConfiguration:
    """A configuration that a result names."""

    label: str
    trial_id: str
    """The trial that measured it, or that it is inferred from."""
    micro_batch: int
    accumulation: int
    samples_per_second: float
    memory_bytes: int
    text: tuple[str, ...]
    """Its figures in words, then what to know before training with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneResult:
    """What a run found for one memory budget on one GPU model."""

    environment_id: str
    hardware: str
    budget_bytes: int | None
    """None: no budget was named, and the machine's memory is unknown."""
    effective_batch: int | None
    """The effective batch asked for."""
    all_recipes: bool
    """Whether every training recipe could be the best, or only that of the user's arguments."""
    best: ResultConfiguration | None
    """What to train with; None if nothing measured fits."""
    runner_up: ResultConfiguration | None
    """The best with other techniques."""
    user_configuration: ResultConfiguration | None
    """The user's own arguments as measured; None: they did not end ok."""
    user_problem: str = ""
    """Why the user's own arguments did not end ok; empty if they did, or did not run."""
    changes: str = ""
    """What the best chooses differently from the user's arguments, in a few words; empty if nothing
    or if theirs did not end ok."""
    differences: tuple[str, ...] = ()
    """What the best trains differently from the user's arguments, in words."""
    steps: tuple[ResultConfiguration, ...] = ()
    """The way from the user's arguments to the best over what was measured in between. The label of
    each step says what it adds to the one before."""
    least_memory: ResultConfiguration | None
    """The measured configuration with the least memory, if nothing fits."""
    gain: float | None = None
    """The speed of the best divided by that of the user's own arguments; None if one of them did
    not end ok, or if the user's arguments do not fit the budget."""
    gain_error95: float | None = None
    """Half the relative 95 % interval of the gain; None if it is not known."""
    gain_rounds: int = 0
    """Rounds of both, interleaved on one GPU, that the gain is of; 0: it is of two trials."""
    is_within_chance: bool = False
    """Whether two trials of one configuration may differ in speed as much as the gain says."""
    search: BudgetResult | None
    """What the search considered, ruled out and measured, and what could still be gained.

    None in a run that was killed before its search ended.
    """
    folder_name: str
    """Where in the run folder its files to train with are."""
    memory_meaning: str = ""
    """What the memory figures measure; empty in a file of an earlier version."""
    recommendation: dict[str, Any]
    """The best and its alternatives, as ``recommend --json`` prints them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneResults:
    """The content of ``result.json``."""

    name: str
    """The run's name."""
    results: tuple[TuneResult, ...]
    """One for each budget of each environment's search; empty if nothing was measured."""


_FILE = TypeAdapter(TuneResults)


def read(dataset: Dataset) -> TuneResults:
    """The stored result of a run, else the same computed from its rows. Raises UnreadableRunError
    if the file is damaged."""
    path = dataset.folder and dataset.folder / RESULT
    if path is None or not path.exists():
        return computed(dataset)
    try:
        return _FILE.validate_json(read_regular(path))
    except (OSError, ValueError):
        reason = "damaged or not of this program; move the file away to read the run without it"
        raise UnreadableRunError(f"{path}: {reason}") from None


def stored(dataset: Dataset) -> bytes | None:
    """The file of the result; None for a run whose search answers for no budgets."""
    search = dataset.run.search_summary
    if search is None or not search.answers_budgets:
        return None
    return _FILE.dump_json(computed(dataset), indent=2)


def computed(dataset: Dataset) -> TuneResults:
    """The result of a run, from its rows."""
    results = [own for each in dataset.environments for own in _results(dataset, each)]
    return TuneResults(name=dataset.name, results=tuple(results))


def _results(dataset: Dataset, environment: EnvironmentResults) -> Iterator[TuneResult]:
    search = dataset.run.search_summary
    search = search and search.of_gpu_model(environment.hardware)
    if search is None or not search.results:
        # A run that was killed has no summary of its search.
        for budget in dataset.run.budgets or (None,):
            yield _result(dataset, environment, Constraints(memory_bytes=budget), None)
        return
    for found in search.results:
        constraints = Constraints(
            memory_bytes=found.budget_bytes,
            effective_batch=search.effective_batch,
            all_recipes=found.recipe == "any",
        )
        yield _result(dataset, environment, constraints, found)


def _result(
    dataset: Dataset,
    environment: EnvironmentResults,
    constraints: Constraints,
    search: BudgetResult | None,
) -> TuneResult:
    recommendation = recommend(environment.rankings, constraints)
    best, asked = recommendation.best, environment.asked_baseline
    user = None if asked is None else as_measured(asked)
    measured = [] if best else map(as_measured, environment.configurations)
    least = min(measured, key=attrgetter("memory_bytes"), default=None)
    lines = RecommendationText(dataset, environment, recommendation).best()
    return TuneResult(
        environment_id=environment.environment_id,
        hardware=environment.hardware,
        budget_bytes=constraints.memory_bytes,
        effective_batch=constraints.effective_batch,
        all_recipes=constraints.all_recipes,
        best=_plain(dataset, best, *lines),
        runner_up=_plain(dataset, next(iter(recommendation.runners_up), None)),
        user_configuration=_plain(dataset, user),
        user_problem="" if user else _user_problem(dataset),
        least_memory=_plain(dataset, least),
        search=search,
        folder_name=_folder_name(dataset, environment, constraints),
        memory_meaning=memory_meaning(environment),
        recommendation=recommendation_json(dataset, environment, recommendation),
        **_advance(environment, user, best, constraints.memory_bytes),
    )


def _user_problem(dataset: Dataset) -> str:
    """Why the user's own arguments did not end ok; empty if they did not run."""
    asked = dataset.run.baseline
    for row in dataset.rows:
        if row["outcome"] != Outcome.OK and is_baseline(choices_of(row, dataset.axes), asked):
            return str(row["reason"] or "")
    return ""


def _advance(
    environment: EnvironmentResults, user: Offer | None, best: Offer | None, budget: int | None
) -> dict[str, Any]:
    """What the best changes and gains, and the way to it, if the user's arguments were measured."""
    if best is None or user is None:
        return {}
    way = labelled_way(environment.configurations, user.configuration, best.configuration)
    steps = tuple(_named(label, as_measured(own)) for label, own in way)
    return {**advance(environment, user, best, budget), "steps": steps}


def _folder_name(
    dataset: Dataset, environment: EnvironmentResults, constraints: Constraints
) -> str:
    """``train-24GiB``: different for each result of a run."""
    limit = constraints.memory_bytes
    parts = [
        "train",
        "all-memory" if limit is None else memory(limit).replace(" ", ""),
        "any-recipe" if constraints.all_recipes else "",
        environment.hardware.replace(" ", "-") if len(dataset.environments) > 1 else "",
    ]
    return "-".join(filter(None, parts))


def _plain(dataset: Dataset, candidate: Offer | None, *text: str) -> ResultConfiguration | None:
    if candidate is None:
        return None
    return _named(dataset.pick_label(candidate.configuration), candidate, *text)


def _named(label: str, candidate: Offer, *text: str) -> ResultConfiguration:
    configuration = candidate.configuration
    speed = f"{number(configuration.samples_per_second)} samples/s"
    # Another process's memory may be part of the figure. Flags of the speed do not matter.
    flagged = [flag for flag in configuration.flags if flag.kind in SHARED]
    shared = [f"    {flags.with_heading(flag)}" for flag in flagged]
    return ResultConfiguration(
        label=label,
        trial_id=candidate.measured.trial_ids[0],
        micro_batch=candidate.micro_batch,
        accumulation=candidate.accumulation,
        samples_per_second=configuration.samples_per_second,
        memory_bytes=configuration.memory_bytes,
        text=text or (f"{label}: {speed}, {memory(configuration.memory_bytes)}", *shared),
    )


def candidate_of(dataset: Dataset, result: TuneResult) -> Offer | None:
    """The best of a result as a candidate, for export; None if it has none."""
    environment = dataset.environment_of(result.environment_id)
    if result.best is None or environment is None:
        return None
    best = attrgetter(*BATCH_AXES, "trial_id")(result.best)
    for own in environment.rankings.serving(result.effective_batch):
        if (own.micro_batch, own.accumulation, own.measured.trial_ids[0]) == best:
            return own
    return None


def to_json(results: TuneResults, exported: Mapping[str, str]) -> dict[str, Any]:
    """The results as JSON values, each with how to train with its files."""
    listed = [{**asdict(own), "files": exported.get(own.folder_name)} for own in results.results]
    return {"name": results.name, "results": listed}
