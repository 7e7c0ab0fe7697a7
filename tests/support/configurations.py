"""Synthetic configurations, for tests of the analysis that need no records."""

import math
from collections.abc import Mapping, Sequence

from jobs.record import TrialRecord
from jobs.spec import Choice, TrainingRecipe
from orchestrator.analysis.configuration import Configuration, configurations
from orchestrator.analysis.repeatability import UNKNOWN_ERROR, SpeedError
from orchestrator.storage.tables.trial_table import table_of_records
from tests.support.records import COLUMNS


def make_configuration(
    memory_bytes: int,
    speed: float,
    *,
    micro_batch: int = 4,
    accumulation: int = 1,
    recipe: Mapping[str, Choice] | None = None,
    environment_id: str = "e",
    ci95: float | None = None,
    trial_id: str = "t",
    **row: object,
) -> Configuration:
    """A configuration with these figures; ``row`` are further columns."""
    batch = {"micro_batch": micro_batch, "accumulation": accumulation}
    return Configuration(
        choices={**batch, "loop": "trainer"},
        environment_id=environment_id,
        training_recipe=TrainingRecipe.of(recipe or {}),
        memory_bytes=memory_bytes,
        samples_per_second=speed,
        speed_error=UNKNOWN_ERROR if ci95 is None else SpeedError(ci95 / 1.96, math.inf),
        row={**batch, "effective_batch": micro_batch * accumulation, **row},
        trial_ids=(trial_id,),
    )


def measured(records: Sequence[TrialRecord]) -> tuple[Configuration, ...]:
    table = table_of_records(records, declared=COLUMNS)
    return configurations(table.rows, table.axes)
