"""A trial that fails with secrets in its environment leaves none of them in its record."""

import dataclasses
import json
import os
import subprocess
import sys

from jobs.spec import to_json

SECRET = "hunter2-planted"
NAMES = ("HF_TOKEN", "RAY_AUTH_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY")


def test_failing_trial_record_holds_no_secret(tiny_spec, tmp_path):
    spec = tiny_spec()
    broken = dataclasses.replace(
        spec, model=dataclasses.replace(spec.model, config={"num_attention_heads": 0})
    )
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(to_json(broken)))
    environment = {**os.environ, **dict.fromkeys(NAMES, SECRET)}
    command = [sys.executable, "-m", "jobs", str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    record = json.loads(done.stdout)
    assert record["outcome"] == "failed"
    assert record["reason"]
    assert SECRET not in done.stdout + done.stderr
