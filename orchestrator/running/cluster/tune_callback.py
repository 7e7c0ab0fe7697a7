"""Passes Tune's events to the session: trials that start, their records, and lost actors."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.tune.progress_reporter import TrialProgressCallback

from orchestrator.reporting.terminal.safe_text import shortened
from orchestrator.running.cluster.gpu_slot import INFRASTRUCTURE_RETRIES, crashed
from orchestrator.running.cluster.membership import Membership
from orchestrator.running.cluster.messages import RECORD, UNHEALTHY, Assignment
from orchestrator.running.cluster.searcher import SessionSearcher, StatelessPickle
from orchestrator.running.cluster.slot_watch import SlotWatch
from orchestrator.running.session import Session


class TuneCallback(StatelessPickle, TrialProgressCallback):
    """Starts our trials on their slots, and hands every record to the session, in place of Tune's
    own progress callback, which would keep every trial and its last result in memory."""

    def __init__(
        self,
        session: Session,
        searcher: SessionSearcher,
        membership: Membership,
        watch: SlotWatch,
        environment: Mapping[str, Any],
        *,
        retries: int = INFRASTRUCTURE_RETRIES,
    ) -> None:
        super().__init__()
        self._session = session
        self._searcher = searcher
        self._membership = membership
        self._watch = watch
        self._environment = environment
        self._retries = retries
        self._losses: Counter[str] = Counter()
        """Trial id -> how often it lost its actor."""
        self._first_ended: Any = None

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A slot is ready. ``train`` follows on the actor, whose calls run in order."""
        assignment = self._assignment(trial.trial_id)
        actor = trial.temporary_state.ray_actor
        process = actor.assign.remote(assignment)
        self._watch.began(trial.trial_id, actor, process, assignment)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial has its record, or its GPU is unfit and the session takes the trials back."""
        record = result.pop(RECORD, None)  # Tune keeps the results until it ends
        if record is not None:
            self._session.ended(record)
        elif UNHEALTHY in result:
            self._session.requeue(self._searcher.forget(trial.trial_id))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Free the memory of a trial that has ended, but for what Tune, which keeps it, still
        reads."""
        self._searcher.forget(trial.trial_id)
        trial.metric_analysis.clear()  # 20 kB of statistics per trial
        trial.metric_n_steps.clear()
        trial.run_metadata.last_result = {}
        # Reading ``last_result`` makes Ray drop the actor's first message, which it held until now.
        trial.last_result.clear()
        trial.config.clear()
        trial.evaluated_params = {}
        trial.experiment_tag = ""
        self._first_ended = self._first_ended or trial
        trial.run_metadata = self._first_ended.run_metadata
        trial.storage = self._first_ended.storage

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """An actor died. Its unfinished trials start again, twice at most; then the one that it ran
        has crashed. Tune's own recovery gives up if an actor dies before the start."""
        unended = self._searcher.forget(trial.trial_id)
        if unended:
            # The actor ran the first of them. The others had not started, so they lost nothing.
            spec = unended[0]
            error = _actor_error(trial)
            self._losses[spec.trial_id] += 1
            if self._losses[spec.trial_id] > self._retries:
                self._session.ended(crashed(spec, error, self._environment))
            else:
                self._session.message(f"trial {spec.trial_id} is repeated: {error}")
        dispatched = self._session.dispatched
        self._session.requeue([spec for spec in unended if spec.trial_id in dispatched])

    def _assignment(self, tune_trial_id: str) -> Assignment:
        specs = self._searcher.start(tune_trial_id)
        model = specs[0].gpu_model if specs else None
        return Assignment(
            specs=specs,
            seconds_left=self._session.seconds_for(specs),
            may_share=model is not None and self._membership.may_share(model),
            gpu_model="" if model is None else self._membership.slots.placements[model].hardware,
        )


def _actor_error(trial: Any) -> str:
    """The last line of the error file that Tune keeps of an actor."""
    path = Path(trial.error_file or "")
    lines = path.read_text().strip().splitlines() if path.is_file() else []
    return shortened(lines[-1]) if lines else "the actor died"
