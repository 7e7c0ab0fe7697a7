"""Requirements of techniques, answered for this node."""

import importlib.util
import json
from dataclasses import replace

import pytest

from jobs.errors import UnsupportedError
from jobs.trial.requirements import check, unmet_reason
from tests.conftest import build_tiny_spec
from tests.support.commands import ROOT


def test_check_raises_for_the_first_unmet_requirement():
    with pytest.raises(UnsupportedError, match="no_such_package is not installed") as caught:
        check(["transformers>=5.0", "package:no_such_package", "nonsense"], build_tiny_spec())
    assert caught.value.rule == "package:no_such_package"


CASES = (ROOT / "tests/golden/requirements.txt").read_text().splitlines()


@pytest.mark.parametrize("line", [line for line in CASES if line[0] != "#"])
def test_unmet_reason_is_of_this_model_and_node(line):
    case, _, reason = line.partition(" =>")
    requirement, _, model = case.partition(" {")
    spec, changed = build_tiny_spec(), json.loads("{" + model)
    # A model of another task is not configured.
    config = {} if "task" in changed else spec.model.config
    changed["config"] = {**config, **changed.get("config", {})}
    unmet = unmet_reason(requirement, replace(spec, model=replace(spec.model, **changed)))
    assert reason.strip() in unmet
    assert bool(unmet) is bool(reason)


def test_unmet_reason_of_a_hub_kernel_without_its_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    reason = unmet_reason("hub_kernel:kernels-community/flash-attn2", build_tiny_spec())
    assert reason == "the package kernels is not installed: pip install kernels"
