"""A SavedModel behind a plain handler of aiohttp, which `vsemb serve` is compared with; a part of `serving.py`.

JSON is parsed, the signature is called in a thread, and its outputs are answered as JSON. Nothing is checked,
merged, limited or counted.
"""

from __future__ import annotations

import asyncio
import base64
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf
from aiohttp import web


def serve(connection: Any, path: str) -> None:
    """The server's process: sends its port and waits until it is told to end.

    Args:
        connection: to the process that started it.
        path: of a version of the model.
    """
    asyncio.run(_serve(connection, tf.saved_model.load(path)))


async def _serve(connection: Any, model: Any) -> None:
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(os.cpu_count())

    def encode(signature: str, texts: list[bytes]) -> dict[str, Any]:
        outputs = model.signatures[signature](text=tf.constant(texts))
        return {name: tensor.numpy().tolist() for name, tensor in outputs.items()}

    async def answer(request: web.Request) -> web.Response:
        document = await request.json()
        texts = [base64.b64decode(text["b64"]) for text in document["inputs"]["text"]]
        outputs = await loop.run_in_executor(pool, encode, document["signature_name"], texts)
        return web.json_response({"outputs": outputs})

    application = web.Application()
    application.router.add_post("/v1/models/model:predict", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    connection.send(runner.addresses[0][1])
    await asyncio.to_thread(connection.recv)
    await runner.cleanup()
