"""The exhaustive search: every planned trial once, in the order of the plan."""

from collections import OrderedDict
from collections.abc import Iterable

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search


class Grid(Search):
    """A search that asks for every trial without a record, and skips none."""

    def __init__(self, trials: Iterable[TrialSpec]) -> None:
        # A plain dict would get slower with each removal of its first key.
        self._pending = OrderedDict((trial.trial_id, trial) for trial in trials)

    def ask(self) -> TrialSpec | None:
        if not self._pending:
            return None
        return self._pending.popitem(last=False)[1]

    def tell(self, record: TrialRecord) -> None:
        self._pending.pop(record.trial_id, None)

    @property
    def exhausted(self) -> bool:
        return not self._pending

    def pending(self) -> Iterable[TrialSpec]:
        """The trials that were neither asked for nor recorded, in the order of the plan."""
        return tuple(self._pending.values())
