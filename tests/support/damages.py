"""A small run folder, and what can happen to one: every damage is drawn by a seed and always the
same.
"""

import json
import math
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jobs.record import Outcome, TrialRecord
from jobs.spec import to_json
from tests.support.records import make_anatomy, make_record


def _trial(micro_batch: int, **figures: Any) -> TrialRecord:
    return make_record(**{"micro_batch": micro_batch, "optimizer": "adamw_torch", **figures})


WHOLE: Sequence[TrialRecord] = (
    *(_trial(2**n, memory_mib=500 * 2**n, speed=100 + n) for n in range(4)),
    _trial(64, memory_mib=900, speed=95.0, anatomy=make_anatomy()),
    _trial(8, memory_mib=1500, speed=90.0, optimizer="sgd", recipe={"optimizer": "sgd"}),
    _trial(16, outcome=Outcome.OUT_OF_MEMORY, reason="CUDA out of memory."),
    _trial(32, outcome=Outcome.SKIPPED, rule="time_budget", reason="no time"),
)
VALUES: Sequence[Any] = (
    *json.loads('[null, true, -1, 0, 7, 0.5, NaN, Infinity, -Infinity, 1e300, "", "ok", "x"]'),
    *json.loads('[[], {}, [[]], [null], [1, "a"], {"a": {"b": 1}}, ["x"], [NaN], {"hooks": 1}]'),
    *(2**60, 2**70, 10**400, "\ud800", "\0", "x" * 5000),
)
DAYS = 86400.0
Damage = Callable[[Path, random.Random], None]
"""What happens to a record's file."""


def torn(path: Path, chance: random.Random) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: chance.randrange(len(whole))])


def overwritten(path: Path, chance: random.Random) -> None:
    """A few bytes of something else in the middle."""
    whole = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 3, 30))):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    path.write_bytes(bytes(whole))


def revalued(path: Path, chance: random.Random) -> None:
    """Another value, another field or none at some place."""
    document = json.loads(path.read_text())
    parent, key = document, chance.choice(list(document))
    while isinstance(parent[key], dict) and parent[key] and chance.random() < 0.8:
        parent = parent[key]
        key = chance.choice(list(parent))
    match chance.randrange(6):
        case 0:
            del parent[key]
        case 1:
            parent[chance.choice(("mood", "", "trial_id", "needs"))] = parent.pop(key)
        case _:
            parent[key] = chance.choice(VALUES)
    path.write_text(json.dumps(document))


def remeasured(path: Path, chance: random.Random) -> None:
    """A measurement that no instrument makes."""
    document = json.loads(path.read_text())
    for name in chance.sample(sorted({*document["measurements"], "warmup_steps", "flags"}), 2):
        document["measurements"][name] = chance.choice(VALUES)
    path.write_text(json.dumps(document))


def clocked(path: Path, chance: random.Random) -> None:
    """Written while the clock was wrong."""
    document = json.loads(path.read_text())
    document["provenance"]["started_at"] = chance.choice(
        (-DAYS, 1.0, 1_700_000_000 - 9000 * DAYS, 1_700_000_000 + 9000 * DAYS, 1e18)
    )
    document["provenance"]["slot_seconds"] = chance.choice((-3600.0, 0.0, math.nan, 1e9))
    path.write_text(json.dumps(document))


def displaced(path: Path, chance: random.Random) -> None:
    """Something that is no file, or another file, in its place."""
    kept = path.read_bytes()
    path.unlink()
    match chance.randrange(7):
        case 0:
            path.mkdir()
        case 1:
            path.symlink_to(path.name)
        case 2:
            path.symlink_to("/dev/zero")
        case 3:
            os.mkfifo(path)
        case 4:
            path.symlink_to(path.parent.parent)
        case 5:
            path.with_name("somebody's.json").write_bytes(kept)
        case _:
            path.write_bytes(
                chance.choice((b"", b"\0" * 4096, b"[" * 5000, b"7", b'"x"', b"PAR1", b"\xff\xfe"))
            )


DAMAGES: Sequence[Damage] = (torn, overwritten, clocked, displaced, *(revalued, remeasured) * 2)


def run_json(path: Path, chance: random.Random) -> None:
    """``run.json`` has come to harm."""
    raw: Any = {"name": "synthetic", "config": {}, "command": "x", "budgets": [2**34]}
    raw |= {"baseline": {}, "search": {}}
    raw[chance.choice(list(raw))] = chance.choice(VALUES)
    text = json.dumps(raw if chance.random() < 0.8 else chance.choice(VALUES))
    path.write_text(text if chance.random() < 0.7 else text[: len(text) // 2])


def damaged(folder: Path, seed: int) -> set[str]:
    """A run folder of ``WHOLE`` with damages drawn by ``seed``; the trials that were left alone."""
    chance = random.Random(seed)
    (folder / "records").mkdir(parents=True)
    paths = [folder / "records" / f"{record.trial_id}.json" for record in WHOLE]
    for path, record in zip(paths, WHOLE, strict=True):
        path.write_text(json.dumps(to_json(record)))
    (folder / "run.json").write_text(json.dumps({"name": "synthetic", "budgets": [2**34]}))
    hurt = chance.sample(paths, chance.choice((1, 1, 2, 4, len(paths))))
    for path in hurt:
        chance.choice(DAMAGES)(path, chance)
    if chance.random() < 0.3:
        run_json(folder / "run.json", chance)
    return {path.stem for path in paths if path not in hurt}
