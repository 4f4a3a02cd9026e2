"""Images that lie elsewhere: read by URI, over HTTP or from an object store, when they are examined."""

from __future__ import annotations

import os
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit

from vsemb.errors import DataError, needs_extra, one_line, reason_of

#: Seconds to wait for a server's next bytes, and for all of them.
TIMEOUT, DEADLINE = 20.0, 120.0
#: Larger files are refused; an image of 50 million pixels is rarely larger.
MAX_BYTES = 64 << 20
ATTEMPTS = 3

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_WEB = ("http", "https")
# What a later attempt may find otherwise; anything else a server says is final.
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_CHUNK = 1 << 16


def scheme(name: str | os.PathLike[str]) -> str:
    """Return the scheme of a URI in lower case, `""` for a path.

    Example:

    >>> scheme("gs://photos/1.jpg"), scheme("photos/1.jpg")
    ('gs', '')
    """
    prefix = _SCHEME.match(name) if isinstance(name, str) else None
    return prefix[1].lower() if prefix else ""


@dataclass(frozen=True)
class RemoteImage:
    """An image that a URI names, in place of a `Path` in an `ImageRecord`.

    `http` and `https` are read with the standard library: three attempts, no answer longer than `MAX_BYTES`
    or slower than `DEADLINE` seconds. Other schemes (`gs`, `s3`, `hdfs`, ...) are read by Apache Beam's file
    systems and need the extra `beam`, with Beam's own for the store, e.g. `apache-beam[gcp]`.

    Args:
        uri: where it lies.

    Example:

        RemoteImage("https://example.org/dog.jpg").read_bytes()
    """

    uri: str

    def read_bytes(self) -> bytes:
        """Read the image.

        Raises:
            FileNotFoundError: if the server or store has no such image.
            OSError: if it cannot be read; its message is the reason.
            MissingExtraError: if the scheme needs a package that is not installed.
            DataError: if nothing that is installed reads the scheme.
        """
        return _download(self.uri) if scheme(self.uri) in _WEB else _read_stored(self.uri)


@dataclass(frozen=True)
class RemoteFolder:
    """A URI that image names are relative to; its images are not checked for existence.

    Example:

    >>> RemoteFolder("https://example.org/photos/") / "a b.jpg"
    RemoteImage(uri='https://example.org/photos/a%20b.jpg')
    """

    uri: str

    def __truediv__(self, name: str) -> RemoteImage:
        return RemoteImage(f"{self.uri.rstrip('/')}/{quote(name) if scheme(self.uri) in _WEB else name}")

    def is_dir(self) -> bool:
        """Return True: whether images exist is checked one by one."""
        return True


def images_folder(images: str | os.PathLike[str]) -> Path | RemoteFolder:
    """Return the folder that a reader's option `images` names, by path or URI."""
    if scheme(images) == "file":
        return _local_path(str(images))
    return RemoteFolder(str(images)) if scheme(images) else Path(images)


def located(name: str) -> Path | RemoteImage:
    """Return the image that an absolute URI names; one of the scheme `file` is a `Path`.

    Raises:
        DataError: for a URI without a host or bucket, or a file of another machine.

    Example:

    >>> located("file:///photos/a%20b.jpg").as_posix()
    '/photos/a b.jpg'
    """
    if scheme(name) == "file":
        return _local_path(name)
    if any(character.isspace() or not character.isprintable() for character in name):
        raise DataError(f"The URI {name!r} holds white space; write it as %20.")
    if scheme(name) in _WEB and not urlsplit(name).hostname:
        raise DataError(f"The URI {name!r} names no host.")
    return RemoteImage(name)


def _local_path(uri: str) -> Path:
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not PurePosixPath(path).is_absolute() or "\0" in path:
        raise DataError(f"The URI {uri!r} names no file of this machine; write it as file:///folder/name.")
    return Path(path)


class _Final(OSError):
    """What another attempt would not change."""


class _OnlyTheWeb(urllib.request.HTTPRedirectHandler):
    """Follows redirects from the web to the web, and to nothing else that urllib knows."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if scheme(newurl) not in _WEB:
            raise _Final(f"redirected to {one_line(newurl, 60)}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(uri: str) -> bytes:
    opener = urllib.request.build_opener(_OnlyTheWeb)
    asked = urllib.request.Request(uri, headers={"User-Agent": "vsemb", "Accept": "image/*"})
    end = time.monotonic() + DEADLINE
    problem = OSError()
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(min(2.0**attempt, max(0.0, end - time.monotonic())))
        try:
            with opener.open(asked, timeout=TIMEOUT) as answer:
                return _all_of(answer, end)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in (404, 410):
                raise FileNotFoundError(uri) from error
            problem = OSError(f"the server answers {error.code}")
            if error.code not in _PASSING:
                break
        except _Final:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            problem = OSError(one_line(reason_of(reason), 100))
        except Exception as error:  # http.client's errors are no OSError.
            problem = OSError(f"the server breaks HTTP: {type(error).__name__}")
        if time.monotonic() >= end:
            break
    raise problem


def _all_of(answer: IO[bytes], end: float) -> bytes:
    # `read` of many bytes waits for all of them, so that a server that trickles would never time out.
    read = getattr(answer, "read1", answer.read)
    declared = getattr(answer, "headers", {}).get("Content-Length")
    parts, size = [], 0
    while block := read(_CHUNK):
        parts.append(block)
        size += len(block)
        if size > MAX_BYTES:
            raise _Final(f"longer than {MAX_BYTES >> 20} MiB")
        if time.monotonic() > end:
            raise _Final(f"not there after {DEADLINE:.0f} seconds")
    if declared is not None and declared.isdecimal() and size < int(declared):
        raise OSError(f"the connection closed after {size} of {declared} bytes")
    return b"".join(parts)


def _read_stored(uri: str) -> bytes:
    """Read through Beam's file systems; what the clients of stores raise, each its own kind, becomes `OSError`."""
    with needs_extra("apache_beam", "beam"):
        from apache_beam.io.filesystem import CompressionTypes
        from apache_beam.io.filesystems import FileSystems
    try:
        with FileSystems.open(uri, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            data: bytes = file.read(MAX_BYTES + 1)
    except (OSError, ImportError):
        raise
    except ValueError as error:
        if "filesystem" not in str(error):
            raise OSError(one_line(error, 100)) from error
        raise DataError(
            f"Nothing that is installed reads {uri!r}. Install Beam's package for the store, e.g. "
            "pip install 'apache-beam[gcp]' for gs:// or 'apache-beam[aws]' for s3://."
        ) from error
    except Exception as error:
        if "404" in str(error) or "NoSuchKey" in str(error) or "not found" in str(error).lower():
            raise FileNotFoundError(uri) from error
        raise OSError(one_line(f"{type(error).__name__}: {error}", 100)) from error
    if len(data) > MAX_BYTES:
        raise _Final(f"longer than {MAX_BYTES >> 20} MiB")
    return data
