"""What deploy/ holds: valid by its own tools' schemas, one set of versions, a token everywhere, no
open dashboard.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement

from tests.support.commands import ROOT, ran

DEPLOY = ROOT / "deploy"
LAUNCHED = ("aws", "gcp", "on_premise")
MANIFESTS = ("raycluster", "rayjob", "networkpolicy", "results")
SCRIPTS = ("bundle.sh", "install.sh", "slurm.sbatch")
KUBERAY = json.loads((ROOT / "tests" / "data" / "kuberay_1.6.2.json").read_text())
KUBERNETES = "1.34"
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
RAY = re.search(r"^ray==(.+)$", CONSTRAINTS, re.MULTILINE)


def launch_config(name: str) -> dict[str, Any]:
    """A ``ray up`` file as Ray reads it: with its provider's defaults filled in."""
    from ray.autoscaler._private.util import prepare_config

    return prepare_config(yaml.safe_load((DEPLOY / f"{name}.yaml").read_text()))


def manifest(name: str, kind: str) -> dict[str, Any]:
    """The object of one kind in a Kubernetes file."""
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text())
    return next(document for document in documents if document["kind"] == kind)


def cluster_spec(name: str) -> dict[str, Any]:
    if name == "rayjob":
        return manifest(name, "RayJob")["spec"]["rayClusterSpec"]
    return manifest(name, "RayCluster")["spec"]


def pods() -> Iterator[Any]:
    """Every pod template of the manifests."""
    for name in ("raycluster", "rayjob"):
        spec = cluster_spec(name)
        yield pytest.param(spec["headGroupSpec"]["template"], id=f"{name}-head")
        yield pytest.param(spec["workerGroupSpecs"][0]["template"], id=f"{name}-worker")
    yield pytest.param(
        manifest("rayjob", "RayJob")["spec"]["submitterPodTemplate"], id="rayjob-submitter"
    )


def strict(schema: Any) -> Any:
    """The schema as the API server applies it with strict validation: no field beside those it
    names.
    """
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed["additionalProperties"] = False
    return closed


def against_kuberay(document: dict[str, Any]) -> None:
    """Raises jsonschema's ValidationError where KubeRay's operator would refuse the object."""
    jsonschema.validate(document, {**strict(KUBERAY), "$ref": f"#/{document['kind']}"})


@pytest.mark.parametrize("name", LAUNCHED)
def test_ray_accepts_the_file_that_it_launches(name):
    from ray.autoscaler._private.util import validate_config

    config = launch_config(name)
    validate_config(config)
    with pytest.raises(jsonschema.ValidationError):
        validate_config({**config, "idle_timeout": 5})


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_launched_cluster_has_a_token_and_no_open_dashboard(name):
    config = launch_config(name)
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    for commands in ("head_start_ray_commands", "worker_start_ray_commands"):
        starts = [command for command in config[commands] if "ray start" in command]
        assert len(starts) == 1
        assert "RAY_AUTH_MODE=token" in starts[0]
        assert "0.0.0.0" not in starts[0]
    assert "--dashboard-host=127.0.0.1" in " ".join(config["head_start_ray_commands"])
    (install,) = [line for line in config["setup_commands"] if "pip install" in line]
    assert "-c ~/orchestrator/constraints.txt -e ~/orchestrator" in install


@pytest.mark.parametrize(("name", "kind"), [("raycluster", "RayCluster"), ("rayjob", "RayJob")])
def test_kuberays_own_schema_accepts_the_manifest(name, kind):
    document = manifest(name, kind)
    against_kuberay(document)
    with pytest.raises(jsonschema.ValidationError, match="'authOption' was unexpected"):
        against_kuberay({**document, "spec": {**document["spec"], "authOption": {"mode": "token"}}})
    spec = cluster_spec(name)
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["rayVersion"] == RAY[1]


def test_a_jobs_cluster_is_the_cluster_but_for_its_dashboard():
    stays, goes = cluster_spec("raycluster"), cluster_spec("rayjob")
    assert stays["headGroupSpec"]["rayStartParams"].pop("dashboard-host") == "127.0.0.1"
    assert goes["headGroupSpec"]["rayStartParams"].pop("dashboard-host") == "0.0.0.0"
    assert stays == goes


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_own_schema_accepts_the_other_objects(name):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text()):
        if not document["apiVersion"].startswith("ray.io/"):
            kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("template", list(pods()))
def test_kubernetes_own_schema_accepts_the_pods(template):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    metadata = {"name": "x", **template["metadata"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    wrong = {**pod, "spec": {**pod["spec"], "container": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@pytest.mark.parametrize("template", list(pods()))
def test_every_pod_is_unprivileged_and_under_the_policy(template):
    policy = manifest("networkpolicy", "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    for container in spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["image"] == "orchestrator:0.1.0"
        assert not any("TOKEN" in variable["name"] for variable in container.get("env", []))


@pytest.mark.parametrize("name", ["raycluster", "rayjob"])
def test_no_manifest_that_is_run_again_holds_the_claim(name):
    text = (DEPLOY / "kubernetes" / f"{name}.yaml").read_text()
    kinds = [document["kind"] for document in yaml.safe_load_all(text)]
    assert "PersistentVolumeClaim" not in kinds
    claim = manifest("results", "PersistentVolumeClaim")["metadata"]["name"]
    head = cluster_spec(name)["headGroupSpec"]["template"]["spec"]
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in head["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert claims == [claim]


def _admits(rules: list[Any], side: str, pod_labels: dict[str, str] | None, port: int) -> bool:
    """Whether a policy's rules let a peer through on a TCP port; no labels: an address that is no
    pod, such as a node's.
    """
    for rule in rules:
        ports = [entry["port"] for entry in rule.get("ports", []) if entry["protocol"] == "TCP"]
        if ports and port not in ports:
            continue
        if side not in rule:
            return True
        for peer in rule[side]:
            wanted = peer.get("podSelector", {}).get("matchLabels")
            if wanted and pod_labels and wanted.items() <= pod_labels.items():
                return True
    return False


PROMETHEUS = {"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/instance": "k8s"}


def test_policy_admits_pods_of_its_own_namespace_only():
    rules = manifest("networkpolicy", "NetworkPolicy")["spec"]["ingress"]
    peers = [peer for rule in rules for peer in rule["from"]]
    # Without a namespaceSelector, a peer is a pod of the policy's own namespace.
    assert peers
    assert all(set(peer) == {"podSelector"} for peer in peers)


@pytest.mark.parametrize("name", LAUNCHED)
@pytest.mark.parametrize("secret", [".env", ".env.production"])
def test_ray_up_copies_no_file_of_secrets(name, secret):
    assert any(fnmatch(secret, left_out) for left_out in launch_config(name)["rsync_exclude"])


@pytest.mark.parametrize(
    ("rules", "side", "pod_labels", "port", "is_admitted"),
    [
        ("ingress", "from", PROMETHEUS, 8080, True),
        ("ingress", "from", PROMETHEUS, 8265, False),
        ("ingress", "from", {"app": "a stranger"}, 8080, False),
        ("egress", "to", None, 53, True),  # a node-local cache of names
        ("egress", "to", {"k8s-app": "kube-dns"}, 53, True),
        ("egress", "to", None, 443, False),
    ],
)
def test_policy_lets_metrics_out_and_names_be_asked(rules, side, pod_labels, port, is_admitted):
    policy = manifest("networkpolicy", "NetworkPolicy")["spec"]
    assert _admits(policy[rules], side, pod_labels, port) is is_admitted


@pytest.mark.parametrize("name", ["raycluster", "rayjob"])
def test_metrics_are_at_the_port_that_the_policy_opens(name):
    spec = cluster_spec(name)
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert group["rayStartParams"]["metrics-export-port"] == "8080"


def test_a_job_can_be_created_again_without_deleting_anything():
    assert manifest("rayjob", "RayJob")["metadata"] == {"generateName": "sweep-"}


CUDA_OF_TORCH = {"2.13.0": "13.0"}
"""torch on PyPI -> its CUDA, by its requirement of cuda-toolkit. A new pin needs a new line: see
``pip install --dry-run --no-deps --report - torch===VERSION``."""


def test_the_images_cuda_is_that_of_the_pinned_torch():
    pinned = re.search(r"^torch==(.+)$", CONSTRAINTS, re.MULTILINE)[1]
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert re.search(rf"^ARG CUDA={CUDA_OF_TORCH[pinned]}\b", dockerfile, re.MULTILINE)
    # The build itself asks torch, once it is installed.
    install = dockerfile.index("constraints.txt torch")
    assert "torch.version.cuda != sys.argv[1]" in dockerfile[install:]
    installed = importlib.metadata.version("torch").partition("+")[0]
    for line in importlib.metadata.requires("torch") or []:
        if line.startswith("cuda-toolkit"):  # absent from a torch that is built without CUDA
            assert f"=={CUDA_OF_TORCH[installed]}" in line


def test_everything_that_rays_dashboard_adds_is_pinned_and_so_audited():
    waiting = [Requirement(line) for line in importlib.metadata.requires("ray") or []]
    added = {
        requirement.name
        for requirement in waiting
        if requirement.marker is not None and requirement.marker.evaluate({"extra": "default"})
    }
    assert {"aiohttp", "grpcio", "opencensus", "virtualenv"} <= added
    pinned = {_normal(line.partition("==")[0]) for line in CONSTRAINTS.splitlines()}
    assert {_normal(name) for name in added} <= pinned
    # What those need in turn, as pip resolved it for ray[default].
    further = "yarl multidict aiosignal frozenlist google-api-core google-auth cryptography distlib"
    assert set(further.split()) <= pinned


def _normal(name: str) -> str:
    """A package's name as PyPI compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_image_is_pinned_unprivileged_and_asks_for_a_token():
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    installs = [line for line in lines if "pip install" in line and line.startswith("RUN")]
    assert installs
    assert all("-c constraints.txt" in line for line in installs)
    assert [line for line in lines if line.startswith("USER")][-1] == "USER 10001:10001"
    assert any("RAY_AUTH_MODE=token" in line for line in lines)
    assert sum(line.startswith("FROM") for line in lines) == 2


TOOLS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
"""Where the checkers are: beside this interpreter first."""


@pytest.mark.parametrize(
    ("checker", "file"),
    [*(("shellcheck", script) for script in SCRIPTS), ("hadolint", "Dockerfile")],
)
def test_checker_finds_nothing(checker, file):
    program = shutil.which(checker, path=TOOLS)
    if program is None:
        pytest.skip(f"{checker} is not installed")
    options = ["--shell=bash"] if checker == "shellcheck" else []
    done = ran(program, *options, DEPLOY / file)
    assert (done.returncode, done.stdout) == (0, "")


def stand_in(folder: Path, name: str, script: str) -> None:
    """A command that takes a real one's place on the PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle made with a Python that makes wheels of nothing, unpacked."""
    stand_in(
        tmp_path / "bin",
        "python",
        'echo "$*" >"$ASKED"; mkdir -p "${@: -3:1}"; touch "${@: -3:1}/a-1-py3-none-any.whl"',
    )
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHON": str(tmp_path / "bin" / "python"),
        "ASKED": str(tmp_path / "asked"),
    }
    output = tmp_path / "made.tar"
    done = ran(DEPLOY / "bundle.sh", output, env=environment, check=True)
    assert done.stdout == f"{output}: 1 wheels\n"
    assert "pip wheel --quiet -c constraints.txt" in (tmp_path / "asked").read_text()
    with tarfile.open(output) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "orchestrator-bundle"


def install(bundle: Path) -> subprocess.CompletedProcess[str]:
    """Run the bundle's installer with a Python whose venv writes down what it is asked."""
    python = ".venv/bin/python"
    script = '#!/bin/bash\\necho "$*"\\n'
    venv = f"mkdir -p .venv/bin; printf '{script}' >{python}; chmod +x {python}"
    stand_in(bundle.parent / "bin", "python", venv)
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(bundle.parent / "bin" / "python")}
    return ran(bundle / "install.sh", env=environment)


def test_a_bundle_installs_without_a_network(bundle):
    assert {path.name for path in bundle.iterdir()} == {
        "LICENSE", "SHA256SUMS", "configs", "constraints.txt", "install.sh", "wheels",
    }  # fmt: skip
    done = install(bundle)
    assert done.returncode == 0, done.stderr
    pip, doctor = done.stdout.splitlines()
    assert "--no-index --find-links wheels -c constraints.txt training-frontier" in pip
    assert doctor == "-m orchestrator.doctor"


def test_a_bundle_that_was_changed_is_refused(bundle):
    (bundle / "wheels" / "a-1-py3-none-any.whl").write_text("something else")
    done = install(bundle)
    assert done.returncode != 0
    assert "a-1-py3-none-any.whl: FAILED" in done.stdout
    assert not (bundle / ".venv").exists()


def test_the_readme_names_every_file_and_no_other():
    text = (DEPLOY / "README.md").read_text()
    named = set(re.findall(r"deploy/([\w./]+\w)", text))
    files = {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file()}
    assert named <= files
    assert files - named == {"README.md", "install.sh", "Dockerfile.dockerignore"}
    assert "run its `install.sh`" in text
