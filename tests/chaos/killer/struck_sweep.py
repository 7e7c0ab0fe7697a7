"""One sweep under a random killer, resumed until it is complete, and what did not hold."""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from orchestrator.analysis.dataset import load_dataset
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.reporting import markdown
from orchestrator.reporting.html import page
from orchestrator.reporting.report import Report
from orchestrator.running.observers.event_log import LOG
from orchestrator.storage import layout
from tests.chaos import judge
from tests.chaos.killer.outcome import Struck, SweepOutcome
from tests.chaos.killer.victims import Strike, StrikeError
from tests.support.disks import mounted

CODE = Path(__file__).parents[3]
CONFIG = Path(__file__).with_name("sweep.yaml")
DEADLINE_SECONDS = 500.0
"""How long nothing may happen: no record is written and the driver does not end.

The limits of docs/reliability.md, one after the other: a slot is given up after twice the trial's
timeout and two minutes, no other slot starts for five minutes, and Ray shuts down."""
MOST_DRIVERS = 12
"""A sweep that is not complete after as many drivers has not gone on."""
END_SECONDS = 20.0
"""How long a sweep's processes have to end after their driver."""
_LONGEST_PAUSE = 20.0
"""Seconds between two strikes, at most."""
_MARK = "CHAOS_KILLER"
"""Environment variable of all processes of a sweep."""


def planned_trials() -> list[str]:
    return [spec.trial_id for spec in plan(load_config(CONFIG), has_gpu=False).trials]


class StruckSweep:
    """A sweep of the ``planned`` trials in a folder below ``root``."""

    driver: subprocess.Popen[bytes]

    def __init__(
        self,
        root: Path,
        number: int,
        chance: random.Random,
        planned: Sequence[str],
        *,
        has_mounts: bool,
    ) -> None:
        self.chance = chance
        self._planned = planned
        self._has_mounts = has_mounts
        self._mark = uuid.uuid4().hex
        # Ray's sockets lie below the temporary folder, so its path has to be short.
        self.temporary_disk = root / f"t{number}"
        self._disk = root / f"d{number}"
        self.folder = self._disk / "run"
        """The only one on its disk."""
        self._log = root / f"run{number}.log"
        self.finished: dict[str, bytes] = {}
        """Trial -> its final record as it was first seen."""
        self.outcome = SweepOutcome(trials=len(planned))

    def run(self, kinds: Sequence[Strike]) -> SweepOutcome:
        """Run to the end with the strikes of these kinds, in their order.

        A strike is left out if the sweep is complete before it could happen.
        """
        left = list(kinds)
        wrong = self.outcome.wrong
        with contextlib.ExitStack() as stack:
            for folder, size in ((self._disk, 2**26), (self.temporary_disk, 2**28)):
                folder.mkdir()
                if self._has_mounts:
                    stack.enter_context(mounted(folder, size))
            with self._reader():
                while not self._run_driver(left):
                    if self.outcome.drivers >= MOST_DRIVERS:
                        wrong["hangs"].append(f"not complete after {MOST_DRIVERS} drivers")
                        break
            wrong["lost"] += judge.lost(self.folder, self.finished)
            wrong["without_row"] += judge.without_row(self.folder, self._planned)
            wrong["repeated"] += _repeated(self.folder / LOG)
            # torch.compile keeps a cache for all of a user's programs.
            left_names = [path.name for path in self.temporary_disk.iterdir()]
            wrong["temporary"] += [n for n in left_names if not n.startswith("torchinductor_")]
        return self.outcome

    @contextlib.contextmanager
    def _reader(self) -> Iterator[None]:
        """Open the tables and render the report again and again while the context lasts."""
        is_over = threading.Event()

        def read() -> None:
            while not is_over.wait(0.5):
                try:
                    self._read(with_page=self.outcome.reads % 10 == 0)  # a page costs a second
                    self.outcome.reads += 1
                except FileNotFoundError:
                    continue  # nothing is written yet, or the folder has another name for a moment
                except Exception:
                    self.outcome.wrong["unreadable"].append(traceback.format_exc()[-2000:])

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield
        finally:
            is_over.set()
            reader.join()

    def _read(self, *, with_page: bool) -> None:
        for name in (layout.TRIALS, layout.STEPS, layout.ANATOMY, layout.FRONTIER):
            if (self.folder / name).exists():
                pq.read_table(self.folder / name)
        report = Report(dataset=load_dataset(self.folder))
        markdown.render(report)
        if with_page:
            page.render(report)

    def _run_driver(self, kinds: list[Strike]) -> bool:
        """One driver, struck until ``kinds`` is empty; whether it completed the sweep."""
        self.outcome.drivers += 1
        begin = self._log.stat().st_size if self._log.exists() else 0
        self.driver = self.start()
        awaiting = []
        if kinds and kinds[0].is_at_start:
            self._start_beside()
            awaiting.append(Struck(name=kinds.pop(0).name))
            self.outcome.strikes += awaiting
        self._watch(kinds, awaiting)
        printed = self._log.read_bytes()[begin:].decode(errors="replace")
        if "Traceback (most recent call last)" in printed:
            self.outcome.wrong["tracebacks"].append(printed[-1500:])
        self.outcome.wrong["left_over"] += _left_over(self._mark)
        self._see_finished()
        # A trial that met a full disk is repeated by --resume, though the driver ended well.
        return self.driver.returncode == 0 and set(self._planned) <= set(self.finished)

    def start(self) -> subprocess.Popen[bytes]:
        """A driver. It resumes the sweep if there is one."""
        command = [sys.executable, "-m", "orchestrator.sweep", str(CONFIG)]
        command += ["--output", str(self.folder)]
        if self.outcome.drivers > 1 and self.is_begun:
            command.append("--resume")
        own = {
            "TMPDIR": str(self.temporary_disk),
            "HF_HUB_OFFLINE": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            _MARK: self._mark,
        }
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                command,
                cwd=CODE,
                env=os.environ | own,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_begun(self) -> bool:
        return (self.folder / "run.json").exists()

    def has_ended(self, seconds: float) -> bool:
        """Whether the driver has ended, or ends within so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.driver.wait(seconds)
        return self.driver.returncode is not None

    def _start_beside(self) -> None:
        """Start another driver at the same moment; one of the two has to go on."""
        first, second = self.driver, self.start()
        give_up_at = time.monotonic() + DEADLINE_SECONDS
        while first.poll() is None and second.poll() is None and time.monotonic() < give_up_at:
            time.sleep(0.05)
        if first.returncode is not None:
            first, second = second, first
        if second.poll() != 1:
            self.outcome.wrong["unexpected"].append(
                f"of two drivers at once, neither was refused: {second.returncode}"
            )
            second.kill()
            second.wait()
        self.driver = first

    def _watch(self, kinds: list[Strike], awaiting: list[Struck]) -> None:
        """Strike now and then until the driver has ended.

        ``awaiting``: strikes that are followed by no record yet.
        """
        strike_at = time.monotonic() + self.chance.uniform(1, _LONGEST_PAUSE)
        progress_at = time.monotonic()
        written = self._written()
        status = None
        while status is None:
            time.sleep(0.05)
            status = self.driver.poll()
            now = time.monotonic()
            if self._written() != written or status is not None:
                written = self._written()
                self._see_finished()
                for struck in awaiting:
                    struck.seconds = now - progress_at
                    struck.status = status
                awaiting = []
                progress_at = now
            elif now - progress_at > DEADLINE_SECONDS:
                self.outcome.wrong["hangs"].append(f"nothing for {DEADLINE_SECONDS:g} s")
                progress_at = now
                self.driver.kill()
            elif kinds and now > strike_at and not awaiting:
                self._see_finished()
                if self._strike(kinds[0]):
                    awaiting = [Struck(name=kinds.pop(0).name)]
                    self.outcome.strikes += awaiting
                    progress_at = now
                strike_at = time.monotonic() + self.chance.uniform(1, _LONGEST_PAUSE)

    def _strike(self, kind: Strike) -> bool:
        """Strike; whether there was a victim."""
        try:
            return kind.strike(self)
        except StrikeError as error:
            self.outcome.wrong["unexpected"].append(str(error))
            return True

    def _written(self) -> frozenset[tuple[str, int]]:
        """The records that there are: name and time of writing."""
        written = set()
        for path in layout.record_files(self.folder):
            with contextlib.suppress(FileNotFoundError):
                written.add((path.name, path.stat().st_mtime_ns))
        return frozenset(written)

    def _see_finished(self) -> None:
        """Remember every final record as it was first seen."""
        self.finished = judge.final_records(self.folder) | self.finished


def _repeated(log: Path) -> Iterator[str]:
    """Trials that were started after their final record was there, according to the sweep's log."""
    ended: set[str] = set()
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            event = json.loads(line)
        except ValueError:  # a full disk cut the line
            continue
        if event["event"] == "ended" and event["outcome"] != "skipped":
            ended.add(event["trial_id"])
        elif event["event"] == "started" and event["trial_id"] in ended:
            yield f"{event['trial_id']} was started again at {event['time']}"


def _left_over(mark: str) -> Iterator[str]:
    """What did not end in time of a sweep's processes, in words; it is killed."""
    give_up_at = time.monotonic() + END_SECONDS
    while (left := _marked(mark)) and time.monotonic() < give_up_at:
        time.sleep(0.2)
    for process in left:
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())[:300]
            yield f"{process.name()} ({process.status()}): {command}"
            process.kill()


def _marked(mark: str) -> list[psutil.Process]:
    """Every living process of a sweep, stopped ones too."""
    listed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_alive = process.status() != psutil.STATUS_ZOMBIE
            if is_alive and process.environ().get(_MARK) == mark:
                listed.append(process)
    return listed
