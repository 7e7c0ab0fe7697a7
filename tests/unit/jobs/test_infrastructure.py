"""The fullest disk is found, wherever the caches are and whether or not it can be examined."""

import os
from pathlib import Path

import pytest

from jobs.infrastructure import fullest_disk_in_words


@pytest.mark.parametrize(
    ("variables", "cache"),
    [
        ({"HF_HOME": "~/models"}, "models"),
        ({"XDG_CACHE_HOME": "{home}/elsewhere"}, "elsewhere"),
        ({}, ".cache"),
    ],
)
def test_fullest_disk_may_be_that_of_the_users_caches(tmp_path, monkeypatch, variables, cache):
    def status_of(folder: str | Path) -> os.statvfs_result:
        examined.append(str(folder))
        if str(folder) == "/dev/shm":
            raise PermissionError(13, "Permission denied")
        return statvfs(folder)

    examined: list[str] = []
    statvfs = os.statvfs
    (tmp_path / cache).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(home=tmp_path))
    monkeypatch.setattr(os, "statvfs", status_of)
    assert "free" in fullest_disk_in_words()
    assert str(tmp_path / cache) in examined
