"""No source turns data into code, none takes the whole environment, and a config brings no code."""

import ast
from collections.abc import Iterator

import pytest

from orchestrator.planning.config import ConfigError, load_config
from tests.support.commands import ROOT

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
    "jobs/node/collectives.py",
    "jobs/isolation/child_handle.py",
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


def test_the_whole_environment_is_only_handed_to_child_processes():
    takers = set()
    for path in SOURCES:
        source = path.read_text()
        if "os.environ" not in source:
            continue
        tree = ast.parse(source)
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
