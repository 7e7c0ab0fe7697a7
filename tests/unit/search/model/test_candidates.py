"""The plan as candidates: repeats together, on the right curves."""

from dataclasses import replace

from jobs.spec import DatasetFile, DataSpec, ModelSpec, TrialSpec
from orchestrator.search.model.candidates import candidates_of
from tests.benchmarks.grids import make_spec


def spec(micro_batch: int, accumulation: int = 1, optimizer: str = "adamw") -> TrialSpec:
    """A trial of one technique."""
    choices = {"micro_batch": micro_batch, "accumulation": accumulation, "optimizer": optimizer}
    return make_spec(choices, {} if optimizer == "adamw" else {"optimizer": optimizer})


def test_repeats_are_one_candidate():
    (candidate,) = candidates_of(replace(spec(1), repeat=repeat) for repeat in range(3))
    assert [trial.repeat for trial in candidate.trials] == [0, 1, 2]


def test_samples_of_a_pass_are_those_of_all_gpus():
    one, two = candidates_of([spec(4), replace(spec(8), world_size=2)])
    assert (one.samples, two.samples) == (4, 16)


def test_curve_follows_the_accumulation_that_most_candidates_share():
    one, other, *_ = candidates_of([spec(1, 4), spec(2, 4), spec(8, 1), spec(4, 1)])
    assert one.curve == other.curve
    assert one.curve.regime == ("accumulation", 4)


def test_curve_follows_the_effective_batch_that_most_candidates_share():
    candidates = candidates_of([spec(1, 64), spec(2, 32), spec(4, 16), spec(64, 1)])
    regimes = [candidate.curve.regime for candidate in candidates]
    # A single pass keeps no gradients, so it is never on a curve with several.
    assert regimes == [("effective_batch", 64)] * 3 + [("accumulation", 1)]


def test_reference_curve_has_the_optimizer_of_the_first_trial():
    adamw, sgd = candidates_of([spec(1), spec(1, optimizer="sgd")])
    assert adamw.curve == adamw.reference_curve
    assert sgd.curve != sgd.reference_curve
    assert sgd.reference_curve == adamw.curve


def test_optimizer_family_ignores_axes_that_leave_the_optimizer_alone():
    def family(**choices: str) -> object:
        all_choices = {"optimizer": "sgd", "micro_batch": 1, **choices}
        (candidate,) = candidates_of([make_spec(all_choices)])
        return candidate.optimizer_family(is_time=True)

    plain = family(precision="fp32", adapter="none")
    assert family(precision="bf16", adapter="none") == plain
    assert family(precision="fp32", adapter="lora_r8") != plain


def test_new_lengths_are_those_of_rows_that_may_differ():
    file = DataSpec(file=DatasetFile(path="rows.parquet", format="parquet"))
    of_texts = replace(spec(1), data=file)
    images = ModelSpec(task="image-classification", architecture="vit")
    of_images = replace(of_texts, model=images)
    whole_epoch = replace(of_texts, measure=replace(of_texts.measure, steps=None))
    short = replace(of_texts, measure=replace(of_texts.measure, steps=2))
    lengths = [candidates_of([own])[0].new_lengths for own in (of_texts, short)]
    # Another, a turn of four or of two, and the longest rows.
    assert lengths == [6, 4]
    equal = [spec(1), of_images, whole_epoch]
    assert [candidates_of([own])[0].new_lengths for own in equal] == [0, 0, 0]
