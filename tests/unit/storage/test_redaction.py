"""Secrets in a configuration reach neither run.json nor the tables made from it."""

import json
import math
from typing import Any

import pyarrow.parquet as pq
import pytest

from orchestrator.reporting.publish import publish
from orchestrator.storage.redaction import REDACTED, redacted, secret_paths
from orchestrator.storage.run_folder import RunFolder
from tests.support.commands import ROOT
from tests.support.records import make_record

SECRET = "hunter2-planted"
SIGNED = f"https://bucket.s3.amazonaws.com/data?X-Amz-Expires=60&X-Amz-Signature={SECRET}"
PLANTED: dict[str, Any] = {
    "loggers": {
        "wandb": {"settings": {"api_key": SECRET, "nested": [{"authToken": SECRET}]}},
        "mlflow": {
            "tracking_uri": f"https://user:{SECRET}@mlflow.example/x",
            "tags": {"owner": "me", "DB_PASSWORD": SECRET},
        },
    },
    "model": {"config": {"hub": {"token": SECRET, "secret": {"deep": [SECRET]}}}},
    "data": {"path": SIGNED, "other": f"abfs://x?sv=1&sig={SECRET}"},
    "store": f"AccountName=x;AccountKey={SECRET};EndpointSuffix=y",
}


def test_secrets_reach_no_file_of_the_run(tmp_path):
    folder = RunFolder(tmp_path)
    command = f"python -m orchestrator.sweep c.yaml --address ray://me:{SECRET}@h:1"
    with folder.locked():
        folder.describe({"name": "x", "config": PLANTED, "command": command})
        folder.write(make_record())
        publish(tmp_path)
    metadata = pq.read_schema(tmp_path / "trials.parquet").metadata
    assert SECRET not in str(metadata)
    assert b"owner" in metadata[b"config"]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def test_secrets_of_an_earlier_versions_run_reach_no_table(tmp_path):
    folder = RunFolder(tmp_path)
    with folder.locked():
        folder.write(make_record())
        described = {"name": "x", "config": PLANTED, "schema_version": 2}
        (tmp_path / "run.json").write_text(json.dumps(described))
        publish(tmp_path)
    assert SECRET not in str(pq.read_schema(tmp_path / "trials.parquet").metadata)
    assert SECRET not in (tmp_path / "report.html").read_text()


def test_harmless_values_stay():
    for line in (ROOT / "tests/golden/harmless.jsonl").read_text().splitlines():
        assert redacted(json.loads(line)) == json.loads(line)


@pytest.mark.parametrize(
    "text",
    [
        f"hf_{'a1' * 17}",
        f"Authorization: Bearer {'x' * 20}",
        f"--wandb-api-key {SECRET}",
        "AKIA" + "ABCD" * 4,
        f"postgresql://u:{SECRET}@db/x",
        f"https://{SECRET}@github.com/a/b",
        f"virtual_tokens=8,api_key={SECRET}",
        f"postgresql://u:pa/{SECRET}@db/x",
        f"https://u:pa?{SECRET}@db/x",
        f"host=h password='a {SECRET}' user=x",
        f"password = {SECRET}",
        f'{{"api_key": "{SECRET}"}}',
        f"X-Api-Key: {SECRET}",
        f"Authorization: token {SECRET}",
        f"Cookie: session={SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\nMII{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"https://hooks.slack.com/services/T0/B0/{'x' * 20}",
        f"nvapi-{'a1B2' * 16}",
        f"pypi-AgEI{'a1' * 30}",
    ],
)
def test_token_shaped_text_is_redacted_under_any_name(text):
    cleaned = redacted({"notes": text})["notes"]
    assert REDACTED in cleaned
    assert SECRET not in cleaned
    assert redacted(cleaned) == cleaned


@pytest.mark.parametrize(
    "name",
    ["dbpassword", "HFTOKEN", "secretkey", "accesstoken", "ApiKeY", "ＡＰＩ＿ＫＥＹ", "webhook"],
)
def test_secret_under_a_name_in_one_word_is_redacted_at_any_depth(name):
    assert SECRET not in str(redacted({name: [{"deep": SECRET}]}))


def test_key_that_is_a_secret_is_redacted_and_found():
    planted = {"hub": {f"https://me:{SECRET}@host": 1}}
    assert SECRET not in str(redacted(planted))
    assert list(secret_paths(planted)) == [("hub",)]


def test_secret_paths_lead_to_every_secret_at_any_depth():
    paths = set(secret_paths(PLANTED))
    assert ("model", "config", "hub", "token") in paths
    assert ("model", "config", "hub", "secret", "deep", 0) in paths
    assert ("loggers", "wandb", "settings", "nested", 0, "authToken") in paths
    assert all(SECRET in str(_value_at(PLANTED, path)) for path in paths)
    assert list(secret_paths(redacted(PLANTED))) == []


def test_nan_is_no_secret_but_under_the_name_of_one():
    assert list(secret_paths({"lr": math.nan, "sizes": [1.0, math.nan]})) == []
    assert list(secret_paths({"password": math.nan})) == [("password",)]


def _value_at(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@pytest.mark.parametrize(
    "piece",
    ["a", "-", "-eyJ", "a=", "a://", "--a ", "--a", "a ", "a: ", "a='", "a://b:", "-----BEGIN "],
)
def test_long_text_is_read_in_one_pass(piece):
    # A pattern that began anew at every character would take hours for a mebibyte.
    assert redacted({"notes": piece * (2**20 // len(piece))})["notes"]
