"""A client for TensorFlow Serving and for `vsemb serve`: the same calls over REST and gRPC.

Over REST it needs NumPy and urllib3 alone; over gRPC the extra `serving`.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from vsemb import registry
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.parts import Count, Range, at_least, between, require, require_fields
from vsemb.serving.encoding import EncodingMixin, Rows
from vsemb.serving.transports import (
    Arrays,
    Result,
    SignatureInfo,
    TensorInfo,
    VersionStatus,
    attempted,
    connect,
)

Seconds = Annotated[float, Range("a number of seconds > 0", lambda value: 0 < value < math.inf)]
# As far as int64 goes.
Version = Annotated[int, Range("an integer >= 0 and below 2**63", lambda value: 0 <= value < 2**63)]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """What texts or images were embedded to.

    Attributes:
        embedding: (n, dim) float32, zero in rows that are not valid. Of a model of sets (n, items, dim): a
            vector for each word or region, zero where there is none.
        valid: (n,) bool, whether there was anything to embed: a word, an image.
    """

    embedding: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True, eq=False)
class Found:
    """What was found for each query, best first.

    Attributes:
        ids: (n, k) int64, -1 in rows that are not valid; fewer than k columns where the model holds fewer.
        scores: (n, k) float32.
        keys: n lists of k names, empty in rows that are not valid.
        valid: (n,) bool.
    """

    ids: np.ndarray
    scores: np.ndarray
    keys: list[list[str]]
    valid: np.ndarray


_Rows = TypeVar("_Rows", Embeddings, Found)


def joined(parts: Sequence[_Rows]) -> _Rows:
    """Returns answers about parts of a list as the answer about the whole of it.

    Args:
        parts: one at least, in order, all of a kind.

    Example:

    >>> one = Embeddings(np.ones((1, 2), np.float32), np.array([True]))
    >>> joined([one, one]).embedding.shape
    (2, 2)
    """
    if len(parts) == 1:
        return parts[0]
    values: dict[str, Any] = {}
    for item in fields(parts[0]):
        each = [getattr(part, item.name) for part in parts]
        listed = isinstance(each[0], list)
        values[item.name] = list(itertools.chain(*each)) if listed else np.concatenate(each)
    return type(parts[0])(**values)


@dataclass(eq=False, repr=False)
class Client(EncodingMixin, AbstractContextManager["Client"]):
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
            print(client.encode_texts("a dog on a beach").shape)
            print(client.encode_images(["dog.jpg", "cat.png"]).shape)
    """

    url: str
    model: str
    _: KW_ONLY
    version: Version | None = None
    label: str | None = None
    timeout: Seconds = 10.0
    retries: Annotated[int, at_least(0)] = 2
    batch_size: Count = 64
    batch_bytes: Count = 16 * 2**20
    parser: str | os.PathLike[str] | Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        require_fields(self)
        if self.version is not None and self.label is not None:
            raise invalid_argument("label", self.label, "no label where a version is given", "Leave one out.")
        if not (self.parser is None or isinstance(self.parser, str | os.PathLike) or callable(self.parser)):
            raise invalid_argument("parser", self.parser, "a parser's name, its path, or a function")
        self._readers: dict[str, Any] = {}
        self._transport = connect(self.url, self.model, self.version, self.label)
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
        return self._attempted(self._transport.status)

    def signatures(self, refresh: bool = False) -> dict[str, SignatureInfo]:
        """Returns what the model can be asked: signature -> inputs and outputs with types and shapes.

        Args:
            refresh: whether to ask again; the answer is kept otherwise.

        Raises:
            ServingError: if the server does not answer or knows no such model.
        """
        if refresh or self._signatures is None:
            self._signatures = self._attempted(self._transport.signatures)
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
            return {
                name: np.zeros((0, *(size or 0 for size in (output.shape or ())[1:])), output.dtype)
                for name, output in info.outputs.items()
            }
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

    def embed_texts(self, texts: list[str]) -> Rows:
        found = self.encode_text(texts)
        return found.embedding, found.valid

    def embed_images(self, images: list[bytes]) -> Rows:
        found = self.encode_image(images)
        return found.embedding, found.valid

    def encode_text(self, texts: Sequence[str | bytes]) -> Embeddings:
        """Embeds texts, and says of each whether it is valid; `encode_texts` refuses those that are not.

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
        if kind := self._text_kind("encode"):
            return getattr(self, f"encode_{kind}")(self._read(kind, rows))
        return self.encode("encode_text", text=rows)

    def encode_image(self, images: Sequence[bytes | str | os.PathLike[str]]) -> Embeddings:
        """Embeds images, and says of each whether it is valid; `encode_images` refuses those that are not.

        Args:
            images: n JPEG or PNG images, each the file's content or its path.

        Raises:
            DataError: if a file cannot be read.
            ServingError: as `predict`.
        """
        return self.encode("encode_image", image_bytes=to_images(images))

    def encode(self, signature: str, **inputs: Any) -> Embeddings:
        """Asks a signature that embeds.

        Args:
            signature: its name, such as `encode_text`.
            **inputs: its inputs.

        Raises:
            VsembError: as `predict`.
        """
        found = self.predict(signature, **inputs)
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
        if kind := self._text_kind("search"):
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
        require("k", k, Annotated[int, between(1, 1000)])
        rows = len(next(iter(queries.values())))
        answer = self.predict(signature, **queries, k=np.full(rows, k, np.int32))
        # A server that puts requests together may give all rows as many places as the largest k asks for.
        ids, scores, keys = (answer[name][:, :k] for name in ("ids", "scores", "keys"))
        named = [
            [key.decode(errors="replace") for key, item in zip(*row, strict=True) if item >= 0]
            for row in zip(keys, ids, strict=True)
        ]
        return Found(ids, scores, named, answer["valid"])

    def _text_kind(self, verb: str) -> str | None:
        """What the model takes where others take texts; None for texts."""
        known = self.signatures()
        kinds = [kind for kind in registry.entries("client_texts") if f"{verb}_{kind}" in known]
        return kinds[0] if kinds and f"{verb}_text" not in known else None

    def _read(self, kind: str, texts: list[bytes]) -> Any:
        """Returns texts as what the model takes in their place."""
        if kind not in self._readers:
            self._readers[kind] = registry.load(registry.entries("client_texts")[kind])(self.parser)
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
        return self._attempted(functools.partial(self._transport.predict, signature, arrays, info.outputs))

    def _attempted(self, attempt: Callable[[float], Result]) -> Result:
        return attempted(attempt, self.timeout, self.retries)


def to_array(name: str, values: Any, info: TensorInfo) -> np.ndarray:
    """Returns values as an array of the input's type."""
    if info.dtype == object:
        encode = np.vectorize(functools.partial(_encoded, name), otypes=[object])
        result = encode(np.asarray(values, object))
    else:
        try:
            given = np.asarray(values)
            fits = given.size == 0 or np.can_cast(given.dtype, info.dtype, "same_kind")
            with np.errstate(over="ignore"):
                result = given.astype(info.dtype)
            # What is a whole number too large would come back as another one.
            fits = fits and (info.dtype.kind not in "iu" or np.array_equal(result, given))
        except (ValueError, TypeError, OverflowError):
            fits = False
        if not fits:
            raise invalid_argument(name, values, f"values of type {info.dtype}")
    if info.shape is not None and len(info.shape) != result.ndim:
        raise invalid_argument(name, f"shape {result.shape}", f"{len(info.shape)} dimensions")
    return result


def _encoded(name: str, text: object) -> bytes:
    if not isinstance(text, str | bytes):
        raise invalid_argument(name, text, "strings or bytes, in rows of one length")
    # What is no text of Unicode is the server's to replace.
    return text.encode(errors="surrogatepass") if isinstance(text, str) else text


def requests_of(arrays: Sequence[np.ndarray], most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields the first and the last row but one of each request.

    Args:
        arrays: the inputs, with equally many rows, one at least.
        most_rows: of a request.
        most_bytes: of a request, unless a single row has more.

    Example:

    >>> list(requests_of([np.array([b"abc", b"d", b"e"], object)], most_rows=2, most_bytes=3))
    [(0, 1), (1, 3)]
    """
    sizes = np.zeros(len(arrays[0]), np.int64)
    for array in arrays:
        if array.dtype == object:
            sizes += [sum(map(len, row)) for row in array.reshape(len(array), -1)]
        else:
            sizes += array[:1].nbytes
    start, size = 0, 0
    for row, row_size in enumerate(sizes.tolist()):
        if row > start and (row - start >= most_rows or size + row_size > most_bytes):
            yield start, row
            start, size = row, 0
        size += row_size
    yield start, len(sizes)


def to_texts(texts: Sequence[str | bytes]) -> list[bytes]:
    """Returns texts as bytes."""
    _refuse_one("texts", texts)
    return [_encoded("texts", text) for text in texts]


def to_images(images: Sequence[bytes | str | os.PathLike[str]]) -> list[bytes]:
    """Returns images as the content of their files; see `Client.encode_image`."""
    _refuse_one("images", images)
    contents = []
    for image in images:
        if isinstance(image, bytes | bytearray | memoryview):
            contents.append(bytes(image))
            continue
        if not isinstance(image, str | os.PathLike):
            raise invalid_argument("images", type(image).__name__, "bytes of a JPEG or PNG file, or its path")
        try:
            contents.append(Path(image).read_bytes())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"Cannot read the image {os.fspath(image)}: {reason}.") from error
    return contents


def _refuse_one(name: str, values: object) -> None:
    if isinstance(values, str | bytes | bytearray | os.PathLike):
        raise invalid_argument(name, type(values).__name__, "a list, with one entry for each row")
