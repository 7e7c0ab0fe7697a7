"""The Slurm script against stand-ins: it ends as the sweep ended, whichever step fails."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.support.commands import ROOT, ran
from tests.support.golden import assert_golden

SCRIPT = ROOT / "deploy" / "slurm.sbatch"
STAND_INS: Mapping[str, str] = {
    "scontrol": 'echo "scontrol $*" >&2; echo node-1; echo node-2',
    "getent": 'echo "getent $*" >&2; echo "192.0.2.7 STREAM"; echo "192.0.2.8 STREAM"',
    "srun": 'shift 2; exec "$@"',
    # As ray does: what stands after "--" runs, and its status is passed on.
    "ray": 'while [[ $1 != -- ]]; do shift; done; shift; "$@"',
    "python": 'echo "python $*"; exit 0',
}
"""Commands that do what the real ones do when all goes well."""
JOB = {"SLURM_JOB_ID": "123456", "SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_JOB_NUM_NODES": "2"}
SWEEP = "python -m orchestrator.sweep configs/a b.yaml --time-budget 3h --address 192.0.2.7:23456"


def _submit(
    folder: Path, *, job: Mapping[str, str] = JOB, **replaced: str
) -> subprocess.CompletedProcess[str]:
    """Run the script with stand-ins on the PATH, some of them replaced."""
    commands = folder / "bin"
    commands.mkdir()
    for name, script in {**STAND_INS, **replaced}.items():
        (commands / name).write_text(f"#!/bin/bash\n{script}\n")
        (commands / name).chmod(0o755)
    environment = {"PATH": f"{commands}:{os.environ['PATH']}", **job}
    sweep = ("configs/a b.yaml", "--time-budget", "3h")
    done = ran("bash", SCRIPT, *sweep, cwd=folder, env=environment)
    # Neither the token nor the status stays behind, however the job ends.
    assert [path.name for path in folder.iterdir()] == ["bin"]
    return done


def test_slurm_starts_one_cluster_with_a_token_of_its_own(tmp_path):
    srun = (
        'echo "srun $*"; echo "mode $RAY_AUTH_MODE, $(stat -c %a "$RAY_AUTH_TOKEN_PATH"),'
        ' $(wc -c <"$RAY_AUTH_TOKEN_PATH") characters"; exit 3'
    )
    done = _submit(tmp_path, srun=srun)
    assert_golden("slurm.txt", done.stderr + done.stdout)


def test_slurm_job_ends_well_when_the_sweep_does(tmp_path):
    done = _submit(tmp_path)
    assert (done.returncode, done.stdout.splitlines()) == (0, [SWEEP])


@pytest.mark.parametrize("status", [1, 2, 130])
def test_slurm_job_ends_with_the_sweeps_status(status, tmp_path):
    assert _submit(tmp_path, python=f"exit {status}").returncode == status


FAILURES: Mapping[str, tuple[Mapping[str, str], str]] = yaml.safe_load(
    (ROOT / "tests/golden/slurm_failures.yaml").read_text()
)


@pytest.mark.parametrize("case", FAILURES)
def test_slurm_job_in_which_a_step_fails_ends_in_a_sentence(case, tmp_path):
    replaced, sentence = FAILURES[case]
    done = _submit(tmp_path, **replaced)
    assert done.returncode != 0
    assert f"slurm.sbatch: {sentence}" in done.stderr


def test_slurm_script_outside_of_a_job_says_how_to_start_it(tmp_path):
    done = _submit(tmp_path, job={})
    assert done.returncode == 1
    assert "start this script with sbatch" in done.stderr
