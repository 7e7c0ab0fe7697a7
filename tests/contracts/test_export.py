"""What every technique must allow: to be exported as files that stand on their own."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from jobs.spec import TrialSpec
from jobs.techniques import AXES
from orchestrator.export import arguments, script
from orchestrator.export.source_lifting import lifted
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan

ROOT = Path(__file__).parents[2]
TRIALS = plan(load_config(ROOT / "configs" / "all_techniques.yaml")).trials
ALLOWED = {
    "json",
    "os",
    "pathlib",
    "typing",
    "numpy",
    "torch",
    "transformers",
    "yaml",
    "datasets",
    "accelerate",
    "peft",
}


def named(spec: TrialSpec) -> str:
    return "-".join(
        str(v) for axis, v in spec.choices.items() if axis in AXES and v != AXES[axis].default
    )


@pytest.mark.parametrize("spec", TRIALS, ids=named)
def test_every_technique_becomes_files_that_stand_alone(spec: TrialSpec) -> None:
    tree = ast.parse(script.train_script(spec, "a test", peak_bytes=1))
    modules = {
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    }
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} <= ALLOWED | {"__future__", "bitsandbytes"}
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(set(names)) == len(names)
    settings = arguments.training_arguments(spec, epochs=2)
    assert json.loads(json.dumps(settings)) == settings
    kept = {
        name: v
        for name, v in spec.recipe.training_arguments.items()
        if "activation_checkpointing" not in name
    }
    assert kept.items() <= settings.items()
    assert ("deepspeed" in settings) == (arguments.deepspeed(spec) is not None)


def test_a_function_that_leans_on_its_modules_imports_is_not_lifted() -> None:
    with pytest.raises(ValueError, match="which its module imports"):
        lifted("jobs.loops.accelerate:train")
    with pytest.raises(ValueError, match="not to be found"):
        lifted("jobs.nowhere:train")
