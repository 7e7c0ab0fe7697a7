"""Faults drawn by a seed, spread over sweeps, and what became of each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.storage.record_reader import read_records
from tests.chaos import judge
from tests.chaos.arena import ROOT, Arena
from tests.chaos.control import Arm
from tests.chaos.kinds import KINDS, Kind
from tests.chaos.scene import WAIT_SECONDS, Scene, UnexpectedError

CONFIG = """\
name: chaos
model:
  task: sequence-classification
  architecture: bert
  config: {{hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2,
    intermediate_size: 64, vocab_size: 128, max_position_embeddings: 16}}
data: {{synthetic: {{sequence_length: 16, samples: 16}}}}
axes:
  micro_batch: [1, 2, 4, 8]
  activations: [keep, checkpoint]
  optimizer: [adamw_torch_fused, sgd, adafactor]
measure: {{timeout: {timeout}s, relative_error: 0}}
follow_up: {{profile: none}}
cpu_fallback: {{warmup_steps: 1, steps: 2}}
resources: {{screen_gpus: false}}
budgets: [2GiB]
"""


HANGING_SECONDS = {"standin": 15.0, "training": 60.0}
"""The timeout of trials that hang."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """One fault: of which kind, in which phase of which trial."""

    kind: Kind
    phase: str
    trial: TrialSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """What became of one fault."""

    kind: str
    phase: str
    outcome: str
    reason: str
    starts: int
    seconds: float
    wrong: str = ""
    """What is not as it has to be."""


@dataclass(kw_only=True)
class _Struck:
    """A fault that has struck, and whose trial has no record yet."""

    drawn: Drawn
    begin: float
    earlier: int
    """How often earlier faults had made the trial begin again."""
    repeats: int = 0
    """How often later faults may have made the trial begin again."""


@dataclass(kw_only=True)
class SweepResult:
    """What became of a sweep, and everything that must not be."""

    trials: int = 0
    faults: list[Effect] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    without_one_row: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """Everything that must not be."""
        faults = [
            f"{effect.kind} in {effect.phase}: {effect.wrong}"
            for effect in self.faults
            if effect.wrong
        ]
        sweep = [*self.lost, *self.without_one_row, *self.repeated, *self.different]
        return [*faults, *sweep]


def draw(seed: int, count: int, kinds: Sequence[Kind] = KINDS) -> list[tuple[Kind, str]]:
    """Faults with their phases.

    First what a trial does to itself, in every phase; then each other kind once, and more of them
    by their weights.
    """
    generator = random.Random(seed)
    inside = [(kind, phase) for kind in kinds if not kind.is_outside for phase in kind.phases]
    outside = [kind for kind in kinds if kind.is_outside]
    generator.shuffle(inside)
    drawn = generator.sample(outside, len(outside))
    if outside:
        weights = [kind.weight for kind in outside]
        missing = max(0, count - len(inside) - len(drawn))
        drawn += generator.choices(outside, weights, k=missing)
    return [*inside, *((kind, generator.choice(kind.phases)) for kind in drawn)][:count]


def _config(timeout_seconds: float) -> Path:
    """The sweep's YAML file. A trial's timeout is no part of its identity."""
    path = ROOT / f"chaos-{timeout_seconds:g}.yaml"
    path.write_text(CONFIG.format(timeout=f"{timeout_seconds:g}"))
    return path


class Campaign:
    """The sweeps that carry the drawn faults, on one arena."""

    def __init__(self, arena: Arena, seed: int, say: Callable[[str], None]) -> None:
        self._arena = arena
        self._chance = random.Random(seed)
        self._say = say
        config = load_config(_config(WAIT_SECONDS))
        self.trials = plan(config, has_gpu=arena.trials == "standin").trials
        self._sweeps = 0
        self._undisturbed: Mapping[str, TrialRecord] = {}

    def run(self, faults: Sequence[tuple[Kind, str]], *, at_once: int) -> Iterator[SweepResult]:
        """One undisturbed sweep, then sweeps with ``at_once`` faults each until all have struck.

        What a trial does to itself comes first, with a short timeout for those that hang. Trials
        that other faults strike may have to wait for long.
        """
        yield self._sweep([], WAIT_SECONDS)
        waiting = list(faults)
        while waiting:
            outside = all(kind.is_outside for kind, _ in waiting)
            batch = [one for one in waiting if one[0].is_outside is outside][:at_once]
            timeout_seconds = WAIT_SECONDS if outside else HANGING_SECONDS[self._arena.trials]
            result = self._sweep(self._spread(batch), timeout_seconds)
            yield result
            if not result.faults:
                raise UnexpectedError(f"no fault struck: {result.wrong}")
            struck = [(effect.kind, effect.phase) for effect in result.faults]
            waiting = [one for one in waiting if not _take(struck, (one[0].name, one[1]))]

    def _spread(self, faults: Sequence[tuple[Kind, str]]) -> list[Drawn]:
        """The faults on some of the first trials, so that undisturbed ones follow.

        A fault that ends the driver comes last, because it ends all others, too. One that must
        strike several times comes first.
        """
        first_trials = range(len(self.trials) * 3 // 4)
        indices = sorted(self._chance.sample(first_trials, len(faults)))
        ordered = sorted(faults, key=lambda fault: (fault[0].is_last, not fault[0].always))
        return [
            Drawn(kind=kind, phase=phase, trial=self.trials[index])
            for (kind, phase), index in zip(ordered, indices, strict=True)
        ]

    def _sweep(self, faults: Sequence[Drawn], timeout_seconds: float) -> SweepResult:
        control = self._arena.control
        result = SweepResult(trials=len(self.trials))
        control.clear()
        by_trial = {fault.trial.trial_id: fault for fault in faults}
        for trial_id, fault in by_trial.items():
            kind = fault.kind
            control.arm(trial_id, Arm(phase=fault.phase, act=kind.act, always=kind.always))
        self._sweeps += 1
        scene = Scene(self._arena, _config(timeout_seconds), f"sweep{self._sweeps}")
        finished: dict[Path, tuple[int, bytes]] = {}
        struck: dict[str, _Struck] = {}
        scene.start()
        try:
            while scene.status() is None:
                announcement = control.announced()
                if announcement is not None:
                    scene.victim = announcement
                    self._strike(scene, by_trial[announcement.trial_id], struck)
                    finished = {**scene.finished(), **finished}
                result.faults += self._settled(scene, struck)
                time.sleep(0.02)
            scene.ends(0)
            result.faults += self._settled(scene, struck)
            self._judge(scene, by_trial, finished, result)
        except UnexpectedError as error:
            result.different.append(str(error))
            scene.give_up()
            self._arena.restart()
        return result

    def _strike(self, scene: Scene, drawn: Drawn, struck: dict[str, _Struck]) -> None:
        """Let the fault happen to the trial that stands still."""
        kind, trial_id = drawn.kind, drawn.trial.trial_id
        self._say(f"{kind.name}, in {drawn.phase} of {trial_id} on {scene.victim.node}")
        for other in struck.values():
            other.repeats += kind.starts - 1
        if trial_id not in struck:
            earlier = len(scene.control.starts(trial_id)) - 1
            struck[trial_id] = _Struck(drawn=drawn, begin=time.monotonic(), earlier=earlier)
        assert kind.strike is not None
        kind.strike(scene)
        scene.release()
        scene.control.next_turn(trial_id)

    def _settled(self, scene: Scene, struck: dict[str, _Struck]) -> list[Effect]:
        """What became of the faults whose trials have their record by now."""
        done = [trial_id for trial_id in struck if scene.record(trial_id) is not None]
        return [self._look(scene, fault.drawn, fault) for fault in map(struck.pop, done)]

    def _look(self, scene: Scene, drawn: Drawn, struck: _Struck | None = None) -> Effect:
        """What became of a fault's trial."""
        kind, record = drawn.kind, scene.record(drawn.trial.trial_id)
        starts = len(scene.control.starts(drawn.trial.trial_id))
        wrong = []
        if record is None or record.outcome is not kind.outcome or kind.reason not in record.reason:
            wrong.append(f"its record is {record and (record.outcome, record.reason)}")
        if (
            record
            and record.outcome is not Outcome.OK
            and not kind.always
            and record.phase != drawn.phase
        ):
            wrong.append(f"its record's phase is {record.phase}")
        fewest = kind.starts + (struck.earlier if struck else 0)
        if not fewest <= starts <= fewest + (struck.repeats if struck else 0):
            wrong.append(f"begun {starts} times, not {kind.starts}")
        return Effect(
            kind=kind.name,
            phase=drawn.phase,
            outcome=record.outcome if record else "",
            reason=record.reason if record else "",
            starts=starts,
            seconds=time.monotonic() - struck.begin if struck else 0.0,
            wrong="; ".join(wrong),
        )

    def _judge(
        self,
        scene: Scene,
        drawn: Mapping[str, Drawn],
        finished: Mapping[Path, tuple[int, bytes]],
        result: SweepResult,
    ) -> None:
        inside = [fault for fault in drawn.values() if not fault.kind.is_outside]
        result.faults += [self._look(scene, fault) for fault in inside]
        result.lost += judge.lost(scene, finished)
        result.without_one_row += judge.without_one_row(scene.folder, self.trials)
        result.repeated += judge.repeated(scene, scene.finished())
        records = {record.trial_id: record for record in read_records(scene.folder)}
        if not drawn:
            # Which follow-ups run depends on speeds, so only trials of the plan are compared.
            planned = {trial.trial_id for trial in self.trials}
            self._undisturbed = {name: own for name, own in records.items() if name in planned}
        struck = {(effect.kind, effect.phase) for effect in result.faults}
        hurt = {
            trial_id: fault.kind.outcome
            for trial_id, fault in drawn.items()
            if (fault.kind.name, fault.phase) in struck
        }
        result.different += judge.unflagged(scene, records)
        all_figures = self._arena.trials == "standin"
        result.different += judge.different(
            records, self._undisturbed, hurt, all_figures=all_figures
        )


def _take(struck: list[tuple[str, str]], one: tuple[str, str]) -> bool:
    """Whether it is among them; it is taken out then."""
    if one in struck:
        struck.remove(one)
        return True
    return False
