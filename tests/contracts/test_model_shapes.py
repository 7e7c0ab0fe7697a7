"""The table of public models' shapes: transformers builds them, as large as the table says."""

import pytest
import yaml

from jobs.library_facts.model_size import count
from jobs.spec import ModelSpec
from orchestrator.planning.dialects.to_ours.model_shapes import shape_of
from tests.support.commands import ROOT

TABLE = yaml.safe_load(
    (ROOT / "orchestrator/planning/dialects/to_ours/models.yaml").read_text(encoding="utf-8")
)
ROWS = TABLE["models"]
SMALLEST = {ROWS[name][0]: name for name in sorted(ROWS, key=lambda name: -ROWS[name][1])}
"""Architecture -> its row of the fewest parameters, because all rows take a minute."""


def shape(name):
    architecture = ROWS[TABLE["also"].get(name, name)][0]
    with_images = architecture in TABLE["tasks"]["image-text-to-text"]
    return shape_of(name.removesuffix("+images"), with_images=with_images)


def test_each_name_of_the_table_is_known_by_itself():
    for name in [*ROWS, *TABLE["also"]]:
        assert shape(name).is_exact, name
        assert shape(name).source == f"the shape of {name}"


@pytest.mark.parametrize("name", sorted(SMALLEST.values()))
def test_a_known_shape_is_built_for_its_task_with_the_parameters_of_its_row(name):
    own = shape(name)
    model = ModelSpec(architecture=own.architecture, config=own.config, task=own.task)
    assert count(model) / 1e9 == pytest.approx(ROWS[name][1], rel=0.002, abs=0.0006)
