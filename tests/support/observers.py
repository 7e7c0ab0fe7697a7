"""An observer that remembers its calls."""

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.observers import Observer


class Recorder(Observer):
    """Keeps every event: its kind, and the trial's id or the message."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    @property
    def messages(self) -> list[str]:
        return [text for kind, text in self.events if kind == "message"]

    def started(self, spec: TrialSpec) -> None:
        self.events.append(("started", spec.trial_id))

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        self.events.append(("ended" if measured else "settled", record.trial_id))

    def message(self, text: str) -> None:
        self.events.append(("message", text))

    def closed(self) -> None:
        self.events.append(("closed", ""))
