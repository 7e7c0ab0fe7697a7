"""A trial's identity follows from its settings, so configurations must differ in these."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.spec import TrialSpec, to_json
from jobs.techniques import AXES, merge
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import Plan, plan

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))


def _specs(planned: Plan) -> list[TrialSpec]:
    return [*planned.trials, *(record.spec for record in planned.ruled_out)]


def _repeated(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def _settings_of(axis: str, value: Any) -> str:
    variant = AXES[axis].variant(value)
    return json.dumps(to_json(merge([variant], {}, None)), sort_keys=True)


@pytest.mark.parametrize("has_gpu", [True, False])
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_trial_ids_of_a_shipped_config_are_distinct(path: Path, has_gpu: bool) -> None:
    specs = _specs(plan(load_config(path), has_gpu=has_gpu))
    assert specs
    assert not _repeated(spec.trial_id for spec in specs)


def test_trial_ids_of_every_pair_of_variants_are_distinct(tmp_path: Path) -> None:
    values: dict[str, list[Any]] = {}
    for name, axis in AXES.items():
        values[name] = [1, 2] if axis.takes_integers else list(axis.variants)
    subsets = {}
    for first, second in combinations(AXES, 2):
        axes = {first: values[first], second: values[second]}
        subsets[f"{first}_{second}"] = {"axes": axes}
    model = {"task": "causal-lm", "architecture": "llama"}
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({"model": model, "subsets": subsets}))
    specs = _specs(plan(load_config(path)))
    for name, listed in values.items():
        assert {spec.choices[name] for spec in specs} >= set(listed)
    assert not _repeated(spec.trial_id for spec in specs)


@pytest.mark.parametrize("name", AXES)
def test_variants_of_an_axis_have_distinct_settings(name: str) -> None:
    values = list(AXES[name].variants) or [1, 2, 3]
    assert not _repeated(_settings_of(name, value) for value in values)
