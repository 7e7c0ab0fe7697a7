"""The result of ``tune`` as lines of text: what changes, the pick, the gain, and how to train."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from jobs.record import Outcome
from orchestrator.analysis.dataset import Dataset
from orchestrator.reporting.content import Row
from orchestrator.reporting.sections import failed_trials
from orchestrator.reporting.sections.search_outcome import certainty, counts
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.reporting.verbs.tune_advance import fits
from orchestrator.reporting.verbs.tune_result import TuneResult, TuneResults
from orchestrator.units import change, count, error, memory, number

_FAULTS = (Outcome.CRASHED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.HOST_OUT_OF_MEMORY)
"""Outcomes that a user may want to mend."""


def describe(results: TuneResults, how_to_train: Mapping[str, str]) -> str:
    """Lines of text: for each budget its pick, the runner-up, the gain and the certainty."""
    return visible("\n".join(_lines(results, how_to_train)))


def failures(dataset: Dataset) -> str:
    """Lines of text: the trials that did not end because of a fault, and why."""
    content = failed_trials.make(dataset)
    rows = content.tables[0].rows if content else ()
    return visible("\n".join(_failure(row) for row in rows if row["outcome"] in _FAULTS))


def _failure(row: Row) -> str:
    trial = row["trials"][0]
    log = f", log in {trial['log_file']}" if "log_file" in trial else ""
    ended = f"{count(row['count'], 'trial')} ended as {row['outcome']}"
    return f"{ended}: {row['reason']} (such as {trial['configuration']}{log})"


def _lines(results: TuneResults, how_to_train: Mapping[str, str]) -> Iterator[str]:
    if not results.results:
        yield f"{results.name}: nothing was measured, so there is no answer"
    for _, group in itertools.groupby(results.results, attrgetter("environment_id")):
        yield from _of_environment(results.name, list(group), how_to_train)


def _of_environment(
    name: str, results: Sequence[TuneResult], how_to_train: Mapping[str, str]
) -> Iterator[str]:
    first = results[0]
    yield f"\n{name} on {first.hardware}"
    if first.memory_meaning:
        yield f"memory: {first.memory_meaning}"
    if first.user_configuration is None:
        why = first.user_problem and f" ({first.user_problem})"
        yield f"your own arguments did not end ok, so gains are unknown{why}"
    else:
        yield f"your own arguments: {first.user_configuration.text[0]}"
    described: dict[tuple[bool, str], str] = {}
    """Whether any training may win, and the trial of a best -> the first result with it."""
    for result in results:
        yield ""
        yield _where(result)
        best = result.all_recipes, "" if result.best is None else result.best.trial_id
        yield from _result_lines(result, described.get(best, ""))
        described.setdefault(best, _where(result))
        if result.folder_name in how_to_train:
            yield f"  {how_to_train[result.folder_name]}"
    if any(result.search and not result.search.is_settled for result in results):
        yield ""
        yield (
            "the search ended before this was certain; --resume with more time (--gpu-minutes,"
            " --time-budget) continues it"
        )
    if len(results) > 1:
        # Last, where a terminal shows it.
        yield "\nin short"
        yield from (f"  {_where(result)}: {_figures(result)}" for result in results)


def _where(result: TuneResult) -> str:
    budget = result.budget_bytes
    where = "in the machine's memory" if budget is None else f"within {memory(budget)}"
    return f"{where}, whatever it trains" if result.all_recipes else where


def _figures(result: TuneResult) -> str:
    best = result.best
    if best is None:
        return "nothing measured fits"
    gain = "".join(f", {line.strip()}" for line in _gain_lines(result))
    return f"{number(best.samples_per_second)} samples/s, {memory(best.memory_bytes)}{gain}"


def _result_lines(result: TuneResult, same_as: str) -> Iterator[str]:
    """``same_as``: an earlier result with the same best."""
    if same_as and result.best is not None:
        yield f"  the same as {same_as}"
    else:
        yield from _best_lines(result)
    yield from _gain_lines(result)
    # With two steps, the first line of the result says it all.
    if not same_as and len(result.steps) > 2:
        yield "  the way there, as measured:"
        yield from (f"    {step.text[0]}" for step in result.steps)
    if result.runner_up is not None:
        yield f"  runner-up: {result.runner_up.text[0]}"
    if result.search is not None:
        yield f"  {counts(result.search)}"
        yield f"  {certainty(result.search)}"


def _best_lines(result: TuneResult) -> Iterator[str]:
    if result.changes:
        yield f"  your arguments + {result.changes}"
    yield from (f"    trains differently: {words}" for words in result.differences)
    if result.best is not None:
        if result.all_recipes and not result.differences:
            yield "  nothing that was tried and trains differently is faster"
        yield from result.best.text
    else:
        batch = result.effective_batch
        batches = "" if batch is None else f" with an effective batch of {batch}"
        yield f"  no measured configuration fits{batches}"
    if result.least_memory is not None:
        figures, *shared = result.least_memory.text
        yield f"  least memory measured: {figures}"
        yield from shared


def _gain_lines(result: TuneResult) -> Iterator[str]:
    user, budget = result.user_configuration, result.budget_bytes
    if result.gain is not None:
        size = f"{change(result.gain)} {error(result.gain_error95)}".rstrip()
        gain = f"{size} in speed over your own arguments"
        if not result.changes:
            gain = "these are your own arguments: no gain was found"
        elif result.is_within_chance:
            gain = f"no gain over your own arguments, so yours may do: {size} is within chance"
        rounds = count(result.gain_rounds, "interleaved round")
        yield f"    {gain} ({rounds} of both on one GPU)" if result.gain_rounds else f"    {gain}"
    elif result.best is not None and user is not None and not fits(user.memory_bytes, budget):
        yield f"    your own arguments do not fit: they need {memory(user.memory_bytes)}"
