"""`vsemb serve`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from vsemb.commands import picked
from vsemb.console import SafeStream

if TYPE_CHECKING:
    from vsemb.serving.access import Access

#: A server runs for weeks, and should return memory that it does not need.
KEEPS_MEMORY = False

UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def size(text: str) -> int:
    """Parse a number of bytes, e.g. `32MiB`.

    Example:

    >>> size("32MiB"), size("1000")
    (33554432, 1000)
    """
    digits = text.rstrip("KMGiBkmgb")
    unit = text[len(digits) :].upper()
    if not digits.isdecimal() or unit not in UNITS:
        raise argparse.ArgumentTypeError(f"the size must be in bytes, KiB, MiB or GiB, e.g. 32MiB; got {text!r}")
    return int(digits) * UNITS[unit]


def pair(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"the argument must be NAME=VALUE; got {text!r}")
    return name, value


def label(text: str) -> tuple[str, int]:
    """Parse `LABEL=VERSION`."""
    name, value = pair(text)
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"the version must be a number; got {value!r}")
    return name, int(value)


def wanted(text: str) -> str | int:
    """Parse `latest`, `all` or a version number."""
    if text in ("latest", "all"):
        return text
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"the version must be latest, all or a number; got {text!r}")


def configure_access(parser: argparse.ArgumentParser) -> None:
    """Add the options of `vsemb.serving.access.Access`."""
    token = "file with the token that requests must carry (environment variable VSEMB_TOKEN)"
    parser.add_argument("--token-file", metavar="FILE", help=token)
    parser.add_argument("--tls-cert", metavar="PEM", help="certificate and its chain, for TLS")
    parser.add_argument("--tls-key", metavar="PEM", help="private key of the certificate")
    insecure = "allow other addresses than loopback without a token"
    parser.add_argument("--insecure", action="store_true", help=insecure)


def access(arguments: argparse.Namespace) -> Access:
    """Return the token and certificate of the server, from the options of `configure_access`."""
    from vsemb.serving.access import Access, read_token

    return Access(read_token(arguments.token_file), **picked(arguments, "tls_cert", "tls_key", "insecure"))


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("directory", nargs="?", metavar="savedmodels/NAME", help="directory of the model")
    model = "another model: its name and directory; repeatable"
    parser.add_argument("--model", action="append", default=[], type=pair, metavar="NAME=DIR", help=model)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    configure_access(parser)
    parser.add_argument("--port", type=int, default=8500, help="gRPC port, 0 for any free port (%(default)s)")
    parser.add_argument("--rest-port", type=int, default=8501, help="REST port, 0 for any free port (%(default)s)")
    parser.add_argument(
        "--max-body", type=size, default="32MiB", metavar="SIZE", help="maximum size of a request (%(default)s)"
    )
    parser.add_argument(
        "--max-rows", type=int, default=4096, metavar="N", help="maximum rows of a request (%(default)s)"
    )
    total = "maximum size of all requests, and of all answers (%(default)s)"
    parser.add_argument("--max-bytes", type=size, default="128MiB", metavar="SIZE", help=total)
    pixels = "maximum pixels decoded at once (%(default)s)"
    parser.add_argument("--max-pixels", type=int, default=100_000_000, metavar="N", help=pixels)
    connections = "maximum connections over REST, and over gRPC (%(default)s)"
    parser.add_argument("--max-connections", type=int, default=400, metavar="N", help=connections)
    parser.add_argument(
        "--concurrency", type=int, default=256, metavar="N", help="maximum requests in flight (%(default)s)"
    )
    parser.add_argument(
        "--batch-size", type=int, default=64, metavar="N", help="maximum rows per merged batch (%(default)s)"
    )
    parser.add_argument(
        "--batch-timeout",
        type=float,
        default=0.001,
        metavar="S",
        help="maximum seconds to wait for a batch (%(default)s)",
    )
    parser.add_argument("--cors", action="store_true", help="let web pages of any origin call the REST API")
    parser.add_argument("--threads", type=int, metavar="N", help="batches that run at once (one per core)")
    versions = "versions to serve: latest, all, or numbers (latest)"
    parser.add_argument("--versions", nargs="+", type=wanted, default=["latest"], metavar="N", help=versions)
    labels = "label for version N; repeatable"
    parser.add_argument("--label", action="append", default=[], type=label, metavar="LABEL=N", help=labels)
    parser.add_argument(
        "--poll",
        type=float,
        default=1.0,
        metavar="S",
        help="seconds between checks for new versions, 0 for none (%(default)s)",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=30.0,
        metavar="S",
        help="maximum seconds to finish requests at shutdown (%(default)s)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Serve SavedModels with TensorFlow Serving's gRPC and REST API, in this process.

    Clients of TensorFlow Serving work unchanged. At start, a curl command per signature is printed. New versions in a
    model's directory are loaded and replace old versions; no request is dropped. Concurrent requests are merged into
    batches. Metrics for Prometheus are at /metrics. SIGTERM and Ctrl-C finish requests in flight first.

    On an address other than loopback, every request must carry a token, unless --insecure is passed. On loopback, the
    header Host of a REST request without a token must name this machine, so that no web page can call the server under
    a name of its own. A gateway that passes on another name needs a token or --insecure.

    Examples:
      vsemb serve savedmodels/flickr8k
      vsemb serve --model pets=savedmodels/pets --model flickr8k=savedmodels/flickr8k --port 0 --rest-port 0
      vsemb serve savedmodels/flickr8k --host 0.0.0.0 --token-file token --tls-cert cert.pem --tls-key key.pem
      vsemb serve savedmodels/flickr8k --label stable=1 --label canary=2 --versions latest
    """
    import logging
    import os

    # Suppress gRPC's message about a port in use, since vsemb raises its own error.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from vsemb.serving.server import Server, serve_until_stopped, served_models

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=SafeStream(sys.stderr))
    models = served_models(arguments.directory, arguments.model)
    policy = arguments.versions
    server = Server(
        models,
        versions=policy[0] if isinstance(policy[0], str) and len(policy) == 1 else policy,
        labels=dict(arguments.label),
        access=access(arguments),
        **picked(arguments, "host", "port", "rest_port", "max_body", "max_rows", "max_bytes", "max_pixels"),
        **picked(
            arguments,
            "max_connections",
            "concurrency",
            "cors",
            "batch_size",
            "batch_timeout",
            "threads",
            "poll",
            "grace",
        ),
    )
    serve_until_stopped(server)
