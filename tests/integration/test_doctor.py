"""The doctor asks every node of a real Ray cluster."""

import json

import pytest

from tests.support.commands import python


@pytest.mark.usefixtures("ray_session")
def test_doctor_reports_every_node_of_a_cluster():
    import ray

    address = ray.get_runtime_context().gcs_address
    done = python("-m", "orchestrator.doctor", "--address", address, "--json")
    reports = json.loads(done.stdout)
    assert [report["node"] for report in reports][1:] == ["cluster"]
    assert reports[0]["versions"]["ray"] == ray.__version__
    assert [finding["message"] for finding in reports[1]["findings"]] == [
        "1 node with equal versions"
    ]
    severities = {finding["severity"] for report in reports for finding in report["findings"]}
    assert done.returncode == int("problem" in severities)
