"""A gRPC server of services that a test makes up."""

from __future__ import annotations

from concurrent import futures

import grpc


def rpc_server(*services) -> tuple[grpc.Server, str]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    for add, service in services:
        add(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"grpc://127.0.0.1:{port}"
