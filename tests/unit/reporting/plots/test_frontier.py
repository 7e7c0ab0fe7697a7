"""frontier.png, and what it shares with the page: axes, budgets, colours, names."""

import itertools

import pytest

from orchestrator.analysis.dataset import Dataset, load_dataset
from orchestrator.reporting.plots.point_labels import MAX_LABELS, Label, labelled, write
from orchestrator.reporting.plots.style import (
    PALETTE,
    RISING,
    colours_of,
    drawing,
    encoded_axes,
    shown_budgets,
    values_of,
)
from orchestrator.units import GIB
from tests.support.records import make_grid, make_record, write_run


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_dataset(write_run(tmp_path_factory.mktemp("grid"), make_grid()))


def test_encoded_axes_prefer_precision_and_activations(dataset, tmp_path):
    assert encoded_axes(dataset, dataset.main) == ("precision", "activations")
    records = [make_record(optimizer=name, micro_batch=n) for n in (1, 2) for name in ("a", "b")]
    few = load_dataset(write_run(tmp_path, records))
    assert encoded_axes(few, few.main) == ("optimizer", "micro_batch")


def test_labelled_configurations_are_few_and_hold_the_ends(dataset):
    front = dataset.main.front
    chosen = labelled(front, [front[3]])
    assert chosen[:3] == [front[-1], front[0], front[3]]
    assert len(chosen) <= MAX_LABELS
    assert labelled(front[:1], ()) == [front[0]]


def test_write_never_covers_a_label_with_another():
    with drawing(4) as figure:
        axes = figure.add_subplot()
        axes.set(xlim=(0, 10), ylim=(0, 10))
        text = "batch 64 · bf16 · checkpoint\n38.9 GiB, 312/s"
        labels = [Label(x=5 + n / 10, y=5, text=text) for n in range(30)]
        write(axes, labels, ([5.0], [6.0]), [])
        boxes = [drawn.get_window_extent() for drawn in axes.texts]
        frame = axes.get_window_extent()
        assert 3 <= len(boxes) < 30
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
        assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


def test_shown_budgets_are_those_of_the_run_wherever_they_lie(tmp_path):
    named = [GIB // 2, 900 * GIB]
    dataset = load_dataset(write_run(tmp_path / "named", make_grid(), budgets=named))
    assert shown_budgets(dataset, dataset.main) == named
    unnamed = load_dataset(write_run(tmp_path / "unnamed", make_grid()))
    assert shown_budgets(unnamed, unnamed.main)


def test_values_of_an_axis_come_in_their_techniques_order(tmp_path):
    records = []
    for number, precision in enumerate(("bf16", "fp32", "mine", "tf32")):
        records.append(make_record(precision=precision, micro_batch=2 ** (4 - number)))
    dataset = load_dataset(write_run(tmp_path, records))
    configurations = dataset.main.configurations
    assert values_of("precision", configurations) == ["fp32", "tf32", "bf16", "mine"]
    assert values_of("micro_batch", configurations) == [2, 4, 8, 16]


def test_colours_of_names_all_differ_and_those_of_numbers_rise():
    assert len(set(colours_of([f"name {number}" for number in range(40)]))) == 40
    colours = colours_of([1, 2, 4, 8])
    assert (colours[0], colours[-1]) == (RISING[0], RISING[-1])
    assert colours_of([1, 2]) == colours_of(["a", "b"]) == list(PALETTE[:2])
