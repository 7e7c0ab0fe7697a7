"""The grids that searches are judged on: recorded ones, and simulated other models."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from jobs.spec import Choice, TrainingRecipe
from jobs.techniques import AXES
from orchestrator.analysis.baseline import ranked_recipe
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.storage.run_reader import read_run_folder
from tests.benchmarks.best.ragged_qlora import AXES as QLORA_AXES
from tests.benchmarks.best.ragged_qlora import ragged_qlora
from tests.benchmarks.best.sketches import SKETCHES, Sketch, decoder_grid, drawn
from tests.benchmarks.grids import DATA, PREDICTED, Table, predicted, recorded
from tests.benchmarks.recorded.runs import folders_below
from tests.benchmarks.simulated_grids import simulated
from tests.benchmarks.technique_priors import RESULTS, priors_from, shape_of
from tests.benchmarks.tuned.decoder import RUN as DECODER_1B

BERT_LARGE = RESULTS / "2026-11-21-bert_large-h200"
LORA_8B = RESULTS / "2026-11-23-llm_lora_8b-h200"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Grid:
    """A complete grid, and what a search may know before its first trial."""

    name: str
    table: Table
    predicted_bytes: Mapping[str, float] = field(default_factory=dict)
    predicted_seconds: Mapping[str, float] = field(default_factory=dict)
    """Trial id -> forecast seconds of a step."""
    priors: TechniquePriors
    baseline: Mapping[str, Choice]
    budgets: tuple[int, ...]
    """Bytes."""

    @property
    def recipe(self) -> TrainingRecipe:
        """The training recipe of the query."""
        listed = [
            (record.spec.choices, record.spec.training_recipe) for record in self.table.values()
        ]
        return ranked_recipe(listed, self.baseline)

    @property
    def seconds(self) -> float:
        """Slot seconds of all its trials."""
        return sum(record.slot_seconds for record in self.table.values())


@cache
def recorded_grid(path: Path, budgets: tuple[int, ...]) -> Grid:
    """A recorded grid: a run's folder, or a table of trials. The priors leave its model out.

    A run's folder may have further runs of the same grid, each in a folder below it.
    """
    path = path.resolve()
    table_path = path
    shape = ""
    if path.is_dir():
        table_path = path / "trials.parquet"
        shape = shape_of(path)
    table = dict(recorded(table_path))
    for further in sorted(path.glob("*/trials.parquet")):
        table |= recorded(further)
    if path.parent == DATA:
        shape = shape_of(BERT_LARGE)
    predictions: Mapping[str, float] = {}
    if shape == shape_of(BERT_LARGE):
        predictions = predicted(table, PREDICTED)
    elif (path / "predicted.parquet").exists():
        predictions = predicted(table, path / "predicted.parquet")
    return Grid(
        name=path.name,
        table=table,
        predicted_bytes=predictions,
        priors=priors_from(folders_below([RESULTS]), without=shape),
        baseline=_baseline_of(path, table),
        budgets=budgets,
    )


def _baseline_of(path: Path, table: Table) -> Mapping[str, Choice]:
    """The baseline: the defaults of the axes, if the grid has them."""
    baseline: dict[str, Choice] = {}
    if path.is_dir():
        baseline = dict(read_run_folder(path).trials.run.baseline)
    for name, axis in AXES.items():
        values = {record.spec.choices.get(name) for record in table.values()}
        if axis.default in values:
            baseline[name] = axis.default
    return baseline


@cache
def law_grid(budgets: tuple[int, ...]) -> Grid:
    """A grid simulated by the performance model, to test a search when the model holds exactly."""
    table = simulated()
    return Grid(
        name="SIMULATED by the performance model",
        table=table,
        priors=TechniquePriors(),
        baseline=_baseline_of(DATA / "simulated", table),
        budgets=budgets,
    )


@cache
def sketched_grid(sketch: Sketch, draw: int, budgets: tuple[int, ...]) -> Grid:
    """A draw of a sketch. The search knows what the recorded runs of other models say."""
    left_out = shape_of(LORA_8B) if "base" in sketch.axes else ""
    return Grid(
        name=sketch.name,
        table=drawn(sketch, draw),
        priors=priors_from(folders_below([RESULTS]), without=left_out),
        baseline={axis: values[0] for axis, values in sketch.axes.items()},
        budgets=budgets,
    )


@cache
def simulated_decoder(draw: int, budgets: tuple[int, ...]) -> Grid:
    """A draw of the decoder of `tests.benchmarks.tuned`, in an expert's grid."""
    table = decoder_grid(draw)
    return Grid(
        name="SIMULATED in part: decoder of 1.2 B, compiled, with budgets",
        table=table,
        priors=priors_from(folders_below([RESULTS]), without=shape_of(DECODER_1B)),
        baseline={**_baseline_of(DATA / "decoder", table), "precision": "bf16", "micro_batch": 8},
        budgets=budgets,
    )


@cache
def simulated_qlora(draw: int, budgets: tuple[int, ...]) -> Grid:
    """A draw of 4-bit LoRA on rows of unequal length, which no recorded run of other models has."""
    table, predicted_bytes, predicted_seconds = ragged_qlora(draw)
    return Grid(
        name="SIMULATED in part: QLoRA of 8 B on rows of unequal length",
        table=table,
        predicted_bytes=predicted_bytes,
        predicted_seconds=predicted_seconds,
        priors=priors_from(folders_below([RESULTS]), without=shape_of(LORA_8B)),
        baseline={axis: values[0] for axis, values in QLORA_AXES.items()},
        budgets=budgets,
    )


def simulated_grids(draw: int, budgets: tuple[int, ...]) -> list[Grid]:
    grids = [sketched_grid(sketch, draw, budgets) for sketch in SKETCHES]
    others = [simulated_decoder(draw, budgets), simulated_qlora(draw, budgets)]
    return [*grids, *others, law_grid(budgets)]
