"""Run folders from a stranger: any text of a record or of run.json may be a payload.

A payload acts on the program that shows or executes it.
"""

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.flags import Flag, FlagKind
from jobs.record import TrialRecord
from jobs.spec import TrialSpec, from_json
from tests.support.damages import WHOLE
from tests.support.guarded_export import CANARY
from tests.support.records import GUIDE_CONFIG, make_guide, make_record, write_run

# A payload makes a file, or a JavaScript variable, of the canary's name if it is executed.

PYTHON = (
    f'open("{CANARY}", "w")',
    f'x"""\nopen("{CANARY}", "w")\n"""',
    f"x'\nopen('{CANARY}', 'w')\n'",
    f'x"); open("{CANARY}", "w"); ("',
    f'x=open("{CANARY}", "w"), y',
    f"x\n    open('{CANARY}', 'w')\n",
)
TEMPLATES = (
    f"{{{{ cycler.__init__.__globals__.os.system('touch {CANARY}') }}}}",
    f"{{% set x = open('{CANARY}') %}}",
    "@{x}{safe} @x $index",
    "{0.__class__} {x} %s %(x)s %n",
)
SHELL_AND_YAML = (
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f"; touch {CANARY} #",
    f"!!python/object/apply:os.system ['touch {CANARY}']",
    "--index-url https://example.org/simple",
)
_PAGES = (
    f"\"'></script><script>window.{CANARY}=1</script>",
    f'<img src=x onerror="window.{CANARY}=1">',
    f"<svg onload=window.{CANARY}=1>",
    f"</title></style><script>window.{CANARY}=1</script>",
    f"javascript:window.{CANARY}=1",
    '<iframe src="https://example.org/"></iframe>',
    "<!--<script>",
    "[x](javascript:alert(1)) ![x](//example.org/x.png)",
    "a|b\n| --- |\n# heading",
)
_TERMINALS = (
    "\x1b]0;title\x07\x1b[2J\x1b[31m",
    "\x9b31m\x90x\x9c",
    "\u202etxt.exe\u2066",
    "\u2028import os\u2029\x85",
    "\r\x08\x08overwritten",
    "\u200b\ufeff\U000e0041",
    "[bold red]x[/] [link=https://example.org]x[/link]",
)
_PATHS = ("../../../tmp/x", "/etc/passwd", "C:\\x", "x/../../y", "~/.ssh/id_rsa", ".")
_ODD = ("", " ", "\\", "x" * 3000, "NaN", "-inf", "1e999", "None", "true", "0", "null", "é" * 200)

PAYLOADS = (*PYTHON, *TEMPLATES, *SHELL_AND_YAML, *_PAGES, *_TERMINALS, *_PATHS, *_ODD)


def hostile_run(folder: Path, seed: int) -> Path:
    """A run folder with a few payloads at places that the seed draws."""
    chance = random.Random(seed)
    write_run(folder, _records(chance), **_about(chance))
    paths = [folder / "run.json", *sorted((folder / "records").iterdir())]
    documents = [json.loads(path.read_text()) for path in paths]
    records = documents[1:]
    for record in records:
        # Only arguments that TrainingArguments has, or every export would be refused.
        arguments = record["spec"]["settings"]["training_arguments"]
        for name in [name for name in arguments if name.startswith("synthetic_")]:
            del arguments[name]
        if seed % 4 == 1:
            # An object that would end the process, and a payload as a callback.
            payload = PAYLOADS[seed % len(PAYLOADS)]
            names = {"trainer": "os:abort", "callbacks": [payload], "collator": "", "entry": ""}
            record["spec"]["own_code"] = {**names, "folder": payload, "digest": payload}
    for _ in range(chance.randint(1, 8)):
        parent, key = chance.choice(list(_places(chance.choice(documents))))
        payload = chance.choice(PAYLOADS)
        if isinstance(parent, dict) and chance.random() < 0.3:
            parent[payload] = parent.pop(key)
        else:
            parent[key] = payload
    # One payload that every record has: it becomes an axis's value, a column or a name everywhere.
    if chance.random() < 0.5:
        _poison_all(records, chance)
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document))
    for path, record in zip(paths[1:], records, strict=True):
        # A stranger gives each file its trial's name, or it would be refused unread.
        with contextlib.suppress(Exception):
            path.rename(path.with_stem(from_json(TrialSpec, record["spec"]).trial_id))
    return folder


def _records(chance: random.Random) -> list[TrialRecord]:
    payload = chance.choice(PAYLOADS)
    mismatch = [Flag(FlagKind.LOSS_MISMATCH, 4.0)]
    odd = {"recipe": {payload: payload}, "measurements": {"optimizer_class": payload}}
    return chance.choice(
        (
            list(WHOLE),
            make_guide(),
            [make_record(micro_batch=size, optimizer=payload) for size in (1, 2, 4)],
            [
                make_record(micro_batch=1, speed=10.0, **odd),
                make_record(micro_batch=2, speed=20.0, **odd),
                make_record(micro_batch=4, speed=40.0, flags=mismatch, **odd),
            ],
        )
    )


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


def _poison_all(records: list[Any], chance: random.Random) -> None:
    payload = chance.choice(PAYLOADS)
    part = chance.choice(("choices", "environment", "measurements"))
    key = chance.choice(("optimizer", "gpu_model", "torch", "optimizer_class", payload))
    for record in records:
        holder = record.get("spec", {}) if part == "choices" else record
        if isinstance(holder, dict) and isinstance(holder.get(part), dict):
            holder[part][key] = payload


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every dictionary or list of a JSON document with each of its keys or indices."""
    items = {dict: dict.items, list: enumerate}.get(type(value))
    for key, inner in list(items(value)) if items else ():
        yield value, key
        yield from _places(inner)
