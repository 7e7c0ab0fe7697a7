"""What every technique must allow: to be exported as files that stand alone."""

import ast
import json
import re
import sys

import pytest

from jobs.spec import TrialSpec
from jobs.techniques import AXES
from orchestrator.export import arguments, packages, script
from orchestrator.export.source_lifting import RANDOM_ROWS, data_module
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.support.commands import ROOT

TRIALS = plan(load_config(ROOT / "configs" / "all_techniques.yaml")).trials
DISTRIBUTIONS = {
    "cut_cross_entropy": "cut-cross-entropy",
    "liger_kernel": "liger-kernel",
    "yaml": "pyyaml",
}
"""Module -> its package on PyPI, where the two names differ."""


def _name(spec: TrialSpec) -> str:
    changed = {axis: value for axis, value in spec.choices.items() if value != AXES[axis].default}
    return "-".join(map(str, changed.values()))


def _imported_packages(tree: ast.Module) -> set[str]:
    packages = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            packages.add((node.module or "").partition(".")[0])
    return packages


@pytest.mark.parametrize("spec", TRIALS, ids=_name)
def test_technique_exports_a_script_and_the_packages_that_it_imports(spec):
    tree = ast.parse(script.train_script(spec, "a test", peak_bytes=1))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(set(functions)) == len(functions)
    requirements = packages.requirements(spec, {})
    listed = set(re.findall(r"^([\w-]+)", requirements, re.MULTILINE))
    # Only packages on PyPI are listed, and none of this project's.
    imported = _imported_packages(tree) - set(sys.stdlib_module_names)
    if "measured_data" in imported:  # the file beside the script
        beside = _imported_packages(ast.parse(data_module(RANDOM_ROWS)))
        imported = (imported | beside) - {"measured_data", *sys.stdlib_module_names}
    assert {DISTRIBUTIONS.get(package, package) for package in imported} <= listed
    # Beside those, only what transformers imports itself for the chosen technique. PyPI has no
    # package of FlashAttention-3.
    unlisted = requirements.partition("# and the package")[2]
    assert unlisted.strip() in ("", "that provides the module flash_attn_interface")
    assert len(listed) <= 8


@pytest.mark.parametrize("spec", TRIALS, ids=_name)
def test_technique_exports_the_settings_it_was_measured_with(spec):
    settings = arguments.training_arguments(spec, epochs=2)
    assert json.loads(json.dumps(settings)) == settings
    assert spec.settings.training_arguments.items() <= settings.items()
    assert ("deepspeed" in settings) == (arguments.deepspeed(spec) is not None)
