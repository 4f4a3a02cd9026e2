"""`vsemb serve`."""

from __future__ import annotations

import argparse

from vsemb.commands import picked

UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def size(text: str) -> int:
    """Reads a number of bytes, e.g. `32MiB`.

    Example:

    >>> size("32MiB"), size("1000")
    (33554432, 1000)
    """
    digits = text.rstrip("KMGiBkmgb")
    unit = text[len(digits) :].upper()
    if not digits.isdecimal() or unit not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} must be bytes, or KiB, MiB or GiB, e.g. 32MiB")
    return int(digits) * UNITS[unit]


def pair(text: str) -> tuple[str, str]:
    """Reads `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def label(text: str) -> tuple[str, int]:
    """Reads `LABEL=VERSION`."""
    name, value = pair(text)
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{value!r} must be a version's number")
    return name, int(value)


def wanted(text: str) -> str | int:
    """Reads `latest`, `all` or a version's number."""
    if text in ("latest", "all"):
        return text
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not latest, all or a version's number")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("directory", nargs="?", metavar="savedmodels/NAME", help="a model's directory")
    model = "serve DIR as NAME; repeatable"
    parser.add_argument("--model", action="append", default=[], type=pair, metavar="NAME=DIR", help=model)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8500, help="gRPC's port; 0 for any (%(default)s)")
    parser.add_argument("--rest-port", type=int, default=8501, help="REST's port; 0 for any (%(default)s)")
    parser.add_argument("--max-body", type=size, default="32MiB", metavar="SIZE", help="largest request (%(default)s)")
    parser.add_argument("--concurrency", type=int, default=256, metavar="N", help="requests at a time (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="rows of a merged batch (%(default)s)")
    parser.add_argument("--batch-timeout", type=float, default=0.001, metavar="S", help="longest wait (%(default)s)")
    parser.add_argument("--threads", type=int, metavar="N", help="batches that run at a time (one a core)")
    versions = "the versions to serve: latest, all, or numbers (latest)"
    parser.add_argument("--versions", nargs="+", type=wanted, default=["latest"], metavar="N", help=versions)
    labels = "a name for a version; repeatable"
    parser.add_argument("--label", action="append", default=[], type=label, metavar="LABEL=N", help=labels)
    parser.add_argument(
        "--poll", type=float, default=1.0, metavar="S", help="check for versions, 0 never (%(default)s)"
    )
    parser.add_argument("--grace", type=float, default=30.0, metavar="S", help="time to finish requests (%(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Serve SavedModels with TensorFlow Serving's gRPC and REST API, in this process.

    A client written for TensorFlow Serving works with either. New versions that appear in a model's directory
    are loaded beside the old one and take its place without dropping a request. Concurrent requests are merged
    into batches. Metrics for Prometheus are at /metrics. SIGTERM and Ctrl-C finish what is in flight first.

    Examples:
      vsemb serve savedmodels/flickr8k
      vsemb serve --model pets=savedmodels/pets --model flickr8k=savedmodels/flickr8k --port 0 --rest-port 0
      vsemb serve savedmodels/flickr8k --label stable=1 --label canary=2 --versions latest
    """
    import logging
    import os

    # What gRPC would say about a taken port, the error says.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from vsemb.serving.server import Server, serve_until_stopped, served_models

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    models = served_models(arguments.directory, arguments.model)
    policy = arguments.versions
    server = Server(
        models,
        versions=policy[0] if isinstance(policy[0], str) and len(policy) == 1 else policy,
        labels=dict(arguments.label),
        **picked(arguments, "host", "port", "rest_port", "max_body", "concurrency", "threads", "poll", "grace"),
        **picked(arguments, "batch_size", "batch_timeout"),
    )
    serve_until_stopped(server)
