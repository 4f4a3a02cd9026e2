"""A server on this machine with the part of the Hugging Face Hub's API that uploads and downloads use."""

from __future__ import annotations

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class FakeHub(ThreadingHTTPServer):
    """Repositories in memory.

    Attributes:
        repositories: USER/NAME -> path of a file -> its bytes.
        private: names of private repositories.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlsplit(self.path).path
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'somebody'}/{asked['name']}"
            self.server.repositories.setdefault(name, {})
            self.server.private |= {name} if asked.get("visibility") == "private" or asked.get("private") else set()
            self._answer({"url": f"{self.server.url}/{name}", "name": name})
        elif path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = [{"path": each["path"], "uploadMode": "regular"} for each in json.loads(body)["files"]]
            self._answer({"files": [{**each, "shouldIgnore": False} for each in files]})
        elif "/commit/" in path:
            name = path.removeprefix("/api/models/").partition("/commit/")[0]
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    self.server.repositories[name][value["path"]] = base64.b64decode(value["content"])
            self._answer({"success": True, "commitOid": "1" * 40, "commitUrl": f"{self.server.url}/{name}/commit/1"})
        else:
            self._answer({"error": path}, 404)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        name, _, file = path.removeprefix("/api/models/").removeprefix("/").partition("/resolve/")
        name = name.partition("/revision/")[0].partition("/tree/")[0]
        files = self.server.repositories.get(name)
        if files is None:
            self._answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif file:
            content = files.get(file.partition("/")[2])
            if content is None:
                self._answer({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            else:
                tag = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": "1" * 40}
                self._send(200, content, tag)
        elif "/tree/" in path:
            self._answer([{"type": "file", "path": p, "size": len(files[p]), "oid": "1" * 40} for p in files])
        else:
            self._answer({"id": name, "sha": "1" * 40, "siblings": [{"rfilename": path} for path in files]})

    do_HEAD = do_GET

    def _answer(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
