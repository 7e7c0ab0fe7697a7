"""Run folders from a stranger: any text of a record or of run.json may be a payload."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.flags import Flag, FlagKind
from jobs.record import TrialRecord
from tests.hostile.payloads import PAYLOADS
from tests.support.damages import WHOLE
from tests.support.records import GUIDE_CONFIG, make_guide, make_record, write_run

MAX_PAYLOADS = 8
"""At most so many texts of one run are replaced."""

OWN_CODE_EVERY = 4
"""Every so many runs, the records name code of the user's own."""

Place = tuple[Any, Any]
"""A dictionary or list, and the key or index in it."""


def hostile_run(folder: Path, seed: int) -> Path:
    """A run folder with a few payloads at places that the seed draws."""
    chance = random.Random(seed)
    write_run(folder, _records(chance), **_about(chance))
    files = [folder / "run.json", *sorted((folder / "records").iterdir())]
    for path in files[1:]:
        _make_exportable(path)
        if seed % OWN_CODE_EVERY == 1:
            _name_own_code(path, PAYLOADS[seed % len(PAYLOADS)])
    for _ in range(chance.randint(1, MAX_PAYLOADS)):
        _poison(chance.choice(files), chance)
    # One payload that every record has: it becomes an axis's value, a column or a name everywhere.
    if chance.random() < 0.5:
        _poison_all(files[1:], chance)
    return folder


def _records(chance: random.Random) -> list[TrialRecord]:
    payload = chance.choice(PAYLOADS)
    shapes = (
        list(WHOLE),
        make_guide(),
        [make_record(micro_batch=size, optimizer=payload) for size in (1, 2, 4)],
        [
            make_record(
                micro_batch=size,
                speed=10.0 * size,
                flags=[Flag(FlagKind.LOSS_MISMATCH, 4.0)] if size == 4 else [],
                recipe={payload: payload},
                measurements={"optimizer_class": payload},
            )
            for size in (1, 2, 4)
        ],
    )
    return chance.choice(shapes)


def _about(chance: random.Random) -> dict[str, Any]:
    payload = chance.choice(PAYLOADS)
    return chance.choice(
        (
            {"config": GUIDE_CONFIG},
            {"name": payload},
            {"command": payload, "config": {"model": {payload: payload}}},
            {"budgets": [2**30, 24 * 2**30]},
        )
    )


def _make_exportable(path: Path) -> None:
    """Leave only arguments that TrainingArguments has, or every export would be refused."""
    document = json.loads(path.read_text())
    arguments = document["spec"]["settings"]["training_arguments"]
    for name in list(arguments):
        if name.startswith("synthetic_"):
            del arguments[name]
    path.write_text(json.dumps(document))


def _name_own_code(path: Path, payload: str) -> None:
    """Let a record name an object that would end the process, and a payload as a callback."""
    document = json.loads(path.read_text())
    names = {"trainer": "os:abort", "callbacks": [payload], "collator": "", "entry": ""}
    document["spec"]["own_code"] = {**names, "folder": payload, "digest": payload}
    path.write_text(json.dumps(document))


def _poison(path: Path, chance: random.Random) -> None:
    document = json.loads(path.read_text())
    places = list(_places(document))
    parent, key = chance.choice(places)
    payload = chance.choice(PAYLOADS)
    if isinstance(parent, dict) and chance.random() < 0.3:
        parent[payload] = parent.pop(key)
    else:
        parent[key] = payload
    path.write_text(json.dumps(document))


def _poison_all(paths: list[Path], chance: random.Random) -> None:
    payload = chance.choice(PAYLOADS)
    part = chance.choice(("choices", "environment", "measurements"))
    key = chance.choice(("optimizer", "gpu_model", "torch", "optimizer_class", payload))
    for path in paths:
        document = json.loads(path.read_text())
        holder = document.get("spec", {}) if part == "choices" else document
        if isinstance(holder, dict) and isinstance(holder.get(part), dict):
            holder[part][key] = payload
        path.write_text(json.dumps(document))


def _places(value: Any) -> Iterator[Place]:
    """Every place of a JSON document that holds a value, however deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from _places(inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield value, index
            yield from _places(inner)
