"""requirements.txt lists whatever package the checks of a node look for."""

import dataclasses
from types import SimpleNamespace

import pytest

from jobs.techniques import AXES
from jobs.trial import requirements
from orchestrator.export.packages import packages

ROWS = {
    f"{axis.name}={name}": row
    for axis in AXES.values()
    for name, row in axis.variants.items()
    if row.requires
}


@pytest.mark.parametrize("technique", ROWS)
def test_packages_of_a_technique_are_those_that_a_node_must_have(technique, tiny_spec, monkeypatch):
    settings = dataclasses.replace(tiny_spec().settings, requires=ROWS[technique].requires)
    spec = dataclasses.replace(tiny_spec(), settings=settings)
    listed = packages(spec)
    asked: list[str] = []
    finder = SimpleNamespace(find_spec=asked.append)
    monkeypatch.setattr(requirements, "importlib", SimpleNamespace(util=finder))
    for requirement in settings.requires:
        # What builds DeepSpeed's ops is no package of a training.
        if not requirement.startswith("deepspeed_op:"):
            requirements.unmet_reason(requirement, spec)
    assert {requirements.DISTRIBUTIONS.get(name, name) for name in asked} <= {*listed}
