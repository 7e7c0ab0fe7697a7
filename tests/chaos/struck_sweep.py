"""One sweep under a random killer, resumed until it is complete, and what did not hold."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.storage.layout import RECORDS, TRIALS, record_files
from orchestrator.storage.record_reader import read_record
from tests.chaos.victims import STRIKES, Strike, Target

CODE = Path(__file__).parents[2]
CONFIG = """\
name: killer
model:
  task: sequence-classification
  architecture: bert
  config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2,
    intermediate_size: 64, vocab_size: 128, max_position_embeddings: 16}
data: {synthetic: {sequence_length: 16, samples: 16}}
axes:
  micro_batch: [1, 2, 4, 8]
  optimizer: [adamw_torch_fused, sgd, adafactor]
measure: {timeout: 20s}
follow_up: {profile: none}
cpu_fallback: {warmup_steps: 1, steps: 100, time_budget: 30m}
budgets: [2GiB]
"""
MOST_DRIVERS = 12
"""A sweep that is not complete after as many drivers has not gone on."""
_MARK = "CHAOS_KILLER"
_END_SECONDS = 20.0
"""How long a sweep's processes have to end after their driver."""
_CACHE = "torchinductor_"
"""What torch.compile keeps for all of a user's programs: a cache, one for each user."""
_LONGEST_PAUSE = 12.0
"""Seconds between two strikes, at most."""


@dataclass(kw_only=True)
class Struck:
    """One strike, and what followed."""

    name: str
    seconds: float = 0.0
    """Until the next record, or the driver's end."""
    statuses: list[int] = field(default_factory=list)
    """The driver's exit status, if it ended before another record."""


@dataclass(kw_only=True)
class SweepOutcome:
    """What became of one sweep. Each list has to be empty."""

    trials: int
    drivers: int = 0
    reads: int = 0
    strikes: list[Struck] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    without_row: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def wrong(self) -> Iterator[str]:
        """Everything that did not hold."""
        for name in (
            "lost",
            "repeated",
            "without_row",
            "left_over",
            "temporary",
            "hangs",
            "tracebacks",
            "unreadable",
        ):
            for what in getattr(self, name):
                yield f"{name}: {what}"

    def line(self) -> str:
        """The sweep in one line."""
        struck = ", ".join(strike.name for strike in self.strikes)
        return f"{self.trials} trials, {self.drivers} drivers, {self.reads} reads; {struck}"


class StruckSweep:
    """A sweep in a folder below ``root``."""

    def __init__(
        self, root: Path, number: int, chance: random.Random, *, deadline_seconds: float
    ) -> None:
        self._chance = chance
        self._deadline_seconds = deadline_seconds
        self._mark = uuid.uuid4().hex
        self._temporary = root / f"t{number}"
        self._temporary.mkdir(exist_ok=True)
        self._folder = root / f"run{number}"
        self._config = root / f"killer{number}.yaml"
        self._config.write_text(CONFIG)
        self._log = root / f"run{number}.log"
        self._reads = root / f"run{number}.reads"
        self._finished: dict[str, bytes] = {}
        """Trial -> its final record as it was first seen."""
        planned = plan(load_config(self._config), has_gpu=False).trials
        self._planned = [spec.trial_id for spec in planned]
        self._outcome = SweepOutcome(trials=len(self._planned))

    def run(self, strikes: int) -> SweepOutcome:
        """Run to the end with as many strikes."""
        reader = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.reader", str(self._folder), str(self._reads)],
            cwd=CODE,
            env=self._environment() | {_MARK: ""},
        )
        kinds = [self._chance.choice(STRIKES) for _ in range(strikes)]
        try:
            while not self._run_driver(kinds):
                if self._outcome.drivers >= MOST_DRIVERS:
                    self._outcome.hangs.append(f"not complete after {MOST_DRIVERS} drivers")
                    break
        finally:
            reader.terminate()
            reader.wait()
        self._judge()
        return self._outcome

    def _run_driver(self, kinds: list[Strike]) -> bool:
        """One driver, struck until ``kinds`` is empty; whether it completed the sweep."""
        resume = self._outcome.drivers > 0 and (self._folder / "run.json").exists()
        self._outcome.drivers += 1
        options = ["--resume"] if resume else []
        with open(self._log, "ab") as log:
            begin = log.tell()
            driver = subprocess.Popen(
                self._command(*options),
                cwd=CODE,
                env=self._environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._watch(driver, kinds)
        with open(self._log, "rb") as log:
            log.seek(begin)
            said = log.read().decode(errors="replace")
        if "Traceback (most recent call last)" in said:
            self._outcome.tracebacks.append(said[-1500:])
        self._await_end()
        self._see_finished()
        return driver.returncode == 0

    def _watch(self, driver: subprocess.Popen[bytes], kinds: list[Strike]) -> None:
        """Strike now and then until the driver has ended."""
        strike_at = time.monotonic() + self._chance.uniform(1, _LONGEST_PAUSE)
        progress_at = time.monotonic()
        awaiting: list[Struck] = []
        written = self._written()
        while True:
            status = driver.poll()
            now = time.monotonic()
            if self._written() != written or status is not None:
                written = self._written()
                self._see_finished()
                for struck in awaiting:
                    struck.seconds = now - progress_at
                    if status is not None:
                        struck.statuses.append(status)
                awaiting = []
                progress_at = now
            if status is not None:
                return
            if now - progress_at > self._deadline_seconds:
                self._outcome.hangs.append(f"nothing happened for {self._deadline_seconds:g} s")
                driver.kill()
            if kinds and now > strike_at and not awaiting:
                target = Target(
                    driver=psutil.Process(driver.pid),
                    folder=self._folder,
                    chance=self._chance,
                    second_driver=self._second_driver,
                )
                self._see_finished()
                if kinds[0].strike(target):
                    struck = Struck(name=kinds.pop(0).name)
                    self._outcome.strikes.append(struck)
                    awaiting.append(struck)
                    progress_at = now
                strike_at = time.monotonic() + self._chance.uniform(1, _LONGEST_PAUSE)
            time.sleep(0.05)

    def _second_driver(self) -> int:
        done = subprocess.run(
            self._command("--resume"),
            cwd=CODE,
            env=self._environment(),
            capture_output=True,
            check=False,
        )
        return done.returncode

    def _command(self, *options: str) -> list[str]:
        verb = [sys.executable, "-m", "orchestrator.sweep", str(self._config)]
        return [*verb, "--output", str(self._folder), *options]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "TMPDIR": str(self._temporary),
            "HF_HUB_OFFLINE": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            _MARK: self._mark,
        }

    def _written(self) -> frozenset[tuple[str, int]]:
        """The records that there are: name and time of writing."""
        written = set()
        for path in record_files(self._folder):
            try:
                written.add((path.name, path.stat().st_mtime_ns))
            except FileNotFoundError:
                continue
        return frozenset(written)

    def _see_finished(self) -> None:
        """Remember every final record as it was first seen."""
        for path in record_files(self._folder):
            if path.stem in self._finished:
                continue
            record = read_record(path)
            if record is not None and record.outcome.is_final:
                self._finished[path.stem] = path.read_bytes()

    def _await_end(self) -> None:
        """Wait until no process of the sweep is left; those that stay are reported and killed."""
        give_up_at = time.monotonic() + _END_SECONDS
        while (left := self._left_over()) and time.monotonic() < give_up_at:
            time.sleep(0.2)
        for process in left:
            try:
                name = f"{process.name()} ({process.status()})"
                process.kill()
            except psutil.Error:
                continue
            self._outcome.left_over.append(name)

    def _left_over(self) -> list[psutil.Process]:
        left = []
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get(_MARK) == self._mark
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    left.append(process)
            except psutil.Error:
                continue
        return left

    def _judge(self) -> None:
        outcome = self._outcome
        for trial_id, content in self._finished.items():
            path = self._folder / RECORDS / f"{trial_id}.json"
            if not path.exists():
                outcome.lost.append(f"{trial_id} was finished and is gone")
            elif path.read_bytes() != content:
                outcome.lost.append(f"{trial_id} was finished and is another record now")
        outcome.repeated += self._repeated()
        table = self._folder / TRIALS
        rows = pq.read_table(table)["trial_id"].to_pylist() if table.exists() else []
        for trial_id in self._planned:
            if rows.count(trial_id) != 1 or trial_id not in self._finished:
                outcome.without_row.append(f"{trial_id} has {rows.count(trial_id)} rows")
        for path in self._temporary.iterdir():
            if not path.name.startswith(_CACHE):
                outcome.temporary.append(path.name)
        if self._reads.exists():
            reads = json.loads(self._reads.read_text())
            outcome.reads = reads["reads"]
            outcome.unreadable += reads["failures"]

    def _repeated(self) -> Iterator[str]:
        """Trials that were started after their final record was there."""
        ended: set[str] = set()
        log = self._folder / "log.jsonl"
        for line in log.read_text().splitlines() if log.exists() else ():
            event = json.loads(line)
            if event["event"] == "ended" and event["outcome"] != "skipped":
                ended.add(event["trial_id"])
            elif event["event"] == "started" and event["trial_id"] in ended:
                yield f"{event['trial_id']} was started again at {event['time']}"
