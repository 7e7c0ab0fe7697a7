"""A Hugging Face Hub of one process: dataset repositories in memory, and the few calls that publishing makes."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

SHA = "0" * 40


@dataclass
class FakeHub:
    """What was asked of it, and what it holds: repository -> path -> content."""

    address: str = ""
    token: str = "hf_planted"
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    commits: list[list[str]] = field(default_factory=list)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and content: JSON values, or a file's bytes."""
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if found := re.fullmatch(
            r"(?:/api)?/datasets/([^/]+/[^/]+)(?:/([^/]+)/main)?(?:/(.*))?", path
        ):
            repository, call, rest = found[1], found[2] or "", found[3] or ""
            if repository not in self.repositories:
                return 404, {"error": "Repository not found"}
            return self._call(repository, call, rest, body)
        return 404, {"error": f"{method} {path}"}

    def _create(self, asked: dict[str, Any]) -> tuple[int, Any]:
        name = f"{asked.get('organization') or 'user'}/{asked['name']}"
        if name in self.repositories:
            return 409, {
                "error": "You already created this dataset repo",
                "url": f"{self.address}/datasets/{name}",
            }
        self.repositories[name], self.private[name] = (
            {},
            asked.get("private") or asked.get("visibility") == "private",
        )
        return 200, {"url": f"{self.address}/datasets/{name}", "id": name}

    def _call(self, repository: str, call: str, rest: str, body: bytes) -> tuple[int, Any]:
        files = self.repositories[repository]
        if call in ("", "revision"):
            return 200, {
                "id": repository,
                "sha": SHA,
                "siblings": [{"rfilename": name} for name in files],
            }
        if call == "tree":
            return 200, list(_tree(files, f"{rest}/" if rest else ""))
        if call == "paths-info":
            asked = json.loads(body)["paths"]
            return 200, [entry for entry in _tree(files, "") if entry["path"] in asked]
        if call == "preupload":
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = [
                {"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names
            ]
            return 200, {"files": modes}
        if call == "commit":
            self._commit(files, [json.loads(line) for line in body.splitlines()])
            return 200, {
                "success": True,
                "commitOid": SHA,
                "commitUrl": f"{self.address}/datasets/{repository}/commit/{SHA}",
            }
        return (
            (200, files[rest])
            if call == "resolve" and rest in files
            else (404, {"error": "Entry not found"})
        )

    def _commit(self, files: dict[str, bytes], lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                del files[line["value"]["path"]]
        self.commits.append([line["value"]["path"] for line in lines if line["key"] != "header"])


def _tree(files: dict[str, bytes], under: str) -> Iterator[dict[str, Any]]:
    folders = {name[: end.start()] for name in files for end in re.finditer("/", name)}
    yield from (
        {"type": "directory", "path": name, "oid": SHA}
        for name in sorted(folders)
        if name.startswith(under)
    )
    for name, content in files.items():
        if name.startswith(under):
            yield {"type": "file", "path": name, "size": len(content), "oid": SHA}


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub at an address of this machine. Whoever does not bring its token is refused."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = unquote(urlsplit(self.path).path)
            if self.headers.get("Authorization") == f"Bearer {hub.token}":
                status, content = hub.answer(self.command, path, body)
            else:
                status, content = 401, {"error": "Invalid username or password."}
            sent = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {
                "ETag": f'"{SHA}"',
                "X-Repo-Commit": SHA,
                "Content-Length": str(len(sent)),
            }.items():
                self.send_header(name, value)
            if status == 404 and "not found" in content["error"]:
                self.send_header(
                    "X-Error-Code",
                    f"{content['error'].split()[0][:5].replace('Repos', 'Repo')}NotFound",
                )
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(sent)

        do_GET = do_POST = do_HEAD = _serve

        def log_message(self, format: str, *values: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
