"""A slot on a real Ray whose trials take no time, for tests of what happens around trials."""

from dataclasses import replace
from typing import Any

from ray import tune

from jobs.spec import TrialSpec
from orchestrator.running.cluster.messages import RECORD, Assignment
from tests.conftest import build_tiny_spec
from tests.support.records import make_record


def equal_trials(count: int) -> list[TrialSpec]:
    """Trials that are equal but for their number."""
    return [build_tiny_spec(repeat=number) for number in range(count)]


class StandInSlot(tune.Trainable):
    """Answers every trial with the same invented measurements."""

    def setup(self, config: dict[str, Any]) -> None:
        self.specs = config.get("specs", ())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.specs = new_config.get("specs", ())
        return True

    def assign(self, assignment: Assignment) -> None:
        self.specs = assignment.specs

    def step(self) -> dict[str, Any]:
        if not self.specs:
            return {"done": True}
        return {RECORD: replace(make_record(), spec=self.specs[0]), "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None
