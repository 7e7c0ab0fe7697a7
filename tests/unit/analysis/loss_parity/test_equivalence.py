"""Measured equivalence: arguments that keep the losses are ranked with the baseline."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from jobs.record import TrialRecord
from jobs.spec import PLAIN, TrainingRecipe
from orchestrator.analysis.dataset import (
    Dataset,
    EnvironmentResults,
    dataset_of_records,
    load_dataset,
)
from orchestrator.analysis.recommendation import Constraints, recommend
from orchestrator.reporting.configurations import row_of
from orchestrator.reporting.verbs.recommendation import render
from orchestrator.storage.run_metadata import RunMetadata
from tests.support.recorded_runs import RECORDED
from tests.support.records import make_record, with_losses

RUNS = sorted(path.parent.name for path in RECORDED.glob("*/trials.parquet"))
LIGER = {"use_liger_kernel": True}


def losses_of(steps: int = 12, seed: int = 0) -> list[float]:
    """Losses that fall and scatter."""
    rng = random.Random(seed)
    return [2.0 * 0.95**step * (1 + 0.1 * rng.gauss(0, 1)) for step in range(steps)]


def trial(
    losses: Sequence[float], recipe: Mapping[str, Any] | None = None, **fields: Any
) -> TrialRecord:
    """A trial whose choices are its recipe's and ``fields``."""
    recipe = recipe or {}
    record = make_record(recipe=recipe, **{"precision": "bf16", **fields, **recipe})
    return with_losses(record, losses)


def dataset_of(*records: TrialRecord) -> Dataset:
    return dataset_of_records(records, RunMetadata())


def results_of(*records: TrialRecord) -> EnvironmentResults:
    return dataset_of(*records).main


def changed(losses: Sequence[float], share: float) -> list[float]:
    return [loss * (1 + share) for loss in losses]


def test_liger_with_the_references_losses_is_picked():
    plain = trial(losses_of(), speed=100.0, use_liger_kernel=False)
    liger = trial(changed(losses_of(), 0.001), LIGER, speed=130.0)
    dataset = dataset_of(plain, liger)
    results = dataset.main
    answer = recommend(results.rankings, Constraints())
    best = answer.best.configuration
    assert best.samples_per_second == 130.0
    assert best.training_recipe == PLAIN
    assert (best.same_losses.pairs, best.same_losses.steps) == (1, 12)
    assert "same losses as the reference, measured: use_liger_kernel=True" in render(
        dataset, answer
    )
    assert row_of(dataset, results, best)["losses"] == "same as the reference, measured"
    assert best in results.front
    assert [pick.best for pick in results.budget_picks if pick.best is not None][-1] is best


def test_a_single_mismatch_outweighs_every_match():
    records = []
    for size, share in ((2, 0.0), (4, 0.0), (8, 0.05)):
        losses = losses_of(seed=size)
        records.append(trial(losses, micro_batch=size, use_liger_kernel=False))
        records.append(trial(changed(losses, share), LIGER, micro_batch=size, speed=130.0))
    assert not results_of(*records).same_losses
    assert results_of(*records[:4]).same_losses[TrainingRecipe.of(LIGER)].pairs == 2


@pytest.mark.parametrize(
    ("recipe", "default", "losses", "is_equal"),
    [
        (LIGER, False, losses_of(4), True),
        # Three steps are too few: two losses come after an update.
        (LIGER, False, losses_of(3), False),
        (LIGER, False, changed(losses_of(), 0.05), False),
        (LIGER, False, losses_of(seed=1), False),
        (LIGER, False, [], False),
        # A short run proves nothing of what acts over a whole training.
        ({"weight_decay": 0.1}, 0.0, losses_of(200), False),
        ({"learning_rate": 0.001}, 0.0, losses_of(200), False),
        ({"seed": 7}, 0, losses_of(200), False),
        ({"max_grad_norm": 2.0}, 0.0, losses_of(200), False),
        # A technique that declares to change the training needs many steps.
        ({"optimizer": "paged_adamw_32bit"}, "adamw_torch_fused", losses_of(99), False),
        ({"optimizer": "paged_adamw_32bit"}, "adamw_torch_fused", losses_of(100), True),
    ],
)
def test_equal_losses_show_equivalence_of_what_acts_in_every_step(
    recipe, default, losses, is_equal
):
    steps = max(len(losses), 12)
    plain = trial(losses_of(200)[:steps], speed=100.0, **dict.fromkeys(recipe, default))
    results = results_of(plain, trial(losses, recipe, speed=130.0))
    assert bool(results.same_losses) is is_equal
    answer = recommend(results.rankings, Constraints())
    assert answer.best.configuration.samples_per_second == (130.0 if is_equal else 100.0)


@pytest.mark.parametrize("run", RUNS)
def test_recorded_optimizers_of_other_mathematics_stay_apart(run):
    """SGD and Adafactor pass the bound of chance beside AdamW, but never that of rounding."""
    for results in load_dataset(RECORDED / run).environments:
        for recipe in results.same_losses:
            optimizer = str(recipe.by_axis.get("optimizer", ""))
            assert "8bit" in optimizer
            assert "adam" in optimizer


LORA = {"adapter": "lora_r8_all_linear", "precision": "bf16_weights"}
WITH_LIGER = {**LORA, **LIGER}


def test_liger_with_the_losses_of_the_adapters_own_recipe_is_recommended():
    """The reference has the adapter, too: Liger alone sets the two recipes apart."""
    records = [
        trial(losses_of(6), LORA, speed=2.52, micro_batch=2, use_liger_kernel="default"),
        trial(changed(losses_of(6), 0.002), WITH_LIGER, speed=3.01, micro_batch=2),
        # In the memory of one GPU, only Liger reaches this batch: it has no partner.
        trial(losses_of(6), WITH_LIGER, speed=3.11, micro_batch=4),
    ]
    results = results_of(*records)
    assert results.recipe == TrainingRecipe.of(LORA)
    assert results.same_losses[TrainingRecipe.of(WITH_LIGER)].pairs == 1
    answer = recommend(results.rankings, Constraints())
    assert answer.best.configuration.samples_per_second == 3.11
