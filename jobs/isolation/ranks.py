"""The processes of one trial, a rank each, from their parent's side: what ends one ends all."""

import json
import shutil
import socket
import tempfile
import time
from pathlib import Path

from jobs.isolation.child_handle import Child, wait_for
from jobs.node.process_group import rank_variables
from jobs.node.processes import standstill
from jobs.rank_records import merged
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec, from_json

LAST_WORDS_SECONDS = 5.0
"""How long a trial whose time is up may take to write down what it has measured."""


class Ranks:
    """The processes of a trial, rank 0's first; most trials have only that one."""

    def __init__(self, world_size: int, folder: Path) -> None:
        """Raises OSError if there is no room in ``folder`` for what the ranks share."""
        self._children: list[Child] = []
        self._blamed: int | None = None
        """The rank that decides how the trial ended; None: not known, or all ended well."""
        self._shared: Path | None = None
        self.variables: list[dict[str, str]] = [{}]
        if world_size > 1:
            self._shared = Path(tempfile.mkdtemp(prefix="ranks-", dir=folder))
            self.variables = rank_variables(world_size, self._shared)

    def add(self, child: Child) -> None:
        """The process of the next rank, from 0."""
        self._children.append(child)

    def begin(self, spec: TrialSpec, context_bytes: int) -> None:
        """Give each its trial. GPUs of one model have contexts of one size."""
        for child, variables in zip(self._children, self.variables, strict=True):
            child.begin(spec, context_bytes, variables)

    def wait(self, deadline: float, owner: socket.socket) -> bool:
        """Wait for all results, or for the first failure; False at ``deadline``."""
        in_time = wait_for(self._children, self._is_over, deadline, owner)
        if self._shared is None and not in_time:
            # What a single process has measured so far is worth a moment.
            self.decisive.ask_to_end()
            wait_for(self._children, self._is_over, deadline + LAST_WORDS_SECONDS, owner)
        if self._shared is not None:
            if in_time and Outcome.FAILED in map(_outcome, self._children):
                # A rank whose partner is gone fails, too. The partner, the cause, may still end.
                until = min(deadline, time.monotonic() + 5.0)
                wait_for(self._children, self._all_are_done, until, owner)
            self._blamed = self._culprit() if in_time else self._straggler()
        return in_time

    def _is_over(self) -> bool:
        return self._all_are_done() or any(map(_has_failed, self._children))

    def _all_are_done(self) -> bool:
        return all(child.is_done for child in self._children)

    def _culprit(self) -> int | None:
        """The rank that failed first, as far as that shows; None if none did."""

        def place(rank: int) -> tuple[bool, bool, float]:
            child = self._children[rank]
            outcome = _outcome(child)
            written = 0.0 if outcome is None else child.result.stat().st_mtime
            # Only what is no consequence of a lost partner has an outcome of its own.
            return outcome is not None, outcome is Outcome.FAILED, written

        ranks = range(len(self._children))
        failed = [rank for rank in ranks if _has_failed(self._children[rank])]
        return min(failed, key=place, default=None)

    def _straggler(self) -> int | None:
        """The rank that the others wait for: it stands still, or has come less far."""
        still = [rank for rank, child in enumerate(self._children) if standstill(child.pid)]
        progress = [child.progress for child in self._children]
        behind = [rank for rank, count in enumerate(progress) if count < max(progress)]
        return next(iter(still or behind), None)

    @property
    def record(self) -> TrialRecord | None:
        """The trial's record; None if the rank that ended the trial has left none."""
        records = list(map(_record, self._children))
        if self._blamed is not None or None in records:
            return records[self._blamed or 0]
        return merged(list(filter(None, records)))

    @property
    def prefix(self) -> str:
        """What begins the reason of a trial of several ranks that did not end well."""
        if self._shared is None or self._blamed is None:
            return ""
        return f"rank {self._blamed}{standstill(self.decisive.pid)}: "

    @property
    def busy_seconds(self) -> float:
        return self._children[0].busy_seconds

    def kill(self) -> None:
        for child in self._children:
            child.kill()

    def reap(self) -> int:
        """Wait for all ends and remove all folders; returns the status of the deciding rank."""
        statuses = [child.reap() for child in self._children]
        if self._shared is not None:
            shutil.rmtree(self._shared, ignore_errors=True)
        return statuses[self._blamed or 0] if statuses else 0

    @property
    def decisive(self) -> Child:
        """The process that decides how the trial ended."""
        return self._children[self._blamed or 0]


def _has_failed(child: Child) -> bool:
    return child.is_done and _outcome(child) is not Outcome.OK


def _outcome(child: Child) -> Outcome | None:
    """The outcome in its result; None without one."""
    record = _record(child)
    return None if record is None else record.outcome


def _record(child: Child) -> TrialRecord | None:
    if not child.result.exists():
        return None
    return from_json(TrialRecord, json.loads(child.result.read_text()))
