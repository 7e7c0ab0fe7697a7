"""A Hugging Face Hub in one process: dataset repositories in memory, and the calls of an upload."""

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
Answer = tuple[int, Any]
"""Status and content: JSON values, or a file's bytes."""
_DATASET = r"(?:/api)?/datasets/([^/]+/[^/]+)(?:/([^/]+)/main)?(?:/(.*))?"
_ERROR_CODES = {"Repository not found": "RepoNotFound", "Entry not found": "EntryNotFound"}


@dataclass
class FakeHub:
    """The requests that came, and the repositories: name -> path -> content."""

    address: str = ""
    token: str = "hf_planted"
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    commits: list[list[str]] = field(default_factory=list)
    """The paths that each commit wrote or deleted."""

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """The answer to a request with the right token."""
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        match = re.fullmatch(_DATASET, path)
        if match is None:
            return 404, {"error": f"{method} {path}"}
        repository = match[1]
        if repository not in self.repositories:
            return 404, {"error": "Repository not found"}
        return self._call(repository, match[2] or "", match[3] or "", body)

    def _create(self, request: dict[str, Any]) -> Answer:
        name = f"{request.get('organization') or 'user'}/{request['name']}"
        url = f"{self.address}/datasets/{name}"
        if name in self.repositories:
            return 409, {"error": "You already created this dataset repo", "url": url}
        self.repositories[name] = {}
        self.private[name] = request.get("private") or request.get("visibility") == "private"
        return 200, {"url": url, "id": name}

    def _call(self, repository: str, call: str, path: str, body: bytes) -> Answer:
        files = self.repositories[repository]
        match call:
            case "" | "revision":
                siblings = [{"rfilename": name} for name in files]
                return 200, {"id": repository, "sha": SHA, "siblings": siblings}
            case "tree":
                return 200, list(_tree(files, f"{path}/" if path else ""))
            case "paths-info":
                wanted = json.loads(body)["paths"]
                return 200, [entry for entry in _tree(files, "") if entry["path"] in wanted]
            case "preupload":
                return 200, {"files": _upload_modes(json.loads(body)["files"])}
            case "commit":
                self._commit(files, [json.loads(line) for line in body.splitlines()])
                url = f"{self.address}/datasets/{repository}/commit/{SHA}"
                return 200, {"success": True, "commitOid": SHA, "commitUrl": url}
            case "resolve" if path in files:
                return 200, files[path]
            case _:
                return 404, {"error": "Entry not found"}

    def _commit(self, files: dict[str, bytes], lines: list[dict[str, Any]]) -> None:
        paths = []
        for line in lines:
            if line["key"] == "header":
                continue
            path = line["value"]["path"]
            paths.append(path)
            if line["key"] == "file":
                files[path] = base64.b64decode(line["value"]["content"])
            else:
                assert line["key"] == "deletedFile"
                del files[path]
        self.commits.append(paths)


def _upload_modes(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = [file["path"] for file in files]
    return [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]


def _tree(files: dict[str, bytes], prefix: str) -> Iterator[dict[str, Any]]:
    """Folders and files whose paths start with the prefix."""
    folders = set()
    for name in files:
        folders |= {name[: slash.start()] for slash in re.finditer("/", name)}
    for name in sorted(folders):
        if name.startswith(prefix):
            yield {"type": "directory", "path": name, "oid": SHA}
    for name, content in files.items():
        if name.startswith(prefix):
            yield {"type": "file", "path": name, "size": len(content), "oid": SHA}


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = unquote(urlsplit(self.path).path)
            status, content = 401, {"error": "Invalid username or password."}
            if self.headers.get("Authorization") == f"Bearer {hub.token}":
                status, content = hub.answer(self.command, path, body)
            self._send(status, content)

        def _send(self, status: int, content: Any) -> None:
            payload = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("ETag", f'"{SHA}"')
            self.send_header("X-Repo-Commit", SHA)
            self.send_header("Content-Length", str(len(payload)))
            if status == 404 and content["error"] in _ERROR_CODES:
                self.send_header("X-Error-Code", _ERROR_CODES[content["error"]])
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(payload)

        do_GET = do_POST = do_HEAD = _serve

        def log_message(self, format: str, *values: Any) -> None:
            return None

    return Handler


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub at an address of this machine. A request without its token is refused."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
