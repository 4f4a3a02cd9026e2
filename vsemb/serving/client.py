"""A client for TensorFlow Serving and for `vsemb serve`: the same calls over REST and gRPC.

Over REST it needs NumPy and urllib3 alone; over gRPC the extra `serving`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from vsemb import registry
from vsemb.errors import invalid_argument, unknown_name
from vsemb.serving.client_inputs import (
    check_options,
    no_rows,
    parse_address,
    requests_of,
    to_array,
    to_images,
    to_texts,
)
from vsemb.serving.client_results import Embeddings, Found, found_of
from vsemb.serving.transports import (
    Arrays,
    ServingError,
    SignatureInfo,
    TensorInfo,
    Transport,
    VersionStatus,
    attempted,
)

__all__ = [
    "Client",
    "Embeddings",
    "Found",
    "ServingError",
    "SignatureInfo",
    "TensorInfo",
    "VersionStatus",
]


class Client(AbstractContextManager["Client"]):
    """Asks a model on a server. Its methods may be called from several threads.

    Systems add methods for what only their models answer, such as `caption` and `align`: see
    `vsemb.registry.System.client_methods`, and `vsemb/systems/NAME/client.py` for what they take.

    Args:
        url: `http://HOST:PORT` for REST or `grpc://HOST:PORT` for gRPC; `https` and `grpcs` where the
            connection is encrypted.
        model: the model's name.
        version: a version's number; None for the newest.
        label: a version's label, e.g. `stable`; not together with a version.
        timeout: seconds for a request, attempts and pauses together.
        retries: further attempts where the server cannot be reached or is busy. Nothing else is tried again.
        batch_size: rows of a request at most; longer inputs are sent in parts.
        batch_bytes: bytes of text and images in a request at most, unless a single row has more.
        parser: what reads texts for a model that takes something else, such as dependency trees: a name or path,
            opened when it is first needed, or a function. For trees see `vsemb.systems.trees.client.TextParser`.

    Raises:
        InvalidArgumentError: for an argument that is not allowed.
        MissingExtraError: for gRPC without the extra `serving`.

    Example:

        with Client("http://localhost:8501", model="flickr8k") as client:
            print(client.encode_text(["a dog on a beach"]).embedding.shape)
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 10.0,
        retries: int = 2,
        batch_size: int = 64,
        batch_bytes: int = 16 * 2**20,
        parser: str | os.PathLike[str] | Callable[..., Any] | None = None,
    ) -> None:
        check_options(version, label, timeout, retries=retries, batch_size=batch_size, batch_bytes=batch_bytes)
        if parser is not None and not isinstance(parser, str | os.PathLike) and not callable(parser):
            raise invalid_argument("parser", parser, "a parser's name, its path, or a function")
        self._parser = parser
        self._readers: dict[str, Any] = {}
        scheme, address = parse_address(url, model, version, label)
        self.url = url
        self.timeout, self.retries = timeout, retries
        self.batch_size, self.batch_bytes = batch_size, batch_bytes
        self._transport: Transport
        # Each loads its own library: REST must do without TensorFlow.
        if scheme.startswith("http"):
            from vsemb.serving.rest_transport import RestTransport

            self._transport = RestTransport(address)
        else:
            from vsemb.serving.grpc_transport import GrpcTransport

            self._transport = GrpcTransport(address)
        self._signatures: dict[str, SignatureInfo] | None = None

    def __getattr__(self, name: str) -> Any:
        # Only for what this class has not.
        methods = {} if name.startswith("_") else registry.entries("client_methods")
        if name not in methods:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return functools.partial(registry.load(methods[name]), self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *registry.entries("client_methods")})

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def status(self) -> list[VersionStatus]:
        """Returns the states of the model's versions, or of the one that the client was made for.

        Raises:
            ServingError: `NOT_FOUND` for a model that the server does not know.
        """
        return self._attempted(lambda seconds: self._transport.status(seconds))

    def signatures(self, refresh: bool = False) -> dict[str, SignatureInfo]:
        """Returns what the model can be asked: signature -> inputs and outputs with types and shapes.

        Args:
            refresh: whether to ask again; the answer is kept otherwise.

        Raises:
            ServingError: if the server does not answer or knows no such model.
        """
        if refresh or self._signatures is None:
            self._signatures = self._attempted(lambda seconds: self._transport.signatures(seconds))
        return self._signatures

    def predict(self, signature: str = "serving_default", /, **inputs: Any) -> Arrays:
        """Runs any signature.

        Args:
            signature: its name.
            **inputs: an array or a list for each of its inputs; texts as `str` or `bytes`. Inputs with
                equally many rows are sent in parts of `batch_size`.

        Returns:
            Output name -> array in the type that the model states; strings as arrays of `bytes` objects.

        Raises:
            InvalidArgumentError: for a signature or an input that the model does not have, or another type.
            ServingError: if the server refuses or does not answer.

        Example:

            client.predict("encode_text", text=["a dog"])["embedding"]
        """
        info = self.signature(signature)
        for name in inputs.keys() - info.inputs.keys():
            raise unknown_name("input", name, info.inputs)
        if missing := sorted(info.inputs.keys() - inputs.keys()):
            raise invalid_argument("inputs", sorted(inputs), f"all of {', '.join(info.inputs)}", f"Give {missing[0]}.")
        arrays = {name: to_array(name, values, info.inputs[name]) for name, values in inputs.items()}
        rows = {len(array) if array.ndim else None for array in arrays.values()}
        if len(rows) != 1 or (count := rows.pop()) is None:
            return self._run(signature, info, arrays)
        if count == 0:
            return {name: no_rows(output) for name, output in info.outputs.items()}
        parts = [
            self._run(signature, info, {name: array[start:end] for name, array in arrays.items()})
            for start, end in requests_of(list(arrays.values()), self.batch_size, self.batch_bytes)
        ]
        if len(parts) == 1:
            return parts[0]
        try:
            return {name: np.concatenate([part[name] for part in parts]) for name in info.outputs}
        except ValueError as error:
            allowed = f"at least {count}, the rows of the inputs"
            fix = "The shape of a row differs between parts, so that they cannot be put together."
            raise invalid_argument("batch_size", self.batch_size, allowed, fix) from error

    def encode_text(self, texts: Sequence[str | bytes]) -> Embeddings:
        """Embeds texts.

        A model of sets gives a vector for each word, and zeros where no word is.

        Where the model takes something else than texts, such as trees, they are read here first, with the client's
        parser.

        Args:
            texts: n of them, any number.

        Raises:
            InvalidArgumentError: if they have to be parsed and the client has no parser.
            MissingExtraError: if the parser is a pipeline and the extra `parse` is not installed.
            ServingError: as `predict`.
        """
        rows = to_texts(texts)
        kind = self._text_kind("encode")
        if kind is not None:
            return getattr(self, f"encode_{kind}")(self._read(kind, rows))
        found = self.predict("encode_text", text=rows)
        return Embeddings(found["embedding"], found["valid"])

    def encode_image(self, images: Sequence[bytes | str | os.PathLike[str]]) -> Embeddings:
        """Embeds images.

        Args:
            images: n JPEG or PNG images, each the file's content or its path.

        Raises:
            DataError: if a file cannot be read.
            ServingError: as `predict`.
        """
        contents = to_images(images)
        found = self.predict("encode_image", image_bytes=contents)
        return Embeddings(found["embedding"], found["valid"])

    def search_text(self, texts: Sequence[str | bytes], k: int = 10) -> Found:
        """Finds the best items for texts among those that the model was exported with.

        Args:
            texts: n queries, as `encode_text`.
            k: results of each, 1 to 1,000.

        Raises:
            VsembError: as `encode_text`.
        """
        rows = to_texts(texts)
        kind = self._text_kind("search")
        if kind is not None:
            return getattr(self, f"search_{kind}")(self._read(kind, rows), k)
        return self.search("search_text", k, text=rows)

    def search_image(self, images: Sequence[bytes | str | os.PathLike[str]], k: int = 10) -> Found:
        """Finds the best items for images among those that the model was exported with.

        Args:
            images: n queries, as `encode_image`.
            k: results of each, 1 to 1,000.
        """
        return self.search("search_image", k, image_bytes=to_images(images))

    def search(self, signature: str, k: int, **queries: Any) -> Found:
        """Asks a signature that searches.

        Args:
            signature: its name, such as `search_text`.
            k: results of each query, 1 to 1,000.
            **queries: its other inputs.

        Raises:
            VsembError: as `predict`.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= 1000:
            raise invalid_argument("k", k, "an integer from 1 to 1000")
        rows = len(next(iter(queries.values())))
        return found_of(self.predict(signature, **queries, k=np.full(rows, k, np.int32)), k)

    def _text_kind(self, verb: str) -> str | None:
        """What the model takes where others take texts; None for texts."""
        known = self.signatures()
        kinds = [kind for kind in registry.entries("client_texts") if f"{verb}_{kind}" in known]
        return kinds[0] if kinds and f"{verb}_text" not in known else None

    def _read(self, kind: str, texts: list[bytes]) -> Any:
        """Returns texts as what the model takes in their place."""
        if kind not in self._readers:
            self._readers[kind] = registry.load(registry.entries("client_texts")[kind])(self._parser)
        return self._readers[kind](texts)

    def signature(self, name: str) -> SignatureInfo:
        """Returns what one signature takes and gives.

        Raises:
            InvalidArgumentError: for one that the model does not have.
        """
        known = self.signatures()
        if name not in known:
            # A newer version may have it.
            known = self.signatures(refresh=True)
        if name not in known:
            raise unknown_name("signature", name, sorted(known))
        return known[name]

    def _run(self, signature: str, info: SignatureInfo, arrays: Arrays) -> Arrays:
        return self._attempted(lambda seconds: self._transport.predict(signature, arrays, info.outputs, seconds))

    def _attempted(self, attempt: Any) -> Any:
        return attempted(attempt, self.timeout, self.retries)
