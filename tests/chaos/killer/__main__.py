"""Whole sweeps under a random killer: nothing lost, repeated, forgotten or left behind.

    python -m tests.chaos.killer [--sweeps 60] [--seed 1] [--jobs 1] [--state FILE] [--page PAGE]

Each sweep trains tiny models on this machine's CPU, on a Ray of its own. At random times a random
process of it is killed or stopped, or its folder or a disk is damaged. Where the driver ends,
``--resume`` goes on. A reader opens the tables and renders the report all the while. Every kind of
strike gets equally many turns. With ``--state``, a campaign that was ended goes on where it was.
Exit status 0 if all held.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.chaos import namespaces
from tests.chaos.killer import page
from tests.chaos.killer.outcome import SweepOutcome
from tests.chaos.killer.struck_sweep import StruckSweep, planned_trials
from tests.chaos.killer.victims import STRIKES, Strike

DEADLINE_SECONDS = 500.0
"""How long nothing may happen: no record is written and the driver does not end.

The limits of docs/reliability.md, one after the other: a slot is given up after twice the trial's
timeout and two minutes, no other slot starts for five minutes, and Ray shuts down."""
_SHARED_MEMORY = Path("/dev/shm")
_MOST_ROUNDS = 4
"""A strike may find its sweep complete already. It gets as many further sweeps, at most."""


def main() -> int:
    """Exit status."""
    options = _command_line().parse_args()
    has_mounts = namespaces.enter()
    kinds = [kind for kind in STRIKES if has_mounts or not kind.needs_mounts]
    drawn = draw(options.seed, options.sweeps, options.strikes, kinds)
    with contextlib.ExitStack() as stack:
        # A short path: Ray's sockets lie below it.
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="ck-"))
        campaign = Campaign(options, Path(root), has_mounts=has_mounts)
        if has_mounts:
            _mount_shared_memory()
        for _ in range(_MOST_ROUNDS):
            campaign.run(drawn)
            missed = campaign.missed(drawn)
            if not missed:
                break
            drawn = {**drawn, **missed}
        if has_mounts:
            campaign.note_shared_memory()
    outcomes = campaign.outcomes()
    print("\n".join(page.table(outcomes)))
    return int(any(True for outcome in outcomes for _ in outcome.wrong()))


def _command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.killer", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--sweeps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strikes", type=int, default=2, help="in each sweep")
    parser.add_argument("--jobs", type=int, default=1, help="sweeps at the same time")
    parser.add_argument("--state", type=Path, help="file of what is done, to go on from")
    parser.add_argument("--evidence", type=Path, help="folder for sweeps in which a check failed")
    parser.add_argument("--page", type=Path, help="the Markdown page to write the table into")
    return parser


def draw(
    seed: int, sweeps: int, strikes: int, kinds: Sequence[Strike]
) -> dict[int, tuple[Strike, ...]]:
    """Number of a sweep -> its strikes, in order. Every kind is drawn equally often, give or
    take one.
    """
    chance = random.Random(f"{seed}-kinds")
    deck: list[Strike] = []
    while len(deck) < sweeps * strikes:
        deck += chance.sample(kinds, len(kinds))
    # The first strike of a sweep may be its start, so each sweep has one start at most.
    starts = [kind for kind in deck[: sweeps * strikes] if kind.is_at_start]
    others = [kind for kind in deck[: sweeps * strikes] if not kind.is_at_start]
    hands: list[list[Strike]] = [[] for _ in range(sweeps)]
    for number in chance.sample(range(sweeps), len(starts)):
        hands[number].append(starts.pop())
    for hand in hands:
        while len(hand) < strikes:
            hand.append(others.pop())
    return {number: tuple(hand) for number, hand in enumerate(hands)}


class Campaign:
    """The sweeps, each of them noted in the state file when it is complete."""

    def __init__(self, options: argparse.Namespace, root: Path, *, has_mounts: bool) -> None:
        self._options = options
        self._root = root
        self._has_mounts = has_mounts
        self._planned = planned_trials()
        self._outcomes: dict[int, SweepOutcome] = {}
        self._seconds_before = 0.0
        self._begin = time.monotonic()
        if options.state is not None and options.state.exists():
            self._read(options.state)

    def outcomes(self) -> list[SweepOutcome]:
        """Those of the complete sweeps, in the order of their numbers."""
        return [outcome for _, outcome in sorted(self._outcomes.items())]

    def run(self, drawn: Mapping[int, Sequence[Strike]]) -> None:
        """Run the sweeps that are not complete yet."""
        with ThreadPoolExecutor(self._options.jobs) as pool:
            pending = {}
            for number, kinds in drawn.items():
                if number not in self._outcomes:
                    pending[pool.submit(self._sweep, number, kinds)] = number
            for future in as_completed(pending):
                self._note(pending[future], future.result())

    def missed(self, drawn: Mapping[int, Sequence[Strike]]) -> dict[int, tuple[Strike, ...]]:
        """Sweeps with the strikes that have not happened yet, one in each."""
        # The sweeps of earlier rounds only repeat what was missed.
        first = list(drawn)[: self._options.sweeps]
        wanted = Counter(kind.name for number in first for kind in drawn[number])
        for outcome in self._outcomes.values():
            wanted.subtract(strike.name for strike in outcome.strikes)
        by_name = {kind.name: kind for kind in STRIKES}
        next_number = max(self._outcomes, default=-1) + 1
        names = (+wanted).elements()
        return {number: (by_name[name],) for number, name in enumerate(names, next_number)}

    def note_shared_memory(self) -> None:
        """What lies in the shared memory that only these sweeps can see."""
        left = sorted(os.listdir(_SHARED_MEMORY))
        number = max(self._outcomes)
        outcome = self._outcomes[number]
        outcome.temporary += [f"{_SHARED_MEMORY}/{name}" for name in left]
        self._note(number, outcome)

    def _sweep(self, number: int, kinds: Sequence[Strike]) -> SweepOutcome:
        chance = random.Random(f"{self._options.seed}-{number}")
        sweep = StruckSweep(
            self._root,
            number,
            chance,
            deadline_seconds=DEADLINE_SECONDS,
            has_mounts=self._has_mounts,
            planned=self._planned,
        )
        try:
            return sweep.run(kinds, evidence=self._options.evidence)
        except Exception:  # a fault of this campaign, which the other sweeps must not miss
            return SweepOutcome(trials=0, unexpected=[traceback.format_exc()[-2000:]])

    def _note(self, number: int, outcome: SweepOutcome) -> None:
        """Keep the outcome of a sweep, print it, and write the page anew."""
        self._outcomes[number] = outcome
        seconds = self._seconds_before + time.monotonic() - self._begin
        print(f"{seconds:6.0f} s  sweep {number}: {outcome.line()}", flush=True)
        for wrong in outcome.wrong():
            print(f"          !! {wrong}", flush=True)
        if self._options.state is not None:
            line = {"number": number, "seconds": seconds, "outcome": outcome.to_json()}
            with open(self._options.state, "a") as file:
                file.write(json.dumps(line) + "\n")
        if self._options.page is not None:
            page.write(self._options.page, self.outcomes(), self._command(), seconds)

    def _read(self, state: Path) -> None:
        for line in state.read_text().splitlines():
            values = json.loads(line)
            self._outcomes[values["number"]] = SweepOutcome.from_json(values["outcome"])
            self._seconds_before = values["seconds"]

    def _command(self) -> str:
        """The command that gives this campaign, without the names of its files."""
        options = self._options
        values = {"--sweeps": options.sweeps, "--seed": options.seed, "--jobs": options.jobs}
        if options.strikes != 2:
            values["--strikes"] = options.strikes
        words = ["python", "-m", "tests.chaos.killer"]
        for name, value in values.items():
            words += [name, str(value)]
        return shlex.join(words)


def _mount_shared_memory() -> None:
    """A shared memory of this campaign's own, so that what is left there is known to be its."""
    command = ["mount", "-t", "tmpfs", "tmpfs", str(_SHARED_MEMORY)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
