"""Requests per second of several servers over REST, from clients in a process of their own; a part of `serving.py`."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from tests.benchmarks.timing import own_process

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_HEADER = "POST /v1/models/model:predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"

# The place of the request, the status and the body.
Reply = tuple[int, int, bytes]


def send_all(port: int, bodies: Sequence[bytes], requests: int, clients: int) -> tuple[list[Reply], float]:
    """Sends a count of requests from several clients at once; each keeps a connection and has one under way.

    Args:
        port: of REST.
        bodies: of the requests, sent over and over.
        requests: of all clients together.
        clients: number of connections.

    Returns:
        All replies, and the seconds from the first request to the last reply.
    """
    return asyncio.run(_send_all(port, bodies, requests, clients))


async def _send_all(port: int, bodies: Sequence[bytes], requests: int, clients: int) -> tuple[list[Reply], float]:
    messages = [f"{_HEADER}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]
    numbers, replies = iter(range(requests)), list[Reply]()
    begun = time.perf_counter()
    await asyncio.gather(*(_client(*connection, messages, numbers, replies) for connection in connections))
    seconds = time.perf_counter() - begun
    for _, writer in connections:
        writer.close()
    return replies, seconds


async def _client(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    messages: Sequence[bytes],
    numbers: Iterator[int],
    replies: list[Reply],
) -> None:
    for number in numbers:
        place = number % len(messages)
        writer.write(messages[place])
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        assert length is not None, head
        replies.append((place, int(head.split(None, 2)[1]), await reader.readexactly(int(length[1]))))


def in_turns(
    ports: Mapping[str, int], bodies: Sequence[bytes], requests: int, clients: int, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[Reply]]]:
    """Measures all servers in turns, after a round that is not measured.

    Args:
        ports: name of a server -> its port of REST.
        bodies: of the requests.
        requests: of each server in each round.
        clients: number of connections.
        rounds: that are measured.

    Returns:
        Requests per second of each server in each round, and the replies of each server.
    """
    rates: dict[str, list[float]] = {name: [] for name in ports}
    replies: dict[str, list[Reply]] = {name: [] for name in ports}
    with own_process() as pool:
        for number, (name, port) in itertools.product(range(rounds + 1), ports.items()):
            found, seconds = pool.submit(partial(send_all, port, bodies, requests, clients)).result()
            replies[name] += found
            if number:
                rates[name].append(len(found) / seconds)
    return rates, replies
