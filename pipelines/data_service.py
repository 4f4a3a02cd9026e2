"""Start a dispatcher or a worker of a tf.data service, for `vsemb train --data-service`.

    python -m pipelines.data_service dispatcher --port 5050
    python -m pipelines.data_service worker --dispatcher HOST:5050        (on every machine that helps)
    vsemb train contrastive --data data/photos --out runs/photos --fine-tune --data-service grpc://HOST:5050

Workers decode and augment the images of training batches. They read the dataset's shards from the same path as the
training, so the folder must be shared. Workers can start and stop at any time: the training computes missing batches
itself, with the same weights as result. Anyone with access to the ports can run computations on these machines, so use
a trusted network. By default only this machine is served; --host is the address to announce.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence

from pipelines.running import main_of, parser_of


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = parser_of("data_service", __doc__)
    roles = parser.add_subparsers(dest="role", required=True, metavar="ROLE")
    dispatcher = roles.add_parser("dispatcher", help="what trainings and workers connect to; one")
    dispatcher.add_argument("--port", type=int, default=5050, help="(%(default)s)")
    worker = roles.add_parser("worker", help="what decodes; one a machine")
    worker.add_argument("--dispatcher", required=True, metavar="HOST:PORT", help="where the dispatcher is")
    worker.add_argument("--host", default="localhost", help="where others reach this machine (%(default)s)")
    worker.add_argument("--port", type=int, default=0, help="(any that is free)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server until SIGTERM or SIGINT and return the exit status."""
    arguments = build_parser().parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return main_of("data_service", lambda: _serve(arguments))


def _serve(arguments: argparse.Namespace) -> int:
    import tensorflow as tf

    from vsemb.data.sources import service_address
    from vsemb.errors import DataError, invalid_argument, one_line, reason_of

    if not 0 <= arguments.port <= 65535:
        raise invalid_argument("port", arguments.port, "an integer from 0 to 65535")
    # gRPC would share a port with another server, and clients would reach one of them at random.
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", arguments.port))
        except OSError as error:
            raise DataError(
                f"The {arguments.role} cannot start at port {arguments.port}: {reason_of(error)}. "
                "Name another with --port."
            ) from error
    service = tf.data.experimental.service
    try:
        if arguments.role == "dispatcher":
            server = service.DispatchServer(service.DispatcherConfig(port=arguments.port))
            print(f"dispatcher at {server.target}", flush=True)
        else:
            service_address(f"grpc://{arguments.dispatcher}")
            config = service.WorkerConfig(
                dispatcher_address=arguments.dispatcher,
                worker_address=f"{arguments.host}:%port%",
                port=arguments.port,
            )
            server = service.WorkerServer(config)
            print(f"worker of {arguments.dispatcher}", flush=True)
    except tf.errors.OpError as error:
        raise DataError(f"The {arguments.role} cannot start: {one_line(error.message)}") from error
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    del server
    return 0


if __name__ == "__main__":
    sys.exit(main())
