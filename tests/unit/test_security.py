"""What a config, a record or a report can never do: run code, or carry a secret or a script."""

import ast
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from jobs.node import checks, environment
from jobs.record import Outcome
from jobs.techniques import AXES
from jobs.techniques.hooks import UnknownHookError, registered
from orchestrator.planning.config import ConfigError, load_config
from orchestrator.reporting.publish import publish
from tests.support.records import H200, make_record, write_run

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for package in ("jobs", "orchestrator") for path in (ROOT / package).rglob("*.py")
)
CODE_CARRIERS = {
    "pickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "joblib",
    "jsonpickle",
}
EVALUATORS = {"eval", "exec", "compile", "__import__"}
LOADERS = {
    "yaml.load",
    "yaml.load_all",
    "yaml.unsafe_load",
    "yaml.full_load",
    "torch.load",
    "os.system",
    "os.popen",
}
UNSAFE_YAML = {"yaml.Loader", "yaml.FullLoader", "yaml.UnsafeLoader", "yaml.CLoader"}
OPENED = {
    ("weights_only", "False"),
    ("shell", "True"),
    ("allow_pickle", "True"),
    ("trust_remote_code", "True"),
}
# Modules that the node's own environment names, and fixed lists.
IMPORT_BY_NAME = {
    "jobs/self_process.py",  # of our own packages only
    "jobs/techniques/__init__.py",
    "jobs/techniques/hooks.py",
    # What the user names, and only if the command line says so.
    "jobs/finetuning/user_code/objects.py",
    "jobs/isolation/preload.py",
    "orchestrator/prediction/fake_step.py",
}
# Processes started for a trial or a build inherit the environment; nothing else takes it whole.
WHOLE_ENVIRONMENT = {
    "orchestrator/planning/library_facts.py",
    "jobs/isolation/slot.py",
    "jobs/isolation/prewarm.py",
    "jobs/node/calibration.py",
    "orchestrator/running/cluster/connection.py",
}


def dangers(source: str, file: str = "") -> Iterator[str]:
    """Every way in which a source could turn data into code, as ``line: what``."""
    for node in ast.walk(ast.parse(source)):
        for what in _dangers_of(node, file):
            yield f"{getattr(node, 'lineno', 0)}: {what}"


def _dangers_of(node: ast.AST, file: str) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names if alias.name.split(".")[0] in CODE_CARRIERS)
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in CODE_CARRIERS:
            yield module
        case ast.Call(func=ast.Name(id=name)) if name in EVALUATORS:
            yield name
        case ast.Attribute() if (name := ast.unparse(node)) in LOADERS | UNSAFE_YAML:
            yield name
        case ast.keyword(arg=str(name), value=ast.Constant(value=value)) if (
            name,
            str(value),
        ) in OPENED:
            yield f"{name}={value}"
        case ast.Attribute(attr="import_module") if file not in IMPORT_BY_NAME:
            yield "import_module"


def test_no_source_turns_data_into_code():
    found = {
        str(path): list(dangers(path.read_text(), str(path.relative_to(ROOT)))) for path in SOURCES
    }
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "import pickle",
        "from cloudpickle import loads",
        "eval('1')",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.SafeLoader)",
        "class L(yaml.Loader): ...",
        "torch.load(path)",
        "load(path, weights_only=False)",
        "subprocess.run(line, shell=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "importlib.import_module(record['hook'])",
    ],
)
def test_the_scan_sees_what_it_is_for(planted):
    assert len(list(dangers(planted))) == 1
    harmless = (
        "re.compile('x')",
        "yaml.safe_load(text)",
        "run(shell=False)",
        "f(trust_remote_code=spec.trust)",
    )
    assert not list(dangers("; ".join(harmless)))


def test_hooks_are_called_by_registered_names_only():
    names = {
        hook.name
        for axis in AXES.values()
        for variant in axis.variants.values()
        for hook in variant.hooks.values()
    }
    assert names
    for name in names:
        assert registered(name).__module__.startswith("jobs.")
    for name in ("os.system", "os:system", "builtins.eval"):
        with pytest.raises(UnknownHookError):
            registered(name)


MODEL = "model: {task: causal-lm, %s}\n"


@pytest.mark.parametrize(
    "text",
    [
        MODEL % "architecture: llama, config: !!python/object/apply:os.system ['touch /tmp/x']",
        MODEL % "architecture: llama" + "hooks: {model: ['os:system', {}]}",
        MODEL % "architecture: llama" + "recipe: {hooks: {}}",
        MODEL % "architecture: llama, hooks: {}",
    ],
)
def test_a_config_cannot_bring_code(text, tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load_config(path)


SECRET = "hunter2-planted"


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets where people keep them."""
    for name in (
        "HF_TOKEN",
        "RAY_AUTH_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "MLFLOW_TRACKING_PASSWORD",
    ):
        monkeypatch.setenv(name, SECRET)
    environment.describe.cache_clear()


@pytest.mark.usefixtures("secrets")
def test_no_secret_is_part_of_what_describes_a_machine():
    assert SECRET not in json.dumps(environment.describe())
    assert SECRET not in json.dumps(checks.report())


def test_the_whole_environment_is_only_handed_to_child_processes():
    takers = set()
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        read = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Attribute, ast.Subscript))
        }
        read |= {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
        read |= {
            id(item)
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare)
            for item in node.comparators
        }
        whole = [
            node
            for node in ast.walk(tree)
            if ast.unparse(node) == "os.environ" and id(node) not in read
        ]
        takers |= {str(path.relative_to(ROOT))} if whole else set()
    assert takers <= WHOLE_ENVIRONMENT
    assert takers


@pytest.mark.parametrize("name", ["hub_token", "push_to_hub_token", "hub_model_id", "report_to"])
def test_a_token_among_training_arguments_is_refused_or_left_aside(name, tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(MODEL % "architecture: llama" + f"training_arguments: {{{name}: {SECRET}}}")
    try:
        config = load_config(path)
    except ConfigError as caught:
        message = str(caught)
    else:
        message = f"{config.training_arguments} {config.notes}"
    assert SECRET not in message


class Skeleton(HTMLParser):
    """The elements of a page and the attributes that could run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: dict[str, int] = {}
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] = self.elements.get(tag, 0) + 1
        self.handlers += [
            f"{tag} {name}"
            for name, value in attrs
            if name.startswith("on") or (value or "").strip().lower().startswith("javascript:")
        ]


HOSTILE = (
    "\"'></script></title></textarea><script>alert(1)</script>"
    "<img src=x onerror=alert(1)><a href=javascript:x>"
)


def page_of(folder: Path, word: str) -> Skeleton:
    """The report of a small run in which everything that a user can name is called ``word``."""
    config: dict[str, Any] = {
        "model": {"name_or_path": word},
        "data": {"file": {"path": word}},
        word: word,
    }
    records = [
        make_record(
            optimizer=word,
            micro_batch=1,
            measurements={"warnings": [word], "optimizer_class": word},
        ),
        make_record(optimizer="adamw", micro_batch=2, environment={**H200, "gpu_model": word}),
        make_record(optimizer=word, micro_batch=4, outcome=Outcome.FAILED, reason=word, rule=word),
        make_record(
            optimizer="adamw", micro_batch=8, outcome=Outcome.SKIPPED, reason=word, rule=word
        ),
    ]
    publish(
        write_run(
            folder, records, name=word, command=word, config=config, baseline={"optimizer": word}
        )
    )
    return Skeleton((folder / "report.html").read_text())


def test_a_report_shows_hostile_names_and_runs_none(tmp_path):
    hostile, plain = page_of(tmp_path / "hostile", HOSTILE), page_of(tmp_path / "plain", "plain")
    assert hostile.elements == plain.elements
    assert hostile.handlers == []
    assert Skeleton(f"<p>{HOSTILE}</p>").handlers == ["img onerror", "a href"]
