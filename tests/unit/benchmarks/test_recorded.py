"""Figures of ``tests.benchmarks.tables``, computed from small invented runs."""

import json
import random
import re
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import yaml
from pyarrow import parquet

from jobs.flags import FlagKind
from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.prediction.prediction import CARDS
from orchestrator.prediction.time.step_time import MASKED
from orchestrator.units import GIB
from tests.benchmarks.recorded import predictions, spread, timed_rows, times
from tests.benchmarks.recorded.shared_gpu import shared_rows
from tests.benchmarks.tables import SUBCOMMANDS, command_line
from tests.gpu import attention_masks
from tests.support.commands import ROOT

QUOTED = re.compile(r"`python -m (tests\.benchmarks\.\w+)(?: ([a-z_]+))?[^`]*`")
OLD_COMMIT = re.compile("[Aa]t commit [0-9a-f]{7}")


def quoted_commands() -> Iterator[tuple[str, str]]:
    """Module and first argument of every command in docs/, those of an old commit left out."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for paragraph in re.split(r"\n\s*\n|\n- |\n\| ", page.read_text()):
            text = re.sub(r"\s+", " ", paragraph)
            if not OLD_COMMIT.search(text):
                yield from QUOTED.findall(text)


def test_tables_quoted_in_docs_exist():
    commands = set(quoted_commands())
    assert len(commands) > 10
    for module, argument in commands:
        assert find_spec(module) is not None, module
        if module.endswith(".tables"):
            assert argument in SUBCOMMANDS


def test_shared_gpu_finds_memory_of_another_process():
    own = {
        "optimizer": "sgd",
        "gpu_context_bytes": GIB,
        "peak_reserved_bytes": 10 * GIB,
        "gpu_used_before_bytes": 0,
    }
    alone = {**own, "trial_id": "alone", "device_peak_bytes": 12 * GIB}
    shared = {**own, "trial_id": "shared", "device_peak_bytes": 20 * GIB}
    found = shared_rows([alone, shared])
    assert found.keys() == {"shared"}
    assert found["shared"].kind is FlagKind.SHARED_DURING


def test_predictions_report_errors_and_false_fits():
    choices = dict.fromkeys(AXES, "x")
    figures = {"allocated_bytes": 110, "reserved_bytes": 0, "device_bytes": 20 * GIB}
    fits = {f"fits_{card}_gb": "yes" for card in CARDS}
    ends = {"allocated_low": 90, "allocated_high": 120, "device_low": 0, "device_high": 21 * GIB}
    predicted = {"config": "a", "choices": json.dumps(choices), **figures, **ends, **fits}
    peaks = {"peak_allocated_bytes": 100, "device_peak_bytes": 25 * GIB}
    actual = {**choices, **peaks, "outcome": Outcome.OK}
    [compared] = predictions.compared([predicted], [("a", actual), ("b", actual)])
    assert compared.errors == pytest.approx({"allocated": 0.1, "device": -0.2})
    too_small = {card for card, size in CARDS.items() if size < 25 * GIB}
    assert too_small
    assert set(compared.false_fits) == too_small
    assert compared.inside == {"allocated": True, "device": False}
    out_of_memory = predictions.Compared(predicted, {**actual, "outcome": Outcome.OUT_OF_MEMORY})
    assert out_of_memory.false_fits == [max(CARDS)]


@pytest.mark.parametrize(("steps", "error"), [(8, 0.0), (100, 1.0)])
def test_row_of_a_few_unequal_steps_is_compared_with_the_forecast_of_a_trial(steps, error):
    choices = dict.fromkeys(AXES, "x")
    figures = {"allocated_bytes": 9, "reserved_bytes": 40, "device_bytes": 40, "epoch_steps": 100}
    of_trial = {"trial_device_bytes": 20, "trial_device_low": 19, "trial_device_high": 21}
    ends = {f"{name}_{end}": 40 for name in predictions.COLUMNS for end in ("low", "high")}
    peaks = {"peak_allocated_bytes": 9, "peak_reserved_bytes": 20, "device_peak_bytes": 20}
    row = {**peaks, "outcome": Outcome.OK, "steps_counted": steps - 2, "warmup_steps": 2}
    forecast = {"choices": json.dumps(choices), **figures, **of_trial, **ends}
    compared = predictions.Compared(forecast, row)
    assert compared.errors["device"] == error
    assert compared.inside["device"] is (error == 0)
    assert ("reserved" in compared.errors) is (steps == 100)


def test_predictions_warn_of_another_transformers():
    measured = {("2.11.0", "5.17.0"), ("2.11.0", "5.23.0")}
    [warning] = predictions.version_warnings({"transformers": "5.23.0"}, measured)
    assert "5.17.0" in warning


def test_spread_finds_the_prior_that_trials_were_drawn_with():
    generator = random.Random(0)

    def trial(mean: float) -> list[float]:
        # A scaled inverse chi-squared variance of 1.5 degrees of freedom.
        scale = min(0.008, 0.004 / mean)
        deviation = scale / generator.gammavariate(0.75, 1 / 0.75) ** 0.5
        return [mean * generator.gauss(1.0, deviation) for _ in range(5)]

    drawn = [trial(0.1 * 1.005**number) for number in range(1000)]
    assert spread.fit(drawn) == pytest.approx((1.5, 0.008, 0.004), rel=0.15)


def test_learned_efficiencies_are_those_that_the_recorded_rows_fit():
    options = command_line().parse_args(
        [
            "times",
            *(str(ROOT / own) for own in ("tests/data/predictions/times.parquet", "docs/results")),
            *("--other", str(ROOT / "tests/data/predictions/times_h100.parquet")),
        ]
    )
    rows = timed_rows.timed(options, options.predicted)
    bound = [own for own in rows if own.host_bound_share <= 0.1]
    fit = times.fitted(bound)
    file = ROOT / "orchestrator/prediction/time/efficiencies.yaml"
    constants = yaml.safe_load(file.read_text())
    assert constants["seconds_per_library_update"] == pytest.approx(
        fit.seconds_per_library_update, rel=0.02
    )
    # No recorded row has masks, so kernels were measured with and without.
    masks = parquet.read_table(ROOT / "tests/data/attention_masks_h200.parquet").to_pylist()
    factors = {**fit.factors, MASKED: 1 / attention_masks.efficiency(masks)}
    found = {kind: pytest.approx(1 / own, abs=2e-3) for kind, own in factors.items()}
    assert constants["efficiencies"] == found
