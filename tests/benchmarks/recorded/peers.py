"""What `tune` found beside what other trainers default to, on the same rows and card.

A file of tests/data/techniques/peers has both: a first attempt as its baseline, and the defaults of
other trainers as its trials. `sweep FILE` measures these, and `tune FILE` tunes the first attempt.
"""

from argparse import Namespace
from collections.abc import Iterator

from orchestrator.analysis.budget_picks import fastest
from orchestrator.analysis.dataset import Dataset
from orchestrator.reporting.verbs.tune_result import ResultConfiguration, read
from orchestrator.units import GIB
from tests.benchmarks.recorded.runs import dataset_of


def lines(options: Namespace) -> Iterator[str]:
    return report(dataset_of(options.peers), dataset_of(options.tuned))


def report(peers: Dataset, tuned: Dataset) -> Iterator[str]:
    """Markdown: each peer, then for each result of `tune` the fastest peer that fits its memory and
    may train as it does."""
    (environment,) = peers.environments
    results = read(tuned).results
    yield f"{environment.hardware}, {results[0].hardware}"
    yield "| | samples/s | GiB |"
    yield "| --- | ---: | ---: |"
    for own in environment.configurations:
        yield _row(peers.label(own.choices), own.samples_per_second, own.memory_bytes)
    for row in peers.rows:
        if row["reason"]:
            yield f"| {peers.row_label(row)}: {row['outcome']} | | |"
    yield _result_row("own arguments", results[0].user_configuration)
    tuned_ones = [own for found in tuned.environments for own in found.configurations]
    recipes = {trial: own.training_recipe for own in tuned_ones for trial in own.trial_ids}
    for result in results:
        user = result.user_configuration
        recipe = recipes[user.trial_id] if user is not None else None
        rivals = [
            own
            for own in environment.configurations
            if result.all_recipes or own.training_recipe == recipe
        ]
        budget = result.budget_bytes or 0
        kind = "any training" if result.all_recipes else "the same training"
        yield _result_row(f"tune, {budget / GIB:g} GiB, {kind}", result.best)
        rival = fastest(rivals, budget)
        if rival is None or result.best is None:
            yield f"| nothing fits: {'peers' if rival is None else 'tune'} | | |"
            continue
        ratio = result.best.samples_per_second / rival.samples_per_second
        yield f"| tune / the fastest peer that fits | {ratio:.2f} | |"


def _result_row(title: str, own: ResultConfiguration | None) -> str:
    if own is None:
        return f"| {title} | | |"
    return _row(f"{title}: {own.label}", own.samples_per_second, own.memory_bytes)


def _row(title: str, speed: float, memory_bytes: int) -> str:
    return f"| {title} | {speed:.2f} | {memory_bytes / GIB:.2f} |"
