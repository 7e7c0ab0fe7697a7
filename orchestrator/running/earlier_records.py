"""Earlier records in the run folder: the current plan uses some, and the others are moved aside."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.nodes import Cluster, NoSuchGpuError
from orchestrator.storage.layout import TRIALS
from orchestrator.storage.run_folder import RunFolder
from orchestrator.units import count

_KEPT_BY_A_SECOND_RUN = (Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.UNSUPPORTED)
"""Outcomes that stay when the same command runs again; with ``--resume`` all but SKIPPED do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierRecords:
    """What was decided about the earlier records of a run folder."""

    wanted: Mapping[str, TrialRecord] = field(default_factory=dict)
    """Trial id -> its record, if today's plan has the trial and the cluster has its GPU model."""
    of_absent_models: Mapping[str, int] = field(default_factory=dict)
    """GPU model that the cluster lacks today -> how many of its records stay in the folder."""
    superseded: int = 0
    """How many records were moved aside."""
    tables: int = 0
    """How many tables were moved aside."""
    moved_to: str = ""
    is_fresh: bool = False
    """Whether the user asked for everything to be measured again."""

    def sentences(self, environments: Sequence[Mapping[str, Any]] = ()) -> Iterator[str]:
        """What the user should know of records that today's search, in ``environments``, does not
        use."""
        for gpu_model, amount in self.of_absent_models.items():
            kept = count(amount, "record")
            yield f"{kept} of {gpu_model} stay in the run: no such GPU is there today"
        if self.superseded:
            moved = count(self.superseded, "earlier record")
            if not self.is_fresh:
                moved += " of another plan"
            yield f"{moved}: moved to {self.moved_to}, not deleted"
        elif self.tables:
            moved = count(self.tables, "table")
            yield f"{moved} of rows whose records are gone: moved to {self.moved_to}, not deleted"
        if environments:
            yield from self._of_other_environments(environments)

    def _of_other_environments(self, environments: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """A sentence that names what differs from the first of today's environments."""
        finals = (record.environment for record in self.wanted.values() if record.outcome.is_final)
        outdated = [environment for environment in finals if environment not in environments]
        today = environments[0]
        differing = {
            name
            for earlier in outdated
            for name in {*earlier, *today}
            if earlier.get(name) != today.get(name)
        }
        if outdated:
            yield (
                f"{count(len(outdated), 'row')} measured in another environment"
                f" ({', '.join(sorted(differing))}): measured again; each earlier row moves to"
                " superseded/ when its new one is written"
            )


def refuse_without_gpu(folder: RunFolder, cluster: Cluster, *, fresh: bool) -> None:
    """Raises NoSuchGpuError if the run was measured on GPUs and the cluster has none. Else a login
    node, or a broken driver, would supersede every earlier row."""
    if cluster.gpus or fresh:
        return
    # A batch-size run on several GPU models has a folder for each.
    folders = map(RunFolder, (folder.path, *folder.path.glob("*/")))
    records = (record for one in folders for record in one.records().values())
    models = [_gpu_model_of(record) for record in records if record.outcome.is_final]
    if models := [model for model in models if model]:
        rows = count(len(models), "row")
        raise NoSuchGpuError(
            f"{folder.path} has {rows} measured on {', '.join(sorted(set(models)))}, and no GPU is"
            " seen here: check nvidia-smi and --address; to measure on the CPU choose another"
            " --output, or --fresh, which moves the rows aside"
        )


def sort_earlier(
    folder: RunFolder,
    is_wanted: Callable[[TrialSpec], bool],
    *,
    fresh: bool = False,
    hardware: Mapping[str, str] | None = None,
) -> EarlierRecords:
    """Decide on every record of the folder. Those of another plan move into ``superseded/``.

    Trials name a GPU model, as ``hardware`` maps it to its name, only if the sweep covers several.
    So trial ids change when the cluster gets a second model, or loses it, and records are renamed.
    """
    sorting = _Sorting(folder, hardware or {}, is_wanted)
    if fresh:
        sorting = _Sorting(folder, {}, lambda _: False)
    # A follow-up names other trials, so their new ids are decided first.
    for record in sorted(folder.records().values(), key=lambda own: own.spec.follow_up is not None):
        sorting.decide(record)
    return sorting.finish(is_fresh=fresh)


class _Sorting:
    """Decides on one record after another, and then carries all decisions out."""

    def __init__(
        self, folder: RunFolder, hardware: Mapping[str, str], is_wanted: Callable[[TrialSpec], bool]
    ) -> None:
        self._folder = folder
        self._is_wanted = is_wanted
        self._todays_names = {name: gpu_model for gpu_model, name in hardware.items()}
        """Name of a GPU model in the cluster -> the ``gpu_model`` of today's trials for it."""
        self._new_ids: dict[str, str] = {}
        """Earlier trial id -> today's id of the same trial."""
        self._superseded: list[str] = []
        self._renamed: list[tuple[str, TrialRecord]] = []
        self._wanted: dict[str, TrialRecord] = {}
        self._absent = Counter[str]()

    def decide(self, record: TrialRecord) -> None:
        """Sort the record: it is wanted, or of an absent GPU model, or superseded."""
        measured_on = _gpu_model_of(record)
        renamed = record
        if measured_on and self._todays_names:
            # A record of an absent model keeps the name of its model. With the name "", its trial
            # id could be that of another model's trial.
            todays_name = self._todays_names.get(measured_on, measured_on)
            renamed = self._with_gpu_model(record, todays_name)
        self._new_ids[record.trial_id] = renamed.trial_id
        is_absent = bool(self._todays_names) and measured_on not in (*self._todays_names, "")
        if is_absent and self._is_wanted_on_any_model(record):
            self._absent[measured_on] += 1
            self._renamed.append((record.trial_id, renamed))
        elif not is_absent and self._is_wanted(renamed.spec):
            self._renamed.append((record.trial_id, renamed))
            self._wanted[renamed.trial_id] = renamed
        else:
            self._superseded.append(record.trial_id)

    def finish(self, *, is_fresh: bool) -> EarlierRecords:
        """Carry the decisions out. Raises RunFolderError."""
        # Superseded records are moved first, so that no renamed record overwrites one of them.
        for trial_id in self._superseded:
            self._folder.set_aside(trial_id)
        for earlier_id, record in _without_collisions(self._renamed):
            written = self._folder.rename(record, earlier_id)
            if written.trial_id in self._wanted:
                self._wanted[written.trial_id] = written
        # The tables still hold the rows of superseded records, so the tables move as well.
        has_records = bool(self._wanted or self._absent)
        if self._superseded or (not has_records and (self._folder.path / TRIALS).exists()):
            self._folder.set_tables_aside()
        return EarlierRecords(
            wanted=self._wanted,
            of_absent_models=self._absent,
            superseded=len(self._superseded),
            tables=self._folder.superseded.tables,
            moved_to=str(self._folder.superseded.path or ""),
            is_fresh=is_fresh,
        )

    def _with_gpu_model(self, record: TrialRecord, gpu_model: str) -> TrialRecord:
        """The record with this ``gpu_model`` and, in a follow-up, today's ids of other trials."""
        follow_up = record.spec.follow_up
        if follow_up is not None:
            ids = self._new_ids
            follow_up = dataclasses.replace(
                follow_up,
                follows_trial=ids.get(follow_up.follows_trial, follow_up.follows_trial),
                compared_with=tuple(ids.get(name, name) for name in follow_up.compared_with),
            )
        spec = dataclasses.replace(record.spec, gpu_model=gpu_model, follow_up=follow_up)
        return dataclasses.replace(record, spec=spec)

    def _is_wanted_on_any_model(self, record: TrialRecord) -> bool:
        """Whether today's plan has the trial for any GPU model, or what the follow-up follows."""
        follow_up = record.spec.follow_up
        if follow_up is not None:
            kept = {record.trial_id for _, record in self._renamed}
            return self._new_ids.get(follow_up.follows_trial) in kept
        models = self._todays_names.values()
        specs = (dataclasses.replace(record.spec, gpu_model=gpu_model) for gpu_model in models)
        return any(map(self._is_wanted, specs))


def _without_collisions(
    renamed: list[tuple[str, TrialRecord]],
) -> Iterator[tuple[str, TrialRecord]]:
    """The renames, ordered so that each new id is free by the time it is taken."""
    waiting = [(old, record) for old, record in renamed if old != record.trial_id]
    while waiting:
        taken = {old for old, _ in waiting}
        free = [entry for entry in waiting if entry[1].trial_id not in taken]
        # Two records that swap their ids have no such order. The folder then moves one aside.
        yield from free or waiting
        if not free:
            return
        waiting = [entry for entry in waiting if entry not in free]


def is_reusable(
    record: TrialRecord, environments: Collection[Mapping[str, Any]], *, resume: bool
) -> bool:
    """Whether a final record takes the place of a measurement in one of ``environments``."""
    if record.environment not in environments:
        return False
    return resume or record.outcome in _KEPT_BY_A_SECOND_RUN


def _gpu_model_of(record: TrialRecord) -> str:
    return str(record.environment.get("gpu_model") or "")
