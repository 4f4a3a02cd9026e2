"""`vsemb.load`: a model that embeds texts and images, from a run, a SavedModel or a server."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from vsemb import similarities
from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.exporting.contract import Contract, hashes, version_contract_path
from vsemb.files import require_contained
from vsemb.quantization import dequantize, is_quantized
from vsemb.runs.images import embed_new_image
from vsemb.runs.inputs import model_version, named_run
from vsemb.runs.run import RECIPE, Run
from vsemb.serving.client import Client
from vsemb.serving.encoding import EncodingMixin, Rows
from vsemb.similarities import Similarity
from vsemb.text.coverage import unknown_words

_URL = re.compile(
    r"(?P<server>(?:http|grpc)s?://[^/]+)(?:/v1)?/models/(?P<model>[^/:]+)"
    r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/]+))?/?"
)


class Model(EncodingMixin):
    """A model that embeds texts and images in one space; `vsemb.load` returns one.

    Args:
        name: source of the model, such as its directory.
        similarity: similarity of images and texts; None if it is unknown.

    Example:

        model = vsemb.load("runs/mine")
        images = model.encode_images(["dog.jpg", "cat.png"])       # (2, dim) float32
        texts = model.encode_texts(["a dog on a beach", "a cat"])  # (2, dim) float32
        model.similarity(images, texts)                            # (2, 2) float32
    """

    def __init__(self, name: str, similarity: Similarity | None) -> None:
        self.name = name
        self.compared_by: Similarity | None = similarity

    def __repr__(self) -> str:
        return f"Model({self.name!r}, similarity={getattr(self.compared_by, 'kind', None)!r})"

    def __getattr__(self, name: str) -> NoReturn:
        if name == "encode":
            raise AttributeError(
                "`encode` must be encode_texts(texts) or encode_images(files), which check their rows."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _unknown_words(self, text: str) -> list[str]:
        """Return the words of a text outside the vocabulary; [] for a model without its run, which has no word list."""
        return []

    def similarity(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Compare every image with every text.

        Args:
            images: (n, dim) embeddings, or (dim,) for one image, of any precision of `encode_images`.
            texts: (m, dim) embeddings, or (dim,) for one text, of this precision or another.

        Returns:
            (n, m) float32; higher is better. The axis of a single (dim,) embedding is removed. With int8 and ubinary,
            these are cosines of the rounded vectors.

        Raises:
            InvalidArgumentError: for embeddings of another size, or if the similarity is unknown.

        Example:

            best = model.similarity(images, texts).argmax(axis=0)   # the best image of each text
        """
        if self.compared_by is None:
            fix = f"Pass it: vsemb.load({self.name!r}, similarity='cosine')"
            raise invalid_argument("similarity", None, "the similarity of the model, which it does not tell", fix)
        axes = 2 if self.compared_by.multi_vector else 1
        fix = "Make them with encode_images and encode_texts."
        for name, side in (("images", images), ("texts", texts)):
            if np.asarray(side).dtype.kind not in "fiu":
                raise invalid_argument(name, side, "embeddings, (dim,) or (rows, dim) float", fix)
            if is_quantized(np.asarray(side)) and not self.compared_by.compares_directions:
                allowed = f"float32 for the similarity {self.compared_by.kind!r}"
                raise invalid_argument(name, np.asarray(side).dtype.name, allowed)
        sides = {"images": dequantize(images), "texts": dequantize(texts)}
        for name, side in sides.items():
            if side.ndim not in (axes, axes + 1) or side.shape[-1:] != sides["images"].shape[-1:] or not side.size:
                allowed = "embeddings of one model, (dim,) or (rows, dim)"
                raise invalid_argument(name, f"shape {side.shape}", allowed, fix)
        rows = [side if side.ndim > axes else side[None] for side in sides.values()]
        single = tuple(place for place, side in enumerate(sides.values()) if side.ndim == axes)
        return np.squeeze(np.asarray(self.compared_by.scores(*rows)), axis=single)


class _RunModel(Model):
    def __init__(self, run: Run) -> None:
        if not hasattr(run.recipe, "similarity"):
            raise DataError(
                f"{run.path} must be a run that embeds texts; its recipe {run.recipe.name!r} is for {run.recipe.kind}. "
                "`vsemb --help` lists the commands for it."
            )
        super().__init__(str(run.path), run.recipe.similarity)
        self._run = run

    def _unknown_words(self, text: str) -> list[str]:
        return unknown_words(self._run.tokenizer, self._run.reader([text]))[0]

    def embed_texts(self, texts: list[str]) -> Rows:
        return _rows(self._run.encoders(images=False).encode_text(_strings(self._run.reader(texts))))

    def embed_images(self, images: list[bytes]) -> Rows:
        # Only images need these functions, whose first use builds a network.
        encode = self._run.encoders().encode_image
        if encode is None:
            raise _no_images(self.name)
        if self._run.recipe.image.further_inputs(self._run.path, images[0], "image"):
            embeddings = [embed_new_image(self._run, image, "image") for image in images]
            return np.stack(embeddings), np.ones(len(embeddings), bool)
        return _rows(encode(image_bytes=_strings(images)))


class _SavedModel(Model):
    def __init__(self, path: Path, similarity: Similarity | None) -> None:
        import tensorflow as tf

        require_contained(path, "model", links=True)
        # An export with a contract was compared row by row.
        contract = version_contract_path(path)
        self._checked = {"encode_text": contract.is_file(), "encode_image": contract.is_file()}
        if contract.is_file():
            digests = hashes(path)
            for name, digest in Contract.read(contract).sha256.items():
                if digests.get(name) != digest:
                    raise DataError(f"{path / name} must be the file that was exported; it is not. Export it again.")
        try:
            # Keep a reference, because the signatures hold their variables weakly.
            self._loaded = tf.saved_model.load(str(path))
        except Exception as error:  # The loader raises many types for a damaged SavedModel.
            raise DataError(f"{path} cannot be loaded as a SavedModel. {one_line(error, 200)}") from error
        if similarity is None and "describe" in self._loaded.signatures:
            described = self._signature("describe")(fact=_strings(["similarity"]))
            similarity = similarities.described(json.loads(described["value"].numpy()[0]))
        super().__init__(str(path), similarity)
        if "encode_text" in self._loaded.signatures:
            self._check("encode_text", text=())

    def _check(self, name: str, **rows: Sequence[Any]) -> None:
        """Check once that rows have the same embeddings alone and beside others."""
        from vsemb.exporting.neighbours import TEXTS, check_loaded

        if not self._checked[name]:
            tried = rows if any(rows.values()) else {"text": TEXTS}
            self._checked[name] = check_loaded(self.name, name, self._signature(name), tried)

    def embed_texts(self, texts: list[str]) -> Rows:
        encode: Any = self._signature("encode_text")
        if "text" not in encode.structured_input_signature[1]:
            fix = "Give the Keras model a tokenizer: DualEncoder(…, tokenizer=…), and export it again"
            raise DataError(f"{self.name} must have a tokenizer to embed texts; it reads token ids. {fix}")
        # Of words that the model knows, where it knows none of those it was tried with.
        self._check("encode_text", text=[*texts[:3], " ".join(4 * texts[:1])])
        return _rows(encode(text=_strings(texts)))

    def embed_images(self, images: list[bytes]) -> Rows:
        encode = self._signature("encode_image")
        # With the first images, since a network of images takes time.
        self._check("encode_image", image_bytes=[*images[:2], b""])
        return _rows(encode(image_bytes=_strings(images)))

    def _signature(self, name: str) -> Callable[..., Any]:
        signatures = self._loaded.signatures
        if name in signatures:
            return signatures[name]
        if name == "encode_image" and "encode_text" in signatures:
            raise _no_images(self.name)
        raise DataError(
            f"{self.name} must have the signature {name}; it has {', '.join(sorted(signatures))}. Load the run that it "
            "was exported from."
        )


class _ServedModel(Model):
    def __init__(self, url: str, similarity: Similarity | None, **access: Any) -> None:
        parts = _URL.fullmatch(url)
        if parts is None:
            allowed = "such as http://HOST:8501/v1/models/NAME or grpc://HOST:8500/v1/models/NAME"
            raise invalid_argument("source", url, allowed)
        version = None if parts["version"] is None else int(parts["version"])
        self._client = Client(
            parts["server"], parts["model"], version=version, label=parts["label"], timeout=60.0, **access
        )
        # Ask the server now, so that an unreachable one raises an error at once.
        self._signatures = self._client.signatures()
        super().__init__(url, similarity or self._client.compared_by)

    def embed_texts(self, texts: list[str]) -> Rows:
        return self._client.embed_texts(texts)

    def embed_images(self, images: list[bytes]) -> Rows:
        if "encode_image" not in self._signatures:
            raise _no_images(self.name)
        return self._client.embed_images(images)


def _strings(values: list[Any]) -> Any:
    import tensorflow as tf

    return tf.constant(values, tf.string)


def _rows(outputs: dict[str, Any]) -> Rows:
    return outputs["embedding"].numpy(), outputs["valid"].numpy()


def _no_images(name: str) -> DataError:
    return DataError(
        f"{name} must be a model with an image network; it was trained on precomputed features. Train on features of a "
        "network: vsemb.train(recipe, data, out, backbone='MobileNetV2')"
    )


def load(
    source: str | os.PathLike[str] | Run,
    *,
    similarity: str | Similarity | None = None,
    token: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
) -> Model:
    """Load a model: a run, an exported SavedModel, or a model behind a server.

    Args:
        source: a `Run` or its directory; a pretrained dual encoder, `hub:NAME` of keras-hub or `hf://USER/NAME` of the
            Hugging Face Hub, downloaded once, or a directory with its files; `hf://USER/NAME` of what `vsemb push`
            uploaded; the directory of a SavedModel, with or without a version number; or the URL of a model on
            `vsemb serve` or TensorFlow Serving.
        similarity: similarity of a SavedModel or a model on a server, such as `cosine`, `dot` or `order`. Default: the
            similarity in the model's description, which every export of a run or a `DualEncoder` contains.
        token: bearer token of the server; None for the environment variable `VSEMB_TOKEN`.
        ca_file: PEM file of the authorities that may sign the server's certificate; default: the system's.

    Returns:
        The model.

    Raises:
        DataError: if the directory contains neither a run nor a SavedModel.
        ServingError: if the server does not answer.

    Example:

        model = vsemb.load("runs/mine")
        model = vsemb.load("hub:clip_vit_base_patch32")
        model = vsemb.load("savedmodels/mine")
        model = vsemb.load("http://localhost:8501/v1/models/mine")
    """
    named = None if similarity is None else similarities.get(similarity)
    if isinstance(source, Run):
        return _RunModel(source)
    if not isinstance(source, str | os.PathLike):
        fix = "A Keras model embeds by predict, or after model.export(directory) here."
        raise invalid_argument("source", type(source).__name__, "a vsemb.Run, a directory or a URL", fix)
    if (directory := named_run(source)) is not None:
        return load(directory, similarity=similarity)
    if "://" in os.fspath(source):
        return _ServedModel(os.fspath(source), named, token=token, ca_file=ca_file)
    path = Path(source)
    if (path / RECIPE).exists():
        return _RunModel(Run.open(path))
    if (version := model_version(path)) is not None:
        return _SavedModel(version, named)
    lacking = f"it has neither {RECIPE} nor saved_model.pb" if path.is_dir() else "there is no such directory"
    if path.suffix == ".keras":
        lacking = "it is a file for keras.saving.load_model, whose model.export(directory) writes a SavedModel"
    raise DataError(
        f"{path} must be a run, an exported SavedModel, or the URL of a served model (http://…); {lacking}. Make one "
        "with vsemb.train or vsemb.export, or load a pretrained CLIP: vsemb.load('hub:clip_vit_base_patch32')"
    )
