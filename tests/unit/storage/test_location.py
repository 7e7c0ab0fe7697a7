"""Where a run is, as people write it."""

from pathlib import Path

import pytest

from orchestrator import recommend
from orchestrator.planning.config import ConfigError
from orchestrator.storage.location import Uri, folder_of, location
from tests.support.config_files import config_of


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("runs/bert", "runs/bert"),
        ("file:///mnt/runs/bert", "/mnt/runs/bert"),
        ("s3://bucket/runs/bert/", "runs/s3/bucket/runs/bert"),
        ("S3://bucket/a@b", "runs/s3/bucket/a@b"),
        ("hf://datasets/user/name", "runs/hf/datasets/user/name"),
    ],
)
def test_folder_of_is_the_path_or_a_working_copy(text, folder):
    assert folder_of(location(text)) == Path(folder)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s3://key:hunter2@bucket/run", "takes no user, revision or query"),
        ("s3://bucket/run?secret_key=hunter2", "takes no user, revision or query"),
        ("hf://datasets/user/name@main", "takes no user, revision or query"),
        ("s3://bucket", "names no folder in the bucket"),
        ("s3://bucket/../other", "empty or relative part"),
        ("s3:///run", "empty or relative part"),
        ("hf://user/name", "hf://datasets/USER/NAME"),
    ],
)
def test_location_bad_uri_is_refused_without_its_secret(text, reason, tmp_path, capsys):
    with pytest.raises(ConfigError, match=rf":2: output: .*{reason}") as caught:
        config_of(tmp_path, output=text)
    with pytest.raises(SystemExit):
        recommend.main([text])
    assert "hunter2" not in f"{caught.value}{capsys.readouterr().err}"


def test_output_uri_keeps_its_form_in_the_config(tmp_path):
    config = config_of(tmp_path, output="gs://bucket/runs/llama/")
    assert config.output == Uri(scheme="gs", path="bucket/runs/llama")
    assert config.to_json()["output"] == "gs://bucket/runs/llama"
    assert str(config.output.with_name("llama-batch-size")) == "gs://bucket/runs/llama-batch-size"
