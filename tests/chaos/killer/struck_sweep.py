"""One sweep under a random killer, resumed until it is complete, and what did not hold."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.storage.layout import record_files
from orchestrator.storage.record_reader import read_record
from tests.chaos.killer import disks
from tests.chaos.killer.judge import judge, left_in
from tests.chaos.killer.left_over import left_over
from tests.chaos.killer.outcome import Struck, SweepOutcome
from tests.chaos.killer.victims import Strike, StrikeError, Target

CODE = Path(__file__).parents[3]
CONFIG = Path(__file__).with_name("sweep.yaml")
MOST_DRIVERS = 12
"""A sweep that is not complete after as many drivers has not gone on."""
_MARK = "CHAOS_KILLER"
_LONGEST_PAUSE = 20.0
"""Seconds between two strikes, at most."""


def planned_trials() -> list[str]:
    """The ids of the trials that ``CONFIG`` plans."""
    return [spec.trial_id for spec in plan(load_config(CONFIG), has_gpu=False).trials]


class StruckSweep:
    """A sweep in a folder below ``root``."""

    def __init__(
        self,
        root: Path,
        number: int,
        chance: random.Random,
        *,
        deadline_seconds: float,
        has_mounts: bool,
        planned: Sequence[str],
    ) -> None:
        """``planned``: the ids of the trials that ``CONFIG`` plans."""
        self._chance = chance
        self._deadline_seconds = deadline_seconds
        self._has_mounts = has_mounts
        self._mark = uuid.uuid4().hex
        # Ray's sockets lie below the temporary folder, so its path has to be short.
        self._temporary = root / f"t{number}"
        self._disk = root / f"d{number}"
        self._folder = self._disk / "run"
        self._log = root / f"run{number}.log"
        self._reads = root / f"run{number}.reads"
        self._planned = planned
        self._finished: dict[str, bytes] = {}
        """Trial -> its final record as it was first seen."""
        self._outcome = SweepOutcome(trials=len(self._planned))

    def run(self, kinds: Sequence[Strike], *, evidence: Path | None = None) -> SweepOutcome:
        """Run to the end with the strikes of these kinds, in their order.

        A strike is left out if the sweep is complete before it could happen. If anything is wrong,
        ``evidence`` gets the run folder and what the drivers printed.
        """
        left = list(kinds)
        with self._disks():
            with self._reader():
                while not self._run_driver(left):
                    if self._outcome.drivers >= MOST_DRIVERS:
                        self._outcome.hangs.append(f"not complete after {MOST_DRIVERS} drivers")
                        break
            outcome = self._outcome
            judge(outcome, self._folder, planned=self._planned, finished=self._finished)
            outcome.temporary += left_in(self._temporary)
            if evidence is not None and any(outcome.wrong()):
                self._keep(evidence)
        if self._reads.exists():
            reads = json.loads(self._reads.read_text())
            outcome.reads = reads["reads"]
            outcome.unreadable += reads["failures"]
        return outcome

    def _keep(self, evidence: Path) -> None:
        kept = evidence / self._disk.name
        shutil.copytree(self._disk, kept, dirs_exist_ok=True)
        shutil.copy(self._log, kept)

    @contextlib.contextmanager
    def _disks(self) -> Iterator[None]:
        """The run folder and the temporary files have a small disk each, where that is granted."""
        with contextlib.ExitStack() as stack:
            sizes = {self._disk: disks.RUN_SIZE, self._temporary: disks.TEMPORARY_SIZE}
            for folder, size in sizes.items():
                if self._has_mounts:
                    stack.enter_context(disks.mounted(folder, size))
                else:
                    folder.mkdir()
            yield

    @contextlib.contextmanager
    def _reader(self) -> Iterator[None]:
        reader = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.chaos.killer.reader",
                str(self._folder),
                str(self._reads),
            ],
            cwd=CODE,
            env=self._environment() | {_MARK: "", "TMPDIR": str(self._disk.parent)},
        )
        try:
            yield
        finally:
            reader.terminate()
            reader.wait()

    def _run_driver(self, kinds: list[Strike]) -> bool:
        """One driver, struck until ``kinds`` is empty; whether it completed the sweep."""
        self._outcome.drivers += 1
        begin = 0
        if self._log.exists():
            begin = self._log.stat().st_size
        driver = self._start()
        awaiting = []
        if kinds and kinds[0].is_at_start:
            driver = self._start_beside(driver)
            awaiting.append(Struck(name=kinds.pop(0).name))
            self._outcome.strikes += awaiting
        self._watch(driver, kinds, awaiting)
        printed = self._log.read_bytes()[begin:].decode(errors="replace")
        if "Traceback (most recent call last)" in printed:
            self._outcome.tracebacks.append(printed[-1500:])
        self._outcome.left_over += left_over(_MARK, self._mark)
        self._see_finished()
        # A trial that met a full disk is repeated by --resume, though the driver ended well.
        return driver.returncode == 0 and set(self._planned) <= set(self._finished)

    def _start(self) -> subprocess.Popen[bytes]:
        """A driver. It resumes the sweep if there is one."""
        options = []
        if self._outcome.drivers > 1 and (self._folder / "run.json").exists():
            options.append("--resume")
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                self._command(*options),
                cwd=CODE,
                env=self._environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _start_beside(self, first: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Start another driver at the same moment; returns the one that goes on."""
        second = self._start()
        give_up_at = time.monotonic() + self._deadline_seconds
        while first.poll() is None and second.poll() is None and time.monotonic() < give_up_at:
            time.sleep(0.05)
        if first.returncode is not None:
            first, second = second, first
        if second.poll() != 1:
            self._outcome.unexpected.append(
                f"of two drivers at once, neither was refused: {second.returncode}"
            )
            second.kill()
            second.wait()
        return first

    def _watch(
        self, driver: subprocess.Popen[bytes], kinds: list[Strike], awaiting: list[Struck]
    ) -> None:
        """Strike now and then until the driver has ended.

        ``awaiting``: strikes that are followed by no record yet.
        """
        strike_at = time.monotonic() + self._chance.uniform(1, _LONGEST_PAUSE)
        progress_at = time.monotonic()
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
                progress_at = now
                driver.kill()
            if kinds and not kinds[0].is_at_start and now > strike_at and not awaiting:
                self._see_finished()
                struck = self._strike(driver, kinds)
                if struck is not None:
                    self._outcome.strikes.append(struck)
                    awaiting.append(struck)
                    progress_at = now
                strike_at = time.monotonic() + self._chance.uniform(1, _LONGEST_PAUSE)
            time.sleep(0.05)

    def _strike(self, driver: subprocess.Popen[bytes], kinds: list[Strike]) -> Struck | None:
        """Strike with the first of the kinds, and take it off; None if there was no victim."""

        def has_ended(seconds: float) -> bool:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(seconds)
                return True
            return False

        target = Target(
            driver=psutil.Process(driver.pid),
            has_ended=has_ended,
            folder=self._folder,
            run_disk=self._disk,
            temporary_disk=self._temporary,
            chance=self._chance,
            second_driver=self._second_driver,
            forget=self._finished.clear,
        )
        try:
            if not kinds[0].strike(target):
                return None
        except StrikeError as error:
            self._outcome.unexpected.append(str(error))
        return Struck(name=kinds.pop(0).name)

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
        verb = [sys.executable, "-m", "orchestrator.sweep", str(CONFIG)]
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
