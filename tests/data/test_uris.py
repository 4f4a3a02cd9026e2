"""Images behind URIs, read from servers that behave and servers that do not."""

from __future__ import annotations

import http.server
import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from vsemb.data import uris
from vsemb.data.readers import read
from vsemb.data.records import ImageRecord
from vsemb.data.store import StoredDataset
from vsemb.data.uris import RemoteFolder, RemoteImage, images_folder, located
from vsemb.data.writing.validate import examine, signature
from vsemb.data.writing.writer import write_dataset
from vsemb.errors import DataError


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (5, 4), "red").save(buffer, "PNG")
    return buffer.getvalue()


class Answers(http.server.BaseHTTPRequestHandler):
    """What the server says, by path; `asked` counts the requests of each."""

    asked: dict[str, int] = {}

    def do_GET(self) -> None:
        number = self.asked[self.path] = self.asked.get(self.path, 0) + 1
        if self.path in ("/gone.png", "/forbidden.png"):
            self.send_error(404 if "gone" in self.path else 403)
        elif "busy" in self.path and (number < 3 or "always" in self.path):
            self.send_error(503)
        elif self.path.startswith("/to-"):
            self.send_response(302)
            where = {
                "/to-image": "/a%20b.png",
                "/to-file": "file:///etc/hostname",
                "/to-ftp": "ftp://h/a.png",
            }
            self.send_header("Location", where[self.path])
            self.end_headers()
        elif self.path == "/short.png":
            self._send(png()[:20], len(png()))
        elif self.path == "/trickle.png":
            self.send_response(200)
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.05)
        else:
            self._send(png() if self.path.endswith(".png") else b"x" * 3000)

    def _send(self, data: bytes, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server; waiting between attempts takes no time."""
    Answers.asked = {}
    real = time.sleep
    monkeypatch.setattr(uris.time, "sleep", lambda seconds: real(min(seconds, 0.05)))
    with http.server.ThreadingHTTPServer(("localhost", 0), Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://localhost:{listening.server_port}"
        listening.shutdown()


def reason(uri: str) -> str | None:
    return examine(ImageRecord("a.png", ("text",), "train", RemoteImage(uri)), None)[0]["reason"]


def test_images_are_read(server: str) -> None:
    assert (RemoteFolder(server) / "a b.png").read_bytes() == png()
    assert RemoteImage(f"{server}/to-image").read_bytes() == png()
    # A server that is busy is asked again.
    assert RemoteImage(f"{server}/busy.png").read_bytes() == png() and Answers.asked["/busy.png"] == 3


def test_what_cannot_be_read(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason(f"{server}/gone.png") == "no such file" and Answers.asked["/gone.png"] == 1
    assert reason(f"{server}/forbidden.png") == "cannot be read: the server answers 403"
    assert Answers.asked["/forbidden.png"] == 1
    assert reason(f"{server}/always-busy.png") == "cannot be read: the server answers 503"
    assert Answers.asked["/always-busy.png"] == uris.ATTEMPTS
    assert reason(f"{server}/to-file") == "cannot be read: the server answers 302"
    assert reason(f"{server}/to-ftp") == "cannot be read: redirected to ftp://h/a.png"
    assert "closed after 20 of" in str(reason(f"{server}/short.png"))
    assert "cannot be read: " in str(reason("http://localhost:1/a.png"))
    monkeypatch.setattr(uris, "MAX_BYTES", 1 << 20)
    assert str(reason(f"{server}/text.txt")).startswith("not an image")
    monkeypatch.setattr(uris, "MAX_BYTES", 2000)
    assert "longer than" in str(reason(f"{server}/text.txt"))
    monkeypatch.setattr(uris, "DEADLINE", 0.3)
    before = time.monotonic()
    assert "not there after" in str(reason(f"{server}/trickle.png"))
    assert time.monotonic() - before < 4  # The server would take five seconds.


def test_tables_of_uris(server: str, tmp_path: Path) -> None:
    (tmp_path / "local.png").write_bytes(png())
    names = [f"{server}/1.png", "local.png", (tmp_path / "local.png").as_uri(), f"{server}/gone.png"]
    (tmp_path / "t.csv").write_text("file,caption,split\n" + "".join(f"{name},a,train\n" for name in names))
    with pytest.raises(DataError, match="line 2.*`uris`"):
        read("table", tmp_path / "t.csv")
    source = read("table", tmp_path / "t.csv", uris=True)
    assert source.options == {"uris": True}
    description = {"format": "table", "path_name": "t.csv", "sha256": {}, "options": {}}
    dataset = write_dataset(source.records, tmp_path / "out", name="out", source=description)
    assert StoredDataset.open(tmp_path / "out").split("train").keys == names[:3]
    assert dataset.manifest["skipped"] == [{"key": names[3], "reason": "no such file"}]


def test_a_remote_images_folder(server: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("file,caption,split\na b.png,red,train\n")
    (record,) = read("table", tmp_path / "t.csv", images=server).records
    assert record.image == RemoteImage(f"{server}/a%20b.png")
    (tmp_path / "t.csv").write_text("file,caption,split\n../a.png,red,train\n")
    with pytest.raises(DataError):
        read("table", tmp_path / "t.csv", images=server)


def test_folders_and_names(tmp_path: Path) -> None:
    assert images_folder("photos") == Path("photos") and images_folder("file:///a%20b") == Path("/a b")
    assert images_folder("gs://b/x/") == RemoteFolder("gs://b/x/")
    # Names in a store are no URLs, and are not quoted.
    assert RemoteFolder("gs://b/x/") / "a b.jpg" == RemoteImage("gs://b/x/a b.jpg")
    for wrong in ("file://elsewhere/a.png", "http:///a.png", "https://h/a b.png"):
        with pytest.raises(DataError, match="URI"):
            located(wrong)


def test_signatures_ask_no_server() -> None:
    first, second = (ImageRecord("a", ("b",), "train", RemoteImage(f"http://localhost:1/{n}")) for n in (1, 2))
    assert signature(first) != signature(second) and signature(first) == signature(first)


def test_stores_need_beam_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "apache_beam.io.filesystem", None)
    with pytest.raises(ImportError, match=r"vsemb\[beam\]"):
        RemoteImage("gs://bucket/a.png").read_bytes()
