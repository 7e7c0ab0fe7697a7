"""Runs in a dataset repository of the Hugging Face Hub: everything that changed is one commit, with a dataset card."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.reporting import dataset_card
from orchestrator.reporting.publish import summarize_folder
from orchestrator.storage.location import Uri
from orchestrator.storage.object_store import Store
from orchestrator.storage.run_metadata import TRIALS

if TYPE_CHECKING:
    from huggingface_hub import HfApi


class Hub(Store):
    """``hf://datasets/USER/NAME[/FOLDER]``. A repository that it has to make is private."""

    def __init__(self, uri: Uri) -> None:
        super().__init__(uri)
        _, user, name, *folder = uri.path.split("/")
        self._repository, self._folder = f"{user}/{name}", "".join(f"{part}/" for part in folder)

    def prepare(self) -> None:
        """Make the repository where there is none."""
        with self._answering():
            self._api().create_repo(
                self._repository, repo_type="dataset", private=True, exist_ok=True
            )

    def update(self, folder: Path, changed: Collection[str], gone: Collection[str]) -> None:
        """One commit; none where nothing changed."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            *(
                CommitOperationAdd(f"{self._folder}{name}", folder / name)
                for name in sorted(changed)
            ),
            *(CommitOperationDelete(f"{self._folder}{name}") for name in sorted(gone)),
        ]
        if TRIALS in changed:
            about = dataset_card.render(
                summarize_folder(folder), tables=folder.glob("*.parquet"), uri=str(self.uri)
            )
            operations.append(CommitOperationAdd(f"{self._folder}README.md", about.encode()))
        if operations:
            with self._answering():
                self._api().create_commit(
                    self._repository,
                    operations,
                    commit_message=f"{len(operations)} files",
                    repo_type="dataset",
                )
                self._files.handler.fs.invalidate_cache()

    def _api(self) -> HfApi:
        from huggingface_hub import HfApi

        return HfApi()
