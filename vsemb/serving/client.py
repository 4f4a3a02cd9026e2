"""Client of TensorFlow Serving and `vsemb serve`: the same calls over REST and gRPC.

REST needs NumPy and urllib3 only, gRPC the extra `serving`.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np

from vsemb import registry
from vsemb.errors import DataError, invalid_argument, reason_of, unknown_name
from vsemb.files import read_bytes
from vsemb.parts import Count, Range, at_least, between, require, require_fields
from vsemb.serving.access import read_token
from vsemb.serving.encoding import EncodingMixin, Rows
from vsemb.serving.transports import Arrays, Result, SignatureInfo, TensorInfo, VersionStatus, attempted, connect
from vsemb.unicode import require_unicode

if TYPE_CHECKING:
    from vsemb.similarities import Similarity

# First bytes of JPEG and PNG, which models decode.
_DECODED_IN_GRAPH = (b"\xff\xd8\xff", b"\x89PNG")
# Metadata that models exported by vsemb 0.2 ignore: orientations, in EXIF or XMP, and transparent colours.
_IGNORED = (b"Exif\0", b"eXIf", b"tiff:Orientation", b"XML:com.adobe.xmp", b"Raw profile type exif", b"tRNS")

Seconds = Annotated[float, Range("a number of seconds > 0", lambda value: 0 < value < math.inf)]
# The range of int64.
Version = Annotated[int, Range("an integer >= 0 and below 2**63", lambda value: 0 <= value < 2**63)]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings of texts or images.

    Attributes:
        embedding: (n, dim) float32, zero in invalid rows; (n, items, dim) for a multi-vector model, one vector per
            word or region and zeros as padding.
        valid: (n,) bool; False for a text without a known word and for bytes that do not decode as an image.
        known: (n,) float32 from 0 to 1, the share of words (or subwords, characters) of each text that the model
            knows; None for images.
    """

    embedding: np.ndarray
    valid: np.ndarray
    known: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Found:
    """Search results of each query, best first.

    Attributes:
        ids: (n, k) int64, -1 in invalid rows; fewer than k columns if the model holds fewer items.
        scores: (n, k) float32.
        keys: n lists of k names, empty in invalid rows.
        valid: (n,) bool, as in `Embeddings`.
        known: (n,) float32, as in `Embeddings`.
    """

    ids: np.ndarray
    scores: np.ndarray
    keys: list[list[str]]
    valid: np.ndarray
    known: np.ndarray | None = None


_Rows = TypeVar("_Rows", Embeddings, Found)


def joined(parts: Sequence[_Rows]) -> _Rows:
    """Concatenate the answers to parts of a list.

    Args:
        parts: at least one answer, in order, all of one type.

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
        if each[0] is not None:
            values[item.name] = list(itertools.chain(*each)) if isinstance(each[0], list) else np.concatenate(each)
    return type(parts[0])(**values)


@dataclass(eq=False, repr=False)
class Client(EncodingMixin, AbstractContextManager["Client"]):
    """Client of one model on a server; thread-safe.

    Systems add methods for the signatures of their models, such as `caption` and `align`: see
    `vsemb.registry.System.client_methods` and `vsemb/systems/NAME/client.py`.

    Args:
        url: `http://HOST:PORT` for REST or `grpc://HOST:PORT` for gRPC; `https` and `grpcs` for encrypted
            connections.
        model: name of the model.
        version: version number; None for the newest.
        label: label of a version, e.g. `stable`; exclusive with `version`.
        timeout: seconds per request, including retries and pauses.
        retries: number of retries if the server is unreachable or busy. Other errors are not retried.
        batch_size: maximum rows per request; longer inputs are split.
        batch_bytes: maximum bytes of text and images per request; a single larger row is sent alone.
        parser: converts texts for models with other inputs, such as dependency trees: a function, or a name or path
            that is opened on first use. For trees see `vsemb.systems.trees.client.TextParser`.
        token: bearer token of the server (`vsemb serve --token-file`); None for the environment variable `VSEMB_TOKEN`.
        ca_file: PEM file of the authorities that may sign the server's certificate; default: the system's.

    Raises:
        InvalidArgumentError: for an invalid argument.
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
    token: str | None = None
    ca_file: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        require_fields(self)
        if self.version is not None and self.label is not None:
            raise invalid_argument("label", self.label, "None together with `version`", "Omit one of them.")
        if not (self.parser is None or isinstance(self.parser, str | os.PathLike) or callable(self.parser)):
            raise invalid_argument("parser", self.parser, "a parser's name, its path, or a function")
        self._readers: dict[str, Any] = {}
        self._transport = connect(
            self.url, self.model, self.version, self.label, self.token or read_token(), self.ca_file
        )
        self._signatures: dict[str, SignatureInfo] | None = None

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes only.
        methods = {} if name.startswith("_") else registry.entries("client_methods")
        if name not in methods:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return functools.partial(registry.load(methods[name]), self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *registry.entries("client_methods")})

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def status(self) -> list[VersionStatus]:
        """Return the states of the model's versions, or of the client's version.

        Raises:
            ServingError: `NOT_FOUND` for an unknown model.
        """
        return self._attempted(self._transport.status)

    def signatures(self, refresh: bool = False) -> dict[str, SignatureInfo]:
        """Return the model's signatures: name -> inputs and outputs with types and shapes.

        Args:
            refresh: whether to ask the server again instead of using the cached answer.

        Raises:
            ServingError: if the server does not answer or the model is unknown.
        """
        if refresh or self._signatures is None:
            self._signatures = self._attempted(self._transport.signatures)
        return self._signatures

    def predict(self, signature: str = "serving_default", /, **inputs: Any) -> Arrays:
        """Run any signature.

        Args:
            signature: name of the signature.
            **inputs: an array or list per input; texts as `str` or `bytes`. Inputs with equal numbers of rows are sent
                in parts of `batch_size`. Inputs with a default may be omitted.

        Returns:
            Output name -> array of the type in the signature; strings as arrays of `bytes` objects.

        Raises:
            InvalidArgumentError: for an unknown signature or input, or an input of another type.
            ServingError: if the server refuses the request or does not answer.

        Example:

            client.predict("encode_text", text=["a dog"])["embedding"]
        """
        info = self.signature(signature)
        for name in inputs.keys() - info.inputs.keys():
            raise unknown_name("input", name, info.inputs)
        if missing := sorted(info.inputs.keys() - inputs.keys() - info.optional):
            raise invalid_argument("inputs", sorted(inputs), f"all of {', '.join(info.inputs)}", f"Give {missing[0]}.")
        arrays = {name: to_array(name, values, info.inputs[name]) for name, values in inputs.items()}
        rows = {array.shape[:1] for array in arrays.values()}
        if len(rows) != 1 or () in rows:
            # A scalar, or inputs whose rows do not belong together.
            return self._run(signature, info, arrays)
        if (0,) in rows:
            return {name: _no_rows(output) for name, output in info.outputs.items()}
        parts = [
            self._run(signature, info, {name: array[start:end] for name, array in arrays.items()})
            for start, end in requests_of(list(arrays.values()), self.batch_size, self.batch_bytes)
        ]
        if len(parts) == 1:
            return parts[0]
        try:
            return {name: np.concatenate([part[name] for part in parts]) for name in info.outputs}
        except ValueError as error:
            ((count,),) = rows
            allowed = f"at least {count}, the rows of the inputs"
            fix = "The parts have rows of different shapes."
            raise invalid_argument("batch_size", self.batch_size, allowed, fix) from error

    def describe(self, fact: str) -> Any:
        """Return a fact about the model.

        Args:
            fact: name of the fact: `similarity`.

        Returns:
            JSON values, such as `{"kind": "cosine"}`; None if the model does not have this fact.

        Raises:
            ServingError: as `predict`.

        Example:

            client.describe("similarity")
        """
        if "describe" not in self.signatures():
            return None
        (value,) = self.predict("describe", fact=[fact])["value"]
        return json.loads(value) if value else None

    @functools.cached_property
    def compared_by(self) -> Similarity | None:
        """The similarity that the model describes; None if it does not."""
        from vsemb.similarities import described

        return described(self.describe("similarity"))

    def embed_texts(self, texts: list[str]) -> Rows:
        answer = self.encode_text(texts)
        return answer.embedding, answer.valid

    def embed_images(self, images: list[bytes]) -> Rows:
        answer = self.encode_image(images)
        return answer.embedding, answer.valid

    def encode_text(self, texts: Sequence[str | bytes]) -> Embeddings:
        """Embed texts. Invalid texts are marked; `encode_texts` raises an error for them.

        For a model with other inputs than texts, such as trees, the client's parser converts the texts first.

        Args:
            texts: n texts; n may be 0.

        Returns:
            Embeddings of n rows.

        Raises:
            InvalidArgumentError: if the model needs a parser and the client has none.
            MissingExtraError: if the parser is a spaCy pipeline and the extra `parse` is not installed.
            ServingError: as `predict`.
        """
        rows = to_texts(texts)
        if kind := self._text_kind("encode"):
            return getattr(self, f"encode_{kind}")(self._read(kind, rows))
        return self.encode("encode_text", text=rows)

    def encode_image(self, images: Sequence[bytes | str | os.PathLike[str]]) -> Embeddings:
        """Embed images. Invalid images are marked; `encode_images` raises an error for them.

        WebP, GIF, BMP, TIFF and PPM are converted to JPEG or PNG before they are sent, as `vsemb prepare` does. So are
        JPEG and PNG with an orientation or a transparent colour, because models exported by vsemb 0.2 ignore both.

        Args:
            images: n images, each the content or the path of a file; n may be 0.

        Returns:
            Embeddings of n rows.

        Raises:
            DataError: if a file cannot be read.
            ServingError: as `predict`.
        """
        return self.encode("encode_image", image_bytes=to_images(images))

    def encode(self, signature: str, **inputs: Any) -> Embeddings:
        """Call a signature that embeds.

        Args:
            signature: name of the signature, such as `encode_text`.
            **inputs: inputs of the signature, n rows each.

        Returns:
            Embeddings of n rows.

        Raises:
            VsembError: as `predict`.
        """
        answer = self.predict(signature, **inputs)
        return Embeddings(answer["embedding"], answer["valid"], answer.get("known"))

    def search_text(self, texts: Sequence[str | bytes], k: int = 10) -> Found:
        """Search the model's corpus with texts.

        Args:
            texts: n queries, as `encode_text`.
            k: number of results per query, 1 to 1,000.

        Returns:
            Results of n queries.

        Raises:
            VsembError: as `encode_text`.
        """
        rows = to_texts(texts)
        if kind := self._text_kind("search"):
            return getattr(self, f"search_{kind}")(self._read(kind, rows), k)
        return self.search("search_text", k, text=rows)

    def search_image(self, images: Sequence[bytes | str | os.PathLike[str]], k: int = 10) -> Found:
        """Search the model's corpus with images.

        Args:
            images: n queries, as `encode_image`.
            k: number of results per query, 1 to 1,000.

        Returns:
            Results of n queries.

        Raises:
            VsembError: as `encode_image`.
        """
        return self.search("search_image", k, image_bytes=to_images(images))

    def search(self, signature: str, k: int, **queries: Any) -> Found:
        """Call a signature that searches.

        Args:
            signature: name of the signature, such as `search_text`.
            k: number of results per query, 1 to 1,000.
            **queries: the other inputs of the signature, n rows each.

        Returns:
            Results of n queries.

        Raises:
            VsembError: as `predict`.
        """
        require("k", k, Annotated[int, between(1, 1000)])
        rows = len(next(iter(queries.values())))
        answer = self.predict(signature, **queries, k=np.full(rows, k, np.int32))
        # A server that merges requests may return as many columns as the largest k.
        ids, scores, keys = (answer[name][:, :k] for name in ("ids", "scores", "keys"))
        named = [
            [key.decode(errors="replace") for key, item in zip(*row, strict=True) if item >= 0]
            for row in zip(keys, ids, strict=True)
        ]
        return Found(ids, scores, named, answer["valid"], answer.get("known"))

    def _text_kind(self, verb: str) -> str | None:
        """Return the kind of input that replaces texts, such as `tree`; None for texts."""
        known = self.signatures()
        kinds = [kind for kind in registry.entries("client_texts") if f"{verb}_{kind}" in known]
        return kinds[0] if kinds and f"{verb}_text" not in known else None

    def _read(self, kind: str, texts: list[bytes]) -> Any:
        """Convert texts to the model's kind of input."""
        if kind not in self._readers:
            self._readers[kind] = registry.load(registry.entries("client_texts")[kind])(self.parser)
        return self._readers[kind](texts)

    def signature(self, name: str) -> SignatureInfo:
        """Return the inputs and outputs of one signature.

        Raises:
            InvalidArgumentError: for an unknown signature.
        """
        known = self.signatures()
        if name not in known:
            # A newer version of the model may have the signature.
            known = self.signatures(refresh=True)
        if name not in known:
            raise unknown_name("signature", name, sorted(known))
        return known[name]

    def _run(self, signature: str, info: SignatureInfo, arrays: Arrays) -> Arrays:
        return self._attempted(functools.partial(self._transport.predict, signature, arrays, info.outputs))

    def _attempted(self, attempt: Callable[[float], Result]) -> Result:
        return attempted(attempt, self.timeout, self.retries)


def _no_rows(info: TensorInfo) -> np.ndarray:
    """Return an output without rows; its open sizes are 0."""
    sizes = [size or 0 for size in (info.shape or ())[1:]]
    return np.zeros((0, *sizes), info.dtype)


def to_array(name: str, values: Any, info: TensorInfo) -> np.ndarray:
    """Convert values to an array of an input's type.

    Args:
        name: name of the input, in errors.
        values: an array, or nested lists.
        info: type and shape of the input.

    Returns:
        An array of `info.dtype`; strings as `bytes` objects.

    Raises:
        InvalidArgumentError: for values of another type, out of range, or with another number of dimensions.
    """
    if info.dtype == object:
        texts = np.asarray(values, object)
        require_unicode(name, texts.ravel())
        encode = np.vectorize(functools.partial(_encoded, name), otypes=[object])
        result = encode(texts)
    else:
        try:
            given = np.asarray(values)
            fits = given.size == 0 or np.can_cast(given.dtype, info.dtype, "same_kind")
            with np.errstate(over="ignore"):
                result = given.astype(info.dtype)
            # Integers out of range wrap around.
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
    # Invalid UTF-8 in bytes is sent as it is; the server replaces it.
    return text.encode() if isinstance(text, str) else text


def requests_of(arrays: Sequence[np.ndarray], most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each request and the row after its last.

    Args:
        arrays: the inputs, with equal numbers of rows, at least one.
        most_rows: maximum rows per request.
        most_bytes: maximum bytes per request; a single larger row is sent alone.

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
    """Convert texts to bytes.

    Raises:
        InvalidArgumentError: for one text in place of a list, entries that are not texts, or a lone surrogate.
    """
    _refuse_one("texts", texts)
    require_unicode("texts", texts)
    return [_encoded("texts", text) for text in texts]


def to_images(images: Sequence[bytes | str | os.PathLike[str]]) -> list[bytes]:
    """Return the contents of image files, see `Client.encode_image`.

    Raises:
        InvalidArgumentError: for one image in place of a list, or entries of another type.
        DataError: if a file cannot be read.
    """
    _refuse_one("images", images)
    contents = []
    for image in images:
        if isinstance(image, bytes | bytearray | memoryview):
            contents.append(_decodable(bytes(image)))
            continue
        if not isinstance(image, str | os.PathLike):
            raise invalid_argument("images", type(image).__name__, "an image file's content (bytes) or its path")
        try:
            contents.append(_decodable(read_bytes(image)))
        except (OSError, ValueError) as error:
            reason = reason_of(error)
            raise DataError(f"Cannot read the image {os.fspath(image)}: {reason}.") from error
    return contents


def _decodable(content: bytes) -> bytes:
    """Convert an image to JPEG or PNG as a dataset stores it, where a model may decode it otherwise."""
    if content.startswith(_DECODED_IN_GRAPH) and not any(name in content for name in _IGNORED):
        return content
    from vsemb.data.images import BadImage, sanitise_image

    try:
        return sanitise_image(content).encoded
    except BadImage:
        return b""  # The model returns `valid` false.


def _refuse_one(name: str, values: object) -> None:
    if isinstance(values, str | bytes | bytearray | os.PathLike):
        fix = f"Write [{name[:-1]}]; encode_{name} also takes one."
        raise invalid_argument(name, type(values).__name__, "a list with one entry per row", fix)
