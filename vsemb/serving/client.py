"""A client for TensorFlow Serving and for `vsemb serve`: the same calls over REST and gRPC.

Over REST it needs NumPy and urllib3 alone; over gRPC the extra `serving`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

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
from vsemb.serving.client_results import Classes, Embeddings, Found, classes_of, found_of, joined
from vsemb.serving.transports import (
    Arrays,
    ServingError,
    SignatureInfo,
    TensorInfo,
    Transport,
    VersionStatus,
    attempted,
)

if TYPE_CHECKING:
    from vsemb.systems.captions.client import ImageCaptions
    from vsemb.systems.regions.client import Alignment
    from vsemb.systems.trees.client import AnyTree, ParserLike


__all__ = [
    "Classes",
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
        parser: what makes trees of texts for a model that takes nothing but dependency trees: a name or path
            as for `vsemb.systems.trees.parsers.open_parser`, opened when it is first needed, or a function
            from a list of texts to as many trees, see `encode_tree`.

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
        parser: ParserLike | None = None,
    ) -> None:
        from vsemb.systems.trees.client import TextParser

        check_options(version, label, timeout, retries=retries, batch_size=batch_size, batch_bytes=batch_bytes)
        self._parse = TextParser(parser)
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
        info = self._signature(signature)
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

        Where the model takes trees and no texts, they are parsed here first, with the client's parser.

        Args:
            texts: n of them, any number.

        Raises:
            InvalidArgumentError: if they have to be parsed and the client has no parser.
            MissingExtraError: if the parser is a pipeline and the extra `parse` is not installed.
            ServingError: as `predict`.
        """
        rows = to_texts(texts)
        if self._takes_trees("encode"):
            return self.encode_tree(self._parse(rows))
        found = self.predict("encode_text", text=rows)
        return Embeddings(found["embedding"], found["valid"])

    def encode_tree(self, trees: Sequence[AnyTree]) -> Embeddings:
        """Embeds dependency trees.

        Args:
            trees: n of them, each a pair of words and heads, or what has both, such as
                `vsemb.systems.trees.trees.Tree`. A head is the number of a word, counted from 1, and 0 for
                the root.

        Returns:
            What is no tree is not valid.

        Raises:
            InvalidArgumentError: for words and heads of different lengths.
            ServingError: as `predict`.

        Example:

            client.encode_tree([(["a", "dog", "runs"], [2, 3, 0])]).embedding.shape
        """
        from vsemb.systems.trees.client import trees_in_parts

        parts = trees_in_parts(trees, self.batch_size)
        found = [self.predict("encode_tree", tokens=tokens, heads=heads) for tokens, heads in parts]
        return joined([Embeddings(part["embedding"], part["valid"]) for part in found])

    def encode_image(
        self, images: Sequence[bytes | str | os.PathLike[str]], boxes: Sequence[Any] | None = None
    ) -> Embeddings:
        """Embeds images.

        Args:
            images: n JPEG or PNG images, each the file's content or its path.
            boxes: as `align`.

        Returns:
            A model of sets gives a vector for each region, and the regions' boxes.

        Raises:
            DataError: if a file cannot be read.
            ServingError: as `predict`.
        """
        contents = to_images(images)
        found = self.predict("encode_image", image_bytes=contents, **self._boxes(boxes, len(contents)))
        return Embeddings(found["embedding"], found["valid"], found.get("boxes"))

    def align(
        self,
        images: Sequence[bytes | str | os.PathLike[str]],
        texts: Sequence[str | bytes],
        affinity: float | Sequence[float] = 0.0,
        boxes: Sequence[Any] | None = None,
    ) -> list[Alignment]:
        """Tells which region of an image each word of a sentence belongs to.

        Args:
            images: n images, as `encode_image`.
            texts: n sentences, one for each image.
            affinity: how much better it is for two neighbouring words to share a region, from 0, where each
                word has the region it fits best; one number, or one for each row.
            boxes: for a model that proposes no regions itself, n lists of candidates, best first, each
                `[x, y, w, h]` as fractions of the image's width and height.

        Returns:
            n of them; one that is not valid has no words.

        Raises:
            InvalidArgumentError: for a model that has no regions, other numbers of images and texts, or what
                is no affinity or box.
            DataError: if a file cannot be read.
            ServingError: as `predict`.

        Example:

            for phrase in client.align(["dog.jpg"], ["a dog on a beach"], affinity=0.5)[0].phrases:
                print(phrase.text, phrase.box)
        """
        from vsemb.systems.regions.client import alignments_of, to_affinities

        rows, contents = to_texts(texts), to_images(images)
        if len(rows) != len(contents):
            received = f"{len(rows)} texts for {len(contents)} images"
            raise invalid_argument("texts", received, "one for each image", "Repeat the image for each text.")
        affinities = to_affinities(affinity, len(rows))
        more = self._boxes(boxes, len(rows))
        return alignments_of(self.predict("align", image_bytes=contents, text=rows, affinity=affinities, **more))

    def caption(self, images: Sequence[bytes | str | os.PathLike[str]], n: int | None = None) -> list[ImageCaptions]:
        """Writes captions of images.

        Args:
            images: as `encode_image`.
            n: captions of an image at most; None for as many as the model was exported to write.

        Returns:
            One for each image, its captions best first; one that is not valid has none.

        Raises:
            InvalidArgumentError: for a model that writes no captions, or not so many.
            DataError: if a file cannot be read.
            ServingError: as `predict`.

        Example:

            print(client.caption(["dog.jpg"])[0].captions[0].text)
        """
        from vsemb.systems.captions.client import captions_of, check_n

        contents = to_images(images)
        check_n(n, self._signature("caption").outputs)
        return captions_of(self.predict("caption", image_bytes=contents), n)

    def classify(self, images: Sequence[bytes | str | os.PathLike[str]]) -> Classes:
        """Classifies images among the classes that the model was exported with.

        Args:
            images: as `encode_image`.

        Returns:
            No names where there are no images.
        """
        return classes_of(self.predict("classify", image_bytes=to_images(images)))

    def search_text(self, texts: Sequence[str | bytes], k: int = 10) -> Found:
        """Finds the best items for texts among those that the model was exported with.

        Where the model takes trees and no texts, they are parsed here first, with the client's parser.

        Args:
            texts: n queries.
            k: results of each, 1 to 1,000.

        Raises:
            VsembError: as `encode_text`.
        """
        rows = to_texts(texts)
        if self._takes_trees("search"):
            return self.search_tree(self._parse(rows), k)
        return self._search("search_text", k, text=rows)

    def search_tree(self, trees: Sequence[AnyTree], k: int = 10) -> Found:
        """Finds the best items for dependency trees among those that the model was exported with.

        Args:
            trees: n queries, as `encode_tree`.
            k: results of each, 1 to 1,000.
        """
        from vsemb.systems.trees.client import trees_in_parts

        parts = trees_in_parts(trees, self.batch_size)
        return joined([self._search("search_tree", k, tokens=tokens, heads=heads) for tokens, heads in parts])

    def search_image(self, images: Sequence[bytes | str | os.PathLike[str]], k: int = 10) -> Found:
        """Finds the best items for images among those that the model was exported with.

        Args:
            images: n queries, as `encode_image`.
            k: results of each, 1 to 1,000.
        """
        return self._search("search_image", k, image_bytes=to_images(images))

    def _boxes(self, boxes: Sequence[Any] | None, rows: int) -> Arrays:
        from vsemb.systems.regions.client import to_boxes

        return {} if boxes is None else {"boxes": to_boxes(boxes, rows)}

    def _takes_trees(self, verb: str) -> bool:
        """Whether the model takes trees where others take texts."""
        known = self.signatures()
        return f"{verb}_tree" in known and f"{verb}_text" not in known

    def _search(self, signature: str, k: int, **queries: Any) -> Found:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= 1000:
            raise invalid_argument("k", k, "an integer from 1 to 1000")
        rows = len(next(iter(queries.values())))
        return found_of(self.predict(signature, **queries, k=np.full(rows, k, np.int32)), k)

    def _signature(self, name: str) -> SignatureInfo:
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
