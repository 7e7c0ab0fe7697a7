"""Predicting shows how far it is, because a trace takes seconds."""

import tempfile
from types import SimpleNamespace
from typing import Any

from orchestrator.prediction import estimator
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.time.operations import LIBRARY_OPTIMIZER, OPTIMIZER
from tests.benchmarks.grids import make_spec


def test_predictions_are_counted_as_they_come(monkeypatch):
    def traced(group: list[Any], *_: Any) -> list[list[Any]]:
        return [[SimpleNamespace(trial_id=spec.trial_id)] for spec in group]

    monkeypatch.setattr(estimator, "predictions", traced)
    trials = [make_spec({"micro_batch": size, "accumulation": 1}) for size in (1, 2, 4)]
    seen: list[tuple[int, int]] = []
    gpu: Any = None
    found = estimator.predict(trials, gpu, lambda *counts: seen.append(counts))
    assert [own.trial_id for own in found] == [spec.trial_id for spec in trials]
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_trials_of_one_memory_have_their_own_steps(tiny_spec, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    choices: Any = {"precision": "tf32", "optimizer": "adamw_torch"}
    techniques: Any = ({"precision": "fp32"}, {}, {"compile": "inductor"})
    specs = [tiny_spec({**choices, **own}) for own in techniques]
    plain, tf32, compiled = estimator.predict(specs, load_gpu("h200"))
    assert plain.device is not None
    assert (plain.device, compiled.device) == (tf32.device, None)
    steps = [own.step for own in (plain, tf32, compiled) if own.step]
    assert [own.formats for own in steps] == [{}, {"fp32": "tf32"}, {"fp32": "tf32"}]
    assert [own.is_compiled for own in steps] == [False, False, True]
    # The traced Trainers leave no folder.
    assert {own.name for own in tmp_path.iterdir() if "inductor" not in own.name} == set()


def test_update_by_another_library_takes_the_host_a_call_for_each_tensor(tiny_spec):
    optimizers = ("adamw_torch_fused", "adamw_bnb_8bit")
    specs = [tiny_spec({"optimizer": own}) for own in optimizers]
    works = [own.step.eager for own in estimator.predict(specs, load_gpu("h200")) if own.step]
    plain, packed = (own.launches(LIBRARY_OPTIMIZER) for own in works)
    assert plain == 0
    assert packed > 2 * works[0].launches(OPTIMIZER)
