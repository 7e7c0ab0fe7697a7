"""Hostile values at drawn places of a configuration: each is refused in sentences, or planned."""

import copy
import functools
import json
import operator
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.spec import TrialSpec, from_json, to_json
from orchestrator.planning.config import ConfigError, load_config
from orchestrator.planning.plan import plan
from orchestrator.reporting.verbs.dry_run import describe
from tests.support.config_files import MODEL, config_of

CANARY = "/tmp/fuzz_canary"
ALIASES = (f"&x{n} [{', '.join([f'*x{n + 1}'] * 8)}]" for n in range(6, -1, -1))
BOMB = f"[&x7 [1, 2, 3, 4, 5, 6, 7, 8], {', '.join(ALIASES)}]"
HOSTILE = rf"""
~ | -1 | 0x1F | 1_000 | 12:30:45 | 1e400 | .nan | -.inf | '8' | "\0" | "\ud800" | [] | {{}}
[[[[1]]]] | {{a: {{b: {{c: 1}}}}}} | [1, [2]] | 2026-01-01 | 2026-13-45 | 2026-01-01T10:00:00Z
!!timestamp x | !!int '' | !!int x | !!float x | !!bool x | !!binary aGk= | !!binary x
!!set {{a}} | !!omap [a: 1] | !!null x | !!str 1 | !unknown x | !!python/none
!!python/object/apply:os.system ['touch {CANARY}'] | !!python/name:os.system | *nowhere
&a [*a] | &b {{b: *b}} | {{<<: 1}} | {{<<: [1]}} | {{<<: {{a: 1}}, a: 2}} | {{? [1] : 2}}
{{1: 2, '1': 3}} | {{on: 1}} | [1, 1] | 0s | 1e9GiB | ../.. | / | /dev/null | custom | default
999999999 | [1, 2, 3, 999999999]
"""
HOSTILE = HOSTILE.strip().replace("\n", " | ").split(" | ")
HOSTILE += [
    BOMB,
    "",
    "1" + "0" * 400,
    "9" * 5000,
    "0x" + "f" * 5000,
    f"'{'x' * 5000}'",
    "[" * 500 + "]" * 500,
    "{a: " * 300,
]
HOLE = "H0LE"
EVERY_KEY = b"""
name: whole
model: {task: causal-lm, architecture: llama, config: {hidden_size: 64, num_hidden_layers: 2}}
data:
  file: {path: rows.json, format: json, columns: {text: body}, tokenizer: here, max_length: 64}
training_arguments: {weight_decay: 0.1, max_grad_norm: 1.0, gradient_checkpointing: true}
deepspeed:
  zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}
  bf16: {enabled: auto}
axes:
  micro_batch: [1, 2]
  precision: [bf16, fp32]
  learning_rate: [1e-5, 1e-4]
  effective_batch: 8
subsets: {small: {axes: {micro_batch: [4]}}, large: {axes: {micro_batch: [8, 16]}}}
exclude: [{micro_batch: 1, precision: [fp32]}]
trials: [{micro_batch: 2, precision: bf16}, {micro_batch: 2, optimizer: adafactor}]
baseline: {precision: fp32}
measure: {warmup_steps: 1, steps: epoch, relative_error: 0.02, repeats: 2, timeout: 5m, seed: 1,
  inspect: false}
follow_up: {verify_budgets: false, tie_break_rounds: 2, profile: all}
cpu_fallback: {warmup_steps: 1, steps: 2, time_budget: 1h30m}
resources: {cpus_per_trial: 2, host_memory: 64GiB, nvme_path: disk, screen_gpus: false}
budgets: [16GiB, 24GB, 1000000]
search: {kind: frontier, tolerance: 0.05, audit_fraction: 0.1, seed: 3}
loggers: {wandb: {project: bert, tags: [first]}}
output: somewhere
"""


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key path of a parsed value but the top."""
    items = {dict: dict.items, list: enumerate}.get(type(value))
    for key, inner in items(value) if items else ():
        yield (*at, key)
        yield from places(inner, (*at, key))


def check_sentences(refusal: ConfigError) -> None:
    """Every problem is a sentence at a line, and can be printed on any terminal."""
    assert refusal.problems
    for problem in refusal.problems:
        text = str(problem)
        assert problem.message
        # What cannot be read has no lines.
        assert problem.line >= 1 or "cannot read it" in problem.message
        assert len(text) < 10_000, "too long to read"
        assert "Traceback" not in text
        assert " object at 0x" not in text
        assert text.encode()


def judge(path: Path, *, trust: bool) -> str:
    """Load, plan, describe and write down a configuration: "refused" or "planned"."""
    try:
        config = load_config(path, trust_remote_code=trust)
    except ConfigError as error:
        check_sentences(error)
        return "refused"
    json.dumps(config.to_json())
    planned = plan(config, has_gpu=trust)
    describe(planned, config).encode()
    for spec in planned.trials[:20]:
        assert from_json(TrialSpec, json.loads(json.dumps(to_json(spec)))).trial_id == spec.trial_id
    return "planned"


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_value_is_refused_in_sentences_or_planned_whole(number, tmp_path):
    path = tmp_path / "sweep.yaml"
    whole = yaml.safe_load(EVERY_KEY)
    chance = random.Random(number)
    for *parents, last in chance.sample(list(places(whole)), 5):
        tree = copy.deepcopy(whole)
        functools.reduce(operator.getitem, parents, tree)[last] = HOLE
        text = yaml.safe_dump(tree).replace(HOLE, HOSTILE[number])
        path.write_bytes(text.encode(errors="surrogatepass"))
        judge(path, trust=chance.random() < 0.5)
    assert not Path(CANARY).exists()


def test_path_without_a_readable_file_is_refused(tmp_path):
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    for path in (
        tmp_path,
        tmp_path / "none.yaml",
        tmp_path / "loop.yaml",
        tmp_path / "none" / "of.yaml",
    ):
        assert judge(path, trust=False) == "refused"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"config: {BOMB}", "more than 100,000 values"),
        ("a: " + "[" * 100 + "]" * 100, "nested deeper than 64 levels"),
        ("a: " + "[" * 1200 + "]" * 1200, "nested deeper than 64 levels"),
        ("name: 2026-13-45", 'name: "2026-13-45" is no timestamp; for text use quotes'),
        ("name: 2026-01-01", 'name: YAML reads "2026-01-01" as a timestamp'),
        ("repeats: " + "9" * 5000, '99…" is no int'),
        ("name: 0x" + "f" * 5000, "name: is beyond the integers of 64 bits"),
        ('name: "\\0"', "name: holds what is not a character"),
        ("name: \7", "not valid YAML: unacceptable character #x0007"),
        (
            "axes: {precision: [bf16]}\ndeepspeed: {bf16: {enabled: true}}",
            'deepspeed.bf16.enabled: must be auto: the axis "precision" decides it',
        ),
        (
            "axes: {micro_batch: [1, 2], weight_decay: [0.0, 0.1]}\nmeasure: {repeats: 999999999}",
            "plans 3,999,999,996 trials",
        ),
    ],
)
def test_value_that_the_reader_cannot_take_is_refused(text, said, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(said)):
        config_of(tmp_path, MODEL + text)


def test_merges_of_merges_are_read_in_little_memory(tmp_path):
    doubled = "\n".join(
        f"  m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 12)
    )
    with pytest.raises(ConfigError, match="unknown key"):
        config_of(tmp_path, f"model:\n  m0: &m0 {{a: 1, b: 2}}\n{doubled}\n")
