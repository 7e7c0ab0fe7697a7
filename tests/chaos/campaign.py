"""Faults drawn by a seed, spread over sweeps, and what became of each."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.flags import SHARED, has_any
from jobs.record import Outcome, TrialRecord
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.storage.record_reader import find_records
from tests.chaos import judge, page
from tests.chaos.arena import ROOT, Arena
from tests.chaos.control import Control
from tests.chaos.kinds import KINDS, Kind
from tests.chaos.scene import WAIT_SECONDS, Scene, UnexpectedError

CONFIG = """\
name: chaos
model:
  task: sequence-classification
  architecture: bert
  # A shipped model, whose parameters need no count.
  config: {{hidden_size: 128, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 512}}
data: {{synthetic: {{sequence_length: 16, samples: 16}}}}
axes:
  micro_batch: [1, 2, 4, 8]
  activations: [keep, checkpoint]
  optimizer: [{optimizers}]
measure: {{timeout: {timeout}s, relative_error: 0}}
follow_up: {{profile: none}}
cpu_fallback: {{warmup_steps: 1, steps: 2}}
resources: {{screen_gpus: false}}
budgets: [2GiB]
"""
OPTIMIZERS = ("adamw_torch_fused", "sgd", "adafactor")
"""The axis that decides how many trials a sweep has; one is enough for a few faults."""
HANGING_SECONDS = 15.0
"""The timeout of trials that hang."""
AT_ONCE = 15
"""Faults in one sweep."""
CHECKS: Mapping[str, str] = {
    "lost": "finished trials lost or changed, or another program's files touched",
    "without_row": "planned trials without exactly one row, in the records or in the table",
    "repeated": "trials begun again after their record was written",
    "different": "records different from the undisturbed sweep's, of trials that were not struck",
    "effect": "faults with another effect than in the table below",
}
"""What must not be."""
_OF_THE_MOMENT = {
    "gpu_uuid",
    "overhead_seconds",
    "gpu_used_before_bytes",
    "gpu_foreign_processes",
    "flags",
    "flag_values",
}
"""Measurements that say where a trial ran, and beside whom."""


@dataclass(kw_only=True)
class Fault:
    """One fault: of which kind, in which phase of which trial, and what became of it."""

    kind: Kind
    phase: str
    trial_id: str = ""
    struck_at: float | None = None
    earlier: int = 0
    """How often earlier faults had made the trial begin again."""
    repeats: int = 0
    """How often later faults may have made the trial begin again."""
    outcome: str = ""
    """Of its trial; empty until the fault has had its effect."""
    seconds: float = 0.0
    """From the strike to the trial's record."""


@dataclass(kw_only=True)
class SweepResult:
    """What became of a sweep, and by the names of ``CHECKS`` everything that must not be."""

    trials: int
    faults: list[Fault] = field(default_factory=list)
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def draw(seed: int, count: int, kinds: Sequence[Kind]) -> list[Fault]:
    """What a trial does to itself, in every phase; then each other kind once; then by weight."""
    chance = random.Random(seed)
    inside = [(kind, phase) for kind in kinds if not kind.strike for phase in kind.phases]
    chance.shuffle(inside)
    outside = [kind for kind in kinds if kind.strike]
    drawn = chance.sample(outside, len(outside))
    if outside:
        missing = max(0, count - len(inside) - len(drawn))
        drawn += chance.choices(outside, [kind.weight for kind in outside], k=missing)
    pairs = [*inside, *((kind, chance.choice(kind.phases)) for kind in drawn)][:count]
    return [Fault(kind=kind, phase=phase) for kind, phase in pairs]


class Campaign:
    """The sweeps that carry the drawn faults, on one arena."""

    def __init__(self, arena: Arena, seed: int, say: Callable[[str], None], faults: int) -> None:
        self._arena = arena
        self._chance = random.Random(seed)
        self._say = say
        self._optimizers = OPTIMIZERS[: max(1, faults // 3)]
        trials = plan(load_config(self._config(WAIT_SECONDS)), has_gpu=True).trials
        self._planned = [trial.trial_id for trial in trials]
        self._sweeps = 0
        self._undisturbed: Mapping[str, TrialRecord] = {}

    def _config(self, timeout_seconds: float) -> Path:
        """The sweep's YAML file. A trial's timeout is no part of its identity."""
        path = ROOT / f"chaos-{timeout_seconds:g}.yaml"
        optimizers = ", ".join(self._optimizers)
        path.write_text(CONFIG.format(timeout=f"{timeout_seconds:g}", optimizers=optimizers))
        return path

    def run(self, faults: Sequence[Fault]) -> Iterator[SweepResult]:
        """One undisturbed sweep, then sweeps until all faults have struck.

        What a trial does to itself comes first, with a short timeout for those that hang. Trials
        that other faults strike may have to wait for long.
        """
        yield self._sweep([], WAIT_SECONDS)
        while waiting := [fault for fault in faults if not fault.outcome]:
            inside = [fault for fault in waiting if not fault.kind.strike]
            batch = (inside or waiting)[:AT_ONCE]
            # On some of the first trials, so that undisturbed ones follow. A fault that ends the
            # driver comes last, because it ends all others, too; one that must strike several
            # times comes first.
            batch.sort(key=lambda fault: (fault.kind.is_last, not fault.kind.always))
            first_trials = self._planned[: len(self._planned) * 3 // 4]
            chosen = set(self._chance.sample(first_trials, len(batch)))
            in_order = [trial_id for trial_id in first_trials if trial_id in chosen]
            for fault, trial_id in zip(batch, in_order, strict=True):
                fault.trial_id = trial_id
                fault.struck_at = None
                fault.earlier = fault.repeats = 0
            result = self._sweep(batch, HANGING_SECONDS if inside else WAIT_SECONDS)
            yield result
            if not result.faults:
                raise UnexpectedError(f"no fault struck: {dict(result.wrong)}")

    def _sweep(self, faults: Sequence[Fault], timeout_seconds: float) -> SweepResult:
        control = self._arena.control
        result = SweepResult(trials=len(self._planned))
        control.clear()
        by_trial = {fault.trial_id: fault for fault in faults}
        for trial_id, fault in by_trial.items():
            act = {"act": fault.kind.act, "always": fault.kind.always}
            control.write(f"armed/{trial_id}", {"phase": fault.phase, **act})
        self._sweeps += 1
        scene = Scene(self._arena, self._config(timeout_seconds), f"sweep{self._sweeps}")
        first_seen: dict[str, bytes] = {}
        scene.start()
        try:
            while scene.driver.poll() is None:
                if (victim := control.victim()) is not None:
                    scene.victim = victim
                    self._strike(scene, by_trial)
                    first_seen = judge.final_records(scene.folder) | first_seen
                self._settle(scene, faults, result)
                time.sleep(0.02)
            scene.ends(0)
        except UnexpectedError as error:
            result.wrong["different"].append(str(error))
            scene.kill_driver()
            self._arena.restart()
            return result
        self._settle(scene, faults, result)
        result.wrong["lost"] += judge.lost(scene.folder, first_seen)
        for path, content in scene.planted.items():
            if path.read_bytes() != content:
                result.wrong["lost"].append(f"{path.name} is another program's and was changed")
        result.wrong["without_row"] += judge.without_row(scene.folder, self._planned)
        result.wrong["repeated"] += _repeated(scene)
        records = {record.trial_id: record for record in find_records(scene.folder).records}
        if not faults:
            # Which follow-ups run depends on speeds, so only trials of the plan are compared.
            self._undisturbed = {name: records[name] for name in self._planned if name in records}
        hurt = {fault.trial_id: fault.kind.outcome for fault in result.faults}
        result.wrong["different"] += _unflagged(control, self._arena.nodes, records)
        result.wrong["different"] += _different(records, self._undisturbed, hurt)
        return result

    def _strike(self, scene: Scene, by_trial: Mapping[str, Fault]) -> None:
        """Let the fault happen to the trial that stands still."""
        fault = by_trial[scene.victim.trial_id]
        kind = fault.kind
        self._say(f"{kind.name}, in {fault.phase} of {fault.trial_id} on {scene.victim.node}")
        for other in by_trial.values():
            if other.struck_at is not None and not other.outcome:
                other.repeats += kind.starts - 1
        if fault.struck_at is None:
            fault.earlier = len(scene.control.starts(fault.trial_id)) - 1
            fault.struck_at = time.monotonic()
        assert kind.strike is not None
        kind.strike(scene)
        scene.release()

    def _settle(self, scene: Scene, faults: Sequence[Fault], result: SweepResult) -> None:
        """See what became of the faults whose trials have their record by now."""
        for fault in faults:
            is_open = not fault.outcome and (fault.struck_at is not None or not fault.kind.strike)
            record = scene.record(fault.trial_id) if is_open else None
            if record is None:
                continue
            kind, where = fault.kind, f"{fault.kind.name} in {fault.phase}"
            fault.outcome = record.outcome.value
            if fault.struck_at is not None:
                fault.seconds = time.monotonic() - fault.struck_at
            result.faults.append(fault)
            wrong = result.wrong["effect"]
            if record.outcome is not kind.outcome or kind.reason not in record.reason:
                wrong.append(f"{where}: its record is {record.outcome}, {record.reason}")
            is_hurt = record.outcome is not Outcome.OK and not kind.always
            if is_hurt and record.phase != fault.phase:
                wrong.append(f"{where}: its record's phase is {record.phase}")
            starts = len(scene.control.starts(fault.trial_id)) - fault.earlier
            if not kind.starts <= starts <= kind.starts + fault.repeats:
                wrong.append(f"{where}: begun {starts} times, not {kind.starts}")


def _repeated(scene: Scene) -> Iterator[str]:
    """Trials that were begun once more after their record was final."""
    for trial_id in judge.final_records(scene.folder):
        written = (scene.folder / "records" / f"{trial_id}.json").stat().st_mtime
        for at, node in scene.control.starts(trial_id):
            if at > written:
                yield f"{trial_id} was begun on {node} {at - written:.1f} s after its record"


def _unflagged(
    control: Control, nodes: Mapping[str, object], records: Mapping[str, TrialRecord]
) -> Iterator[str]:
    """Records measured on a shared GPU that do not say so."""
    for node in nodes:
        if control.read(f"gpus/{node}") != "foreign":
            continue
        since = (control.folder / f"gpus/{node}").stat().st_mtime
        for trial_id, record in records.items():
            row = record.measurements
            was_here = row.get("gpu_uuid", "").endswith(f"-{node}") and record.started_at > since
            if was_here and "flags" in row and not has_any(record.flags, SHARED):
                yield f"{trial_id} was measured on {node}'s shared GPU, and has no flag for it"


def _different(
    records: Mapping[str, TrialRecord],
    undisturbed: Mapping[str, TrialRecord],
    hurt: Mapping[str, Outcome],
) -> Iterator[str]:
    """Trials whose record is not the undisturbed sweep's.

    Those in ``hurt`` have to have that outcome instead.
    """
    for trial_id, before in undisturbed.items():
        now, expected = records.get(trial_id), hurt.get(trial_id, Outcome.OK)
        if now is None or now.outcome is not expected:
            yield f"{trial_id} is {now and (now.outcome, now.reason)}, not {expected}"
        elif expected is Outcome.OK:
            for name in before.measurements.keys() - _OF_THE_MOMENT:
                value, was = now.measurements.get(name), before.measurements[name]
                if value != was:
                    yield f"{trial_id}: {name} is {value}, undisturbed {was}"


def table(results: Sequence[SweepResult], drawn: int) -> Iterator[str]:
    """Markdown: what held, then a row for each kind of fault. ``drawn`` are to strike in all."""
    faults = [fault for result in results for fault in result.faults]
    trials = sum(result.trials for result in results)
    kinds = len({fault.kind.name for fault in faults})
    struck = f"{len(faults)} of {drawn} faults, of {kinds} kinds"
    yield f"{struck}, in {len(results)} sweeps of {trials} trials together."
    yield from page.checks(CHECKS, [result.wrong for result in results])
    yield "| fault | times | what becomes of it | records of the trials | longest until then |"
    yield "| --- | ---: | --- | --- | ---: |"
    for kind in KINDS:
        own = [fault for fault in faults if fault.kind is kind]
        if own:
            counts = Counter(fault.outcome for fault in own).items()
            rows = ", ".join(f"{count} {outcome}" for outcome, count in counts)
            longest = max(fault.seconds for fault in own)
            until = f"{longest:.1f} s" if kind.strike else ""
            yield f"| {kind.name} | {len(own)} | {kind.answer} | {rows} | {until} |"
