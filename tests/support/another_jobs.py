"""A package of the user's that has the name of one of this program's."""

from pathlib import Path


def write_another_jobs(folder: Path) -> Path:
    """Write a package ``jobs`` that must not be imported into the folder; returns the folder."""
    (folder / "jobs").mkdir()
    for name in ("__init__", "__main__"):
        (folder / "jobs" / f"{name}.py").write_text("raise SystemExit('the wrong jobs')\n")
    return folder
