"""The place of a run: a folder of this machine, or a URI such as ``s3://bucket/runs/bert``."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Uri:
    """A run's folder in an object store. It is printed and kept, so it holds no credential."""

    scheme: str
    path: str
    """Bucket and key, or ``datasets/USER/NAME`` on the Hugging Face Hub; no slash at either end."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def with_name(self, name: str) -> Self:
        return replace(self, path=f"{self.path.rpartition('/')[0]}/{name}")


Location = Path | Uri


def location(text: str | Path) -> Location:
    """A folder's path or a URI. Raises ValueError on a URI that names no folder, or that carries a
    credential or a query. The message does not repeat such a URI."""
    if isinstance(text, Path):
        return text
    match = _URI.fullmatch(text)
    if match is None:
        return Path(text)
    # The scheme of a URI is the same in capitals (RFC 3986, section 3.1).
    scheme = match[1].lower()
    path = match[2].rstrip("/")
    if scheme == "file":
        return Path(path or "/")
    _check(scheme, path)
    return Uri(scheme=scheme, path=path)


def _check(scheme: str, path: str) -> None:
    parts = path.split("/")
    # First the credentials: the later messages repeat the URI. A user stands before the host; on
    # the Hub an ``@`` names a revision anywhere in the path.
    if "@" in (path if scheme == "hf" else parts[0]) or re.search(r"[?#]", path):
        raise ValueError(
            f"a {scheme}:// URI takes no user, revision or query; credentials and endpoints come"
            " from the environment, as the store's own tools read them"
        )
    if {"", ".", ".."}.intersection(parts):
        raise ValueError(f'"{scheme}://{path}" has an empty or relative part')
    if scheme == "hf" and (parts[0] != "datasets" or len(parts) < 3):
        raise ValueError("a run on the Hub lies in a dataset repository: hf://datasets/USER/NAME")
    # A bucket's root holds many runs, so a run needs a folder in it.
    if len(parts) < 2:
        raise ValueError(f"names no folder in the bucket: {scheme}://{parts[0]}/runs/NAME")


def folder_of(target: Location) -> Path:
    """The folder on this machine that a run is written to: its own, or a URI's working copy."""
    return target if isinstance(target, Path) else Path("runs", target.scheme, target.path)
