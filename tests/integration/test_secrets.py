"""A trial that fails with secrets in its environment leaves none of them in its record."""

import dataclasses
import json

from jobs.spec import to_json
from tests.support.fresh_processes import printed_by_python

SECRET = "hunter2-planted"
NAMES = ("HF_TOKEN", "RAY_AUTH_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY")


def test_failing_trial_record_holds_no_secret(tiny_spec, processes, tmp_path):
    spec = tiny_spec()
    broken = dataclasses.replace(
        spec, model=dataclasses.replace(spec.model, config={"num_attention_heads": 0})
    )
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(to_json(broken)))
    secrets = dict.fromkeys(NAMES, SECRET)
    done = printed_by_python(processes, ["jobs", str(path)], tmp_path, secrets)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["outcome"] == "failed"
    assert record["reason"]
    assert SECRET not in done.stdout + done.stderr
