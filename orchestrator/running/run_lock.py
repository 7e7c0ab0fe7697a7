"""Locks a run folder for one driver during a run. A run at a URI is copied before and after."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from orchestrator.storage.location import Location, Uri, folder_of
from orchestrator.storage.run_folder import RunFolder, RunFolderError
from orchestrator.storage.user_files import refuse_folder_of_another


class NothingToResumeError(RuntimeError):
    """``--resume`` was given, and the folder has no run to continue."""


@contextlib.contextmanager
def locked_run_folder(
    target: Location, *, resume: bool, force: bool = False
) -> Iterator[RunFolder]:
    """The run folder of ``target``, locked against other writers. Raises NothingToResumeError,
    RunFolderError, or FileExistsError if it has files of something else, unless ``force``."""
    folder = RunFolder(folder_of(target))

    def require_run() -> None:
        if resume and not folder.exists():
            raise NothingToResumeError(f"{target}: no run to resume")

    if isinstance(target, Path):
        refuse_folder_of_another(target, force=force)
        require_run()  # before the lock, which would create the folder
    with folder.locked(), _copied(target, folder):
        require_run()  # a download may have found none
        yield folder


@contextlib.contextmanager
def _copied(target: Location, folder: RunFolder) -> Iterator[None]:
    """Download a run at a URI before, and upload it after. Raises RunFolderError."""
    if isinstance(target, Path):
        yield
        return
    from orchestrator.storage.remote import RemoteError, check_writable, download, upload

    try:
        check_writable(target)
        download(target, folder.path)
    except RemoteError as error:
        raise RunFolderError(str(error)) from None
    try:
        yield
    finally:
        if folder.exists():
            try:
                # An interrupted run, too, so that no measurement is lost if this machine is.
                upload(folder.path, target, card=_hub_card(folder.path, target))
            except RemoteError as error:
                raise RunFolderError(
                    f"{error}; the run is complete in {folder.path}, and --resume publishes it"
                ) from None
            print(f"published to {target}", file=sys.stderr)


def _hub_card(folder: Path, uri: Uri) -> str:
    """The dataset card of a run on the Hugging Face Hub; empty elsewhere, and without a table."""
    tables = tuple(folder.glob("*.parquet"))
    if uri.scheme != "hf" or not tables:
        return ""
    from orchestrator.analysis.dataset import load_dataset
    from orchestrator.reporting.markdown import dataset_card
    from orchestrator.reporting.report import Report

    return dataset_card(Report(dataset=load_dataset(folder), files=tables), str(uri))
