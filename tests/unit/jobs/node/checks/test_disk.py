"""The speed of a folder's disk."""

from __future__ import annotations

from pathlib import Path

from jobs.node.checks.disk import probe


def test_probe_measures_a_folder_and_leaves_it_clean(tmp_path: Path) -> None:
    disk = probe(tmp_path, size=32 * 2**20)
    assert disk.error == ""
    assert min(disk.write_bytes_per_second, disk.read_bytes_per_second, disk.free_bytes) > 0
    assert list(tmp_path.iterdir()) == []


def test_probe_of_a_missing_folder_says_so(tmp_path: Path) -> None:
    assert probe(tmp_path / "absent").error == "No such file or directory"
