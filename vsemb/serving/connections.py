"""Limit of connections over REST, and what the log says when there are too many."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from typing import Any

from aiohttp import web

LOG = logging.getLogger("vsemb.serving")

# Connections that wait to be accepted.
_BACKLOG = 1024


class Seldom:
    """A warning that is logged at most once a minute.

    Args:
        seconds: minimum seconds between two lines.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._next = float("-inf")

    def warn(self, message: str, *values: object) -> None:
        """Log a warning, unless the last one is too recent."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._seconds
            LOG.warning(message, *values)


class LoopErrors:
    """Handler of errors of an event loop; `accept` that fails without descriptors is logged once a minute."""

    def __init__(self) -> None:
        self._failed = Seldom()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error; asyncio calls `accept` thousands of times a second while descriptors are missing."""
        if "socket.accept() out of system resource" in context.get("message", ""):
            self._failed.warn(
                "A connection cannot be accepted: %s. Allow more open files with `ulimit -n`.", context.get("exception")
            )
        else:
            loop.default_exception_handler(context)


class _Closed(asyncio.Protocol):
    """A connection that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class LimitedSite(web.SockSite):
    """A socket that accepts a limited number of connections.

    Args:
        runner: the server of the first connections.
        room: the server of further connections.
        most: maximum connections of `runner`.
        further: maximum connections of `room`; more are closed at once.
        listener: a bound socket.
        tls: context of connections with TLS; None without.
    """

    def __init__(
        self,
        runner: web.AppRunner,
        room: web.Server,
        most: int,
        further: int,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(runner, listener, backlog=_BACKLOG, ssl_context=tls)
        self._room, self._most, self._further = room, most, further
        self._reached = Seldom()

    async def start(self) -> None:
        """Accept connections."""
        await web.BaseSite.start(self)
        self._server = await asyncio.get_running_loop().create_server(
            self._protocol, sock=self._sock, ssl=self._ssl_context, backlog=self._backlog
        )

    def _protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        if len(server.connections) < self._most:
            return server()
        self._reached.warn("There are %d connections over REST, the maximum.", self._most)
        return self._room() if len(self._room.connections) < self._further else _Closed()
