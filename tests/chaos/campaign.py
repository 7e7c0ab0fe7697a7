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
from orchestrator.storage.run_metadata import read_records
from tests.chaos import judge
from tests.chaos.arena import ROOT, Arena
from tests.chaos.control import Arm
from tests.chaos.kinds import KINDS, Kind
from tests.chaos.scene import PATIENCE, Scene, UnexpectedError

CONFIG = """\
name: chaos
model: {{task: sequence-classification, architecture: bert, config: {{hidden_size: 32, num_hidden_layers: 2,
  num_attention_heads: 2, intermediate_size: 64, vocab_size: 128, max_position_embeddings: 16}}}}
data: {{synthetic: {{sequence_length: 16, samples: 16}}}}
axes:
  micro_batch: [1, 2, 4, 8]
  activations: [keep, checkpoint]
  optimizer: [adamw_torch_fused, sgd, adafactor]
measure: {{deadline: {deadline}s, anatomy: none, relative_error: 0}}
cpu: {{warmup_steps: 1, steps: 2}}
resources: {{calibrate: false}}
budgets: [2GiB]
"""


HANGING_SECONDS = {"standin": 15.0, "training": 60.0}
"""After which a trial that hangs is timed out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """One fault: of which kind, in which phase of which trial."""

    kind: Kind
    phase: str
    trial: TrialSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What became of one."""

    kind: str
    phase: str
    outcome: str
    reason: str
    starts: int
    seconds: float
    wrong: str = ""
    """What did not come as it has to."""


@dataclass(kw_only=True)
class _Struck:
    """A fault that has struck and whose trial has no row yet."""

    drawn: Drawn
    begin: float
    earlier: int
    """How often faults that struck before had made the trial begin again."""
    repeats: int = 0
    """How often faults that struck since may have made the trial begin again."""


@dataclass(kw_only=True)
class Verdict:
    """What became of a sweep."""

    trials: int = 0
    faults: list[Seen] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    rowless: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    unlike: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """Everything that must not be."""
        faults = [
            f"{seen.kind} in {seen.phase}: {seen.wrong}" for seen in self.faults if seen.wrong
        ]
        return [*faults, *self.lost, *self.rowless, *self.repeated, *self.unlike]


def draw(seed: int, count: int, kinds: Sequence[Kind] = KINDS) -> list[tuple[Kind, str]]:
    """Faults with their phases: what a trial does to itself in every phase, each other kind once and then by weight."""
    chance = random.Random(seed)
    inside = [(kind, phase) for kind in kinds if not kind.is_outside for phase in kind.phases]
    outside = [kind for kind in kinds if kind.is_outside]
    chance.shuffle(inside)
    turns = chance.sample(outside, len(outside))
    weights = [kind.weight for kind in outside]
    turns += (
        chance.choices(outside, weights, k=max(0, count - len(inside) - len(turns)))
        if outside
        else []
    )
    return [*inside, *((kind, chance.choice(kind.phases)) for kind in turns)][:count]


def _config(timeout_seconds: float) -> Path:
    """The sweep's YAML file; a trial's deadline is no part of its identity."""
    path = ROOT / f"chaos-{timeout_seconds:g}.yaml"
    path.write_text(CONFIG.format(deadline=f"{timeout_seconds:g}"))
    return path


class Campaign:
    """The sweeps that carry the drawn faults, on one arena."""

    def __init__(self, arena: Arena, seed: int, say: Callable[[str], None]) -> None:
        self._arena = arena
        self._chance = random.Random(seed)
        self._say = say
        self.trials = plan(load_config(_config(PATIENCE)), has_gpu=arena.trials == "standin").trials
        self._sweeps = 0
        self._undisturbed: Mapping[str, TrialRecord] = {}

    def run(self, faults: Sequence[tuple[Kind, str]], *, at_once: int) -> Iterator[Verdict]:
        """One undisturbed sweep, then sweeps with ``at_once`` faults each until all have struck.

        Those that a trial does to itself come first, with a deadline that a hanging one meets soon; the others wait for
        their turn, which may take long.
        """
        yield self._sweep([], PATIENCE)
        waiting = list(faults)
        while waiting:
            outside = all(kind.is_outside for kind, _ in waiting)
            batch = [one for one in waiting if one[0].is_outside is outside][:at_once]
            verdict = self._sweep(
                self._spread(batch), PATIENCE if outside else HANGING_SECONDS[self._arena.trials]
            )
            yield verdict
            if not verdict.faults:
                raise UnexpectedError(f"no fault struck: {verdict.wrong}")
            struck = [(seen.kind, seen.phase) for seen in verdict.faults]
            waiting = [one for one in waiting if not _take(struck, (one[0].name, one[1]))]

    def _spread(self, faults: Sequence[tuple[Kind, str]]) -> list[Drawn]:
        """Over the first trials, so that some are left to see the end; what lets the driver end comes last.

        What must strike several times comes first: the driver's end would be the end of that, too.
        """
        places = sorted(self._chance.sample(range(len(self.trials) * 3 // 4), len(faults)))
        ordered = sorted(faults, key=lambda fault: (fault[0].is_last, not fault[0].always))
        pairs = zip(ordered, places, strict=True)
        return [
            Drawn(kind=kind, phase=phase, trial=self.trials[place])
            for (kind, phase), place in pairs
        ]

    def _sweep(self, faults: Sequence[Drawn], timeout_seconds: float) -> Verdict:
        control, verdict = self._arena.control, Verdict(trials=len(self.trials))
        control.clear()
        by_trial = {one.trial.trial_id: one for one in faults}
        for trial_id, one in by_trial.items():
            control.arm(trial_id, Arm(phase=one.phase, act=one.kind.act, always=one.kind.always))
        self._sweeps += 1
        scene = Scene(self._arena, _config(timeout_seconds), f"sweep{self._sweeps}")
        seen: dict[Path, tuple[int, bytes]] = {}
        struck: dict[str, _Struck] = {}
        scene.start()
        try:
            while scene.status() is None:
                if (found := control.announced()) is not None:
                    scene.victim = found
                    self._strike(scene, by_trial[found.trial_id], struck)
                    seen = {**scene.finished(), **seen}
                verdict.faults += self._settled(scene, struck)
                time.sleep(0.02)
            scene.ends(0)
            verdict.faults += self._settled(scene, struck)
            self._judge(scene, by_trial, seen, verdict)
        except UnexpectedError as error:
            verdict.unlike.append(str(error))
            scene.give_up()
            self._arena.restart()
        return verdict

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

    def _settled(self, scene: Scene, struck: dict[str, _Struck]) -> list[Seen]:
        """What became of the faults whose trials have their row by now."""
        done = [trial_id for trial_id in struck if scene.record(trial_id) is not None]
        return [self._look(scene, one.drawn, one) for one in map(struck.pop, done)]

    def _look(self, scene: Scene, drawn: Drawn, struck: _Struck | None = None) -> Seen:
        """What became of a fault's trial."""
        kind, record = drawn.kind, scene.record(drawn.trial.trial_id)
        starts = len(scene.control.starts(drawn.trial.trial_id))
        wrong = []
        if record is None or record.outcome is not kind.outcome or kind.reason not in record.reason:
            wrong.append(f"its row is {record and (record.outcome, record.reason)}")
        if (
            record
            and record.outcome is not Outcome.OK
            and not kind.always
            and record.phase != drawn.phase
        ):
            wrong.append(f"its row's phase is {record.phase}")
        fewest = kind.starts + (struck.earlier if struck else 0)
        if not fewest <= starts <= fewest + (struck.repeats if struck else 0):
            wrong.append(f"begun {starts} times, not {kind.starts}")
        return Seen(
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
        seen: Mapping[Path, tuple[int, bytes]],
        verdict: Verdict,
    ) -> None:
        inside = [one for one in drawn.values() if not one.kind.is_outside]
        verdict.faults += [self._look(scene, one) for one in inside]
        verdict.lost += judge.lost(scene, seen)
        verdict.rowless += judge.rowless(scene.folder, self.trials)
        verdict.repeated += judge.repeated(scene, scene.finished())
        records = {record.trial_id: record for record in read_records(scene.folder)}
        if not drawn:
            self._undisturbed = records
        struck = {(one.kind, one.phase) for one in verdict.faults}
        hurt = {
            key: one.kind.outcome
            for key, one in drawn.items()
            if (one.kind.name, one.phase) in struck
        }
        verdict.unlike += judge.unwarned(scene, records)
        figures = self._arena.trials == "standin"
        verdict.unlike += judge.unlike(records, self._undisturbed, hurt, all_figures=figures)


def _take(struck: list[tuple[str, str]], one: tuple[str, str]) -> bool:
    """Whether it is among them; it is taken out then."""
    if one in struck:
        struck.remove(one)
        return True
    return False
