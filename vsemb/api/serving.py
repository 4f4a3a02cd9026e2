"""`vsemb.serve`: serve exported models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal

from vsemb.acts import Option, act
from vsemb.errors import invalid_argument
from vsemb.parts import Bytes, Count, NonNegative, Port, Whole
from vsemb.results import Table


@act
def serve(
    directory: Annotated[str | os.PathLike[str] | None, Option(by_place=True)] = None,
    *,
    model: Mapping[str, str | os.PathLike[str]] = MappingProxyType({}),
    host: str = "127.0.0.1",
    port: Port = 8500,
    rest_port: Port = 8501,
    token_file: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    max_body: Bytes = 32 * 2**20,
    max_rows: Count = 4096,
    max_bytes: Bytes = 128 * 2**20,
    max_pixels: Count = 100_000_000,
    max_connections: Count = 400,
    concurrency: Count = 256,
    batch_size: Count = 64,
    batch_timeout: NonNegative = 0.001,
    cors: bool = False,
    threads: Count | None = None,
    versions: Sequence[Whole | Literal["latest", "all"]] = ("latest",),
    label: Mapping[str, Whole] = MappingProxyType({}),
    poll: NonNegative = 1.0,
    grace: NonNegative = 30.0,
) -> Table:
    """Serve SavedModels with TensorFlow Serving's gRPC and REST API, in this process, until it is stopped.

    Clients of TensorFlow Serving work unchanged. At start, a curl command per signature is printed. New versions in a
    model's directory are loaded and replace old versions; no request is dropped. Concurrent requests are merged into
    batches. Metrics for Prometheus are at /metrics. SIGTERM and Ctrl-C finish requests in flight first.

    On an address other than loopback, every request must carry a token, unless the server is insecure. On loopback, the
    header Host of a REST request without a token must name this machine, so that no web page can call the server under
    a name of its own. A gateway that passes on another name needs a token or an insecure server.

    Args:
        directory: directory of the model, such as savedmodels/NAME.
        model: further models: the name and the directory of each; repeatable.
        host: address to listen on.
        port: gRPC port, 0 for any free port.
        rest_port: REST port, 0 for any free port.
        token_file: file with the token that requests must carry; default: environment variable VSEMB_TOKEN.
        tls_cert: certificate and its chain, for TLS.
        tls_key: private key of the certificate.
        insecure: allow other addresses than loopback without a token.
        max_body: maximum size of a request.
        max_rows: maximum rows of a request.
        max_bytes: maximum size of all requests, and of all answers.
        max_pixels: maximum pixels decoded at once.
        max_connections: maximum connections over REST, and over gRPC.
        concurrency: maximum requests in flight.
        batch_size: maximum rows per merged batch.
        batch_timeout: maximum seconds to wait for a batch.
        cors: let web pages of any origin call the REST API.
        threads: batches that run at once; default: one per core.
        versions: versions to serve: latest, all, or numbers; default: latest.
        label: labels, each with the number of its version; repeatable.
        poll: seconds between checks for new versions, 0 for none.
        grace: maximum seconds to finish requests at shutdown.

    Returns:
        The names and directories of the models that were served.

    Raises:
        InvalidArgumentError: for no model, or an address other than loopback without a token.
        DataError: if a model or a port cannot be opened.

    Example:

        vsemb.serve("savedmodels/flickr8k", port=0, max_body="64MiB")
    """
    from vsemb.serving.access import Access, read_token
    from vsemb.serving.server import Server, serve_until_stopped, served_models

    server = Server(
        served_models(directory, model),
        host=host,
        port=port,
        rest_port=rest_port,
        max_body=max_body,
        max_rows=max_rows,
        max_bytes=max_bytes,
        max_pixels=max_pixels,
        max_connections=max_connections,
        concurrency=concurrency,
        batch_size=batch_size,
        batch_timeout=batch_timeout,
        threads=threads,
        versions=_policy(versions),
        labels=label,
        poll=poll,
        grace=grace,
        cors=cors,
        access=Access(read_token(token_file), tls_cert, tls_key, insecure),
    )
    serve_until_stopped(server)
    return Table("", {"models": {name: os.fspath(path) for name, path in server.models.items()}})


def _policy(versions: Sequence[int | str]) -> str | Sequence[int]:
    """Return versions in the form of `vsemb.serving.server.Server`."""
    numbers = [version for version in versions if not isinstance(version, str)]
    if len(numbers) == len(versions):
        return numbers
    if len(versions) > 1:
        raise invalid_argument("versions", list(versions), "latest or all alone, or numbers")
    return str(versions[0])
