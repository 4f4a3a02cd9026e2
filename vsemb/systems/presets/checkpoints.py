"""Checkpoints of transformers and open_clip: CLIP, SigLIP, BERT and their relatives become presets of keras-hub.

A checkpoint is a directory that `save_pretrained` wrote, or a repository of the Hugging Face Hub, `hf://USER/NAME`:

    config.json                                       network
    model.safetensors                                 weights, or several files with model.safetensors.index.json
    preprocessor_config.json, processor_config.json   preprocessing of pixels, one of them, for dual encoders
    tokenizer.json, vocab.txt, spiece.model, …        tokenizer

or what open_clip wrote, see `vsemb.systems.presets.open_clip`. keras-hub itself opens checkpoints of further
architectures, such as ViT. Weights are read from safetensors only, because reading a pickle runs code.
"""

from __future__ import annotations

import functools
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from vsemb.errors import DataError, needs_extra, one_line
from vsemb.files import read_json, write_json
from vsemb.runs.sharing import HANDLE
from vsemb.systems.presets.layouts import PROCESSORS, Layout, TransformersLayout
from vsemb.systems.presets.open_clip import OpenClipLayout
from vsemb.systems.presets.subwords import UnigramModel

#: Layouts of checkpoints. The first is preferred, unless only the other one's weights are there.
LAYOUTS: tuple[type[Layout], ...] = (TransformersLayout, OpenClipLayout)
# Names of a preset of keras-hub.
_CONFIG, _PREPROCESSOR = "config.json", "preprocessor.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt", "merges.txt", "*.model")
_ASSETS = "assets/tokenizer"
#: Entry of a network's configuration for what keras-hub's class does not have: `activation`, and `epsilon` of layers.
SETTINGS = "settings"
# Activations of the transformers library -> names in keras-hub.
_ACTIVATIONS = {"quick_gelu": "quick_gelu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_approximate"}
# The `eos_token_id` of old checkpoints, for which the library pools the largest id, as keras-hub always does.
_LARGEST = 2
# Vectors of tokens in BERT and its relatives.
_WORDS = "embeddings.word_embeddings.weight"
# The tokenizer of XLM-R and XLM-V.
_XLM_PIECES = "sentencepiece.bpe.model"
# The id of the end of a text in XLM-V, which keras-hub pools.
_XLM_END = 2

# What `config.json` leaves out of a tower of the size of ViT-B.
_BASE = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
_CLIP = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
_SIGLIP = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}


@dataclass(frozen=True)
class Checkpoint(ABC):
    """A checkpoint of a network that reads texts.

    Attributes:
        directory: its files.
        layout: its settings, and the names of its tensors.
        source: its name in errors.

    Example:

        checkpoint = open_checkpoint("hf://openai/clip-vit-base-patch32")
        network = checkpoint.with_weights(network)
    """

    directory: Path
    layout: Layout
    source: str

    @property
    def config(self) -> dict[str, Any]:
        return self.layout.config

    def describe(self, folder: Path) -> None:
        """Write the description as a preset of keras-hub, without weights.

        Args:
            folder: an existing directory.

        Raises:
            DataError: for a file that is missing, or settings that keras-hub cannot honour.
        """
        write_json(folder / _CONFIG, self.network())
        (folder / _ASSETS).mkdir(parents=True)
        write_json(folder / "tokenizer.json", self.layout.tokenizer(self.describe_tokenizer(folder / _ASSETS)))

    @abstractmethod
    def network(self) -> dict[str, Any]:
        """Return keras-hub's configuration of the network."""

    @abstractmethod
    def describe_tokenizer(self, assets: Path) -> dict[str, Any]:
        """Copy the tokenizer's files to `assets`, and return its configuration for `PresetText`."""

    @abstractmethod
    def assign(self, network: Any, weights: _Weights) -> None:
        """Assign all weights to a network of keras-hub."""

    def with_weights(self, network: keras.Model) -> keras.Model:
        """Assign the weights to a network that was built from `network()`.

        Raises:
            DataError: if weights are missing or have other shapes.
            MissingExtraError: without safetensors.
        """
        folder = self.directory if not self.source.startswith(HANDLE) else _download(self.source, type(self.layout))
        with _Weights(folder, self.layout) as weights:
            self.assign(network, weights)
        return network

    def _complete(self, name: str, tower: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration of a tower with the defaults of the library.

        Args:
            name: what the names of its fields begin with in errors.
            tower: its fields.
            defaults: field -> default, of the field's type; None for any type.
        """
        tower = defaults | tower
        for field, default in defaults.items():
            if default is not None and not isinstance(tower[field], type(default)):
                raise self._unsupported(f"{name}{field}", tower[field], f"as {default!r}")
        if tower["hidden_act"] not in _ACTIVATIONS:
            raise self._unsupported(f"{name}hidden_act", tower["hidden_act"], f"in {', '.join(_ACTIVATIONS)}")
        return tower

    def _unsupported(self, field: str, value: object, allowed: str) -> DataError:
        return DataError(f"`{field}` in {self.layout.config_file} of {self.source} must be {allowed}; got {value!r}.")

    def _incomplete(self, name: str) -> DataError:
        return DataError(f"The checkpoint {self.source} must have {name}. Save it with save_pretrained, all its parts.")

    def _copy_merges(self, assets: Path, **only: object) -> None:
        """Copy a byte-pair encoding; `only` as for `_tokenizer_model`."""
        if (self.directory / "tokenizer.json").is_file():
            model = _tokenizer_model(self.directory / "tokenizer.json", "BPE", **only)
            pairs = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
            (assets / "merges.txt").write_text("\n".join(pairs), encoding="utf-8")
            write_json(assets / "vocabulary.json", model["vocab"])
        else:
            self._copy("merges.txt", assets)
            self._copy("vocab.json", assets, "vocabulary.json")

    def _copy_pieces(
        self, name: str, assets: Path, arranged: Callable[[UnigramModel], UnigramModel] = lambda model: model
    ) -> None:
        """Copy a unigram model of sentencepiece, or make it of the `tokenizer.json` of newer checkpoints.

        Args:
            name: the file of sentencepiece.
            assets: directory of the copy.
            arranged: a model with subwords in the order of the transformers library -> in that of sentencepiece.
        """
        if (self.directory / name).is_file() or not self._has_unigram:
            self._copy(name, assets, "vocabulary.spm")
        else:
            model = arranged(UnigramModel.read(self.directory / "tokenizer.json"))
            (assets / "vocabulary.spm").write_bytes(model.proto())

    @property
    def _has_unigram(self) -> bool:
        """Whether there is a `tokenizer.json` with a unigram model."""
        path = self.directory / "tokenizer.json"
        content = read_json(path, "tokenizer") if path.is_file() else None
        return isinstance(content, dict) and (content.get("model") or {}).get("type") == "Unigram"

    def _copy(self, name: str, assets: Path, new_name: str | None = None) -> None:
        if not (self.directory / name).is_file():
            raise self._incomplete(name)
        shutil.copyfile(self.directory / name, assets / (new_name or name))


class DualCheckpoint(Checkpoint):
    """A checkpoint of a dual encoder."""

    # What `config.json` leaves out has these values.
    text_defaults: ClassVar[dict[str, Any]] = {}
    image_defaults: ClassVar[dict[str, Any]] = {}

    def describe(self, folder: Path) -> None:
        super().describe(folder)
        if not self.layout.write_processor(self.directory, folder):
            raise self._incomplete(PROCESSORS[-1])

    @property
    def text(self) -> dict[str, Any]:
        return self._tower("text", self.text_defaults)

    @property
    def images(self) -> dict[str, Any]:
        images = self._tower("vision", self.image_defaults)
        if images["num_channels"] != 3:
            raise self._unsupported("vision_config.num_channels", images["num_channels"], "3")
        return images

    def _tower(self, name: str, defaults: dict[str, Any]) -> dict[str, Any]:
        # Old files store a tower twice; the library prefers the second.
        tower = (self.config.get(f"{name}_config") or {}) | (self.config.get(f"{name}_config_dict") or {})
        return self._complete(f"{name}_config.", tower, defaults)


class _Weights:
    """Reads weights by their name in the transformers library, as float32, and assigns them to layers."""

    def __init__(self, directory: Path, layout: Layout) -> None:
        with needs_extra("safetensors", "hf"):
            import safetensors
        self._open: Any = safetensors.safe_open
        self._directory, self._layout = directory, layout
        self._files: dict[str, Any] = {}
        index = directory / layout.index_file()
        self._places: Mapping[str, str] | None = None
        if index.is_file():
            self._places = read_json(index, "index of weights")["weight_map"]

    def __enter__(self) -> _Weights:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.__exit__(None, None, None)

    def has(self, name: str) -> bool:
        """Return whether the files have a tensor."""
        place = self._layout.place(name)
        if self._places is not None:
            return self._places.keys() >= set(place.names)
        with self._reading(self._layout.weights_file, name) as file:
            names: list[str] = file.keys()
        return set(names) >= set(place.names)

    def read(self, name: str) -> np.ndarray:
        """Return a tensor.

        Raises:
            DataError: if the files do not have it.
        """
        names, third, transposed = self._layout.place(name)
        parts = [self._read(part) for part in names]
        value = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if third is not None:
            value = np.array_split(value, 3)[third]
        return value.T if transposed else value

    def _read(self, name: str) -> np.ndarray:
        """Return a tensor by its name in the files."""
        default = self._layout.weights_file
        place = default if self._places is None else self._places.get(name, default)
        with self._reading(place, name) as file:
            return np.asarray(file.get_tensor(name), np.float32)

    @contextmanager
    def _reading(self, place: str, name: str) -> Iterator[Any]:
        path = self._directory / Path(place).name
        if not path.is_file():
            raise DataError(
                f"{path}, a file of weights, is missing. Download or save the whole checkpoint, with its weights as "
                "safetensors."
            )
        try:
            if place not in self._files:
                self._files[place] = self._open(path, framework="numpy").__enter__()
            yield self._files[place]
        except Exception as error:  # The library raises its own type, and any of Python's for a bfloat16.
            raise DataError(f"{path} must be a file of weights with {name} ({one_line(error, 120)}).") from error

    def table(self, variable: Any, name: str, axes: Sequence[int] | None = None) -> None:
        """Assign a tensor with its axes in another order, or as it is; axes of length 1 may differ.

        Raises:
            DataError: for another shape.
        """
        value = self.read(name)
        self.fit(variable, value if axes is None or len(axes) != value.ndim else value.transpose(axes), name)

    def fit(self, variable: Any, value: np.ndarray, name: str) -> None:
        """Assign values that were made of the tensor `name`; axes of length 1 may differ.

        Raises:
            DataError: for another shape.
        """
        if _sides(value.shape) != _sides(variable.shape):
            raise self._misfit(name, value)
        variable.assign(value.reshape(variable.shape))

    def _misfit(self, name: str, value: np.ndarray) -> DataError:
        names = " and ".join(self._layout.place(name).names)
        return DataError(f"{names} in {self._directory} must fit {self._layout.config_file}; got shape {value.shape}.")

    def norm(self, layer: Any, name: str) -> None:
        # Old checkpoints of BERT have the names of TensorFlow.
        weight, bias = ("gamma", "beta") if self.has(f"{name}.gamma") else ("weight", "bias")
        self.table(layer.gamma, f"{name}.{weight}")
        self.table(layer.beta, f"{name}.{bias}")

    def dense(self, layer: Any, name: str) -> None:
        self.table(layer.kernel, f"{name}.weight", (1, 0))
        if layer.bias is not None:
            self.table(layer.bias, f"{name}.bias")

    def patches(self, layer: Any, name: str) -> None:
        self.table(layer.kernel, f"{name}.weight", (2, 3, 1, 0))
        if layer.bias is not None:
            self.table(layer.bias, f"{name}.bias")

    def attention(self, layer: Any, name: str) -> None:
        """Assign an attention layer with a matrix each for queries, keys and values."""
        names = [f"{name}.{part}_proj" for part in "qkv"]
        kernels = [self.read(f"{each}.weight") for each in names]
        self._assign_attention(layer, name, kernels, [self.read(f"{each}.bias") for each in names])

    def joined_attention(self, layer: Any, name: str) -> None:
        """Assign an attention layer with one matrix for queries, keys and values, one below the other."""
        kernels, biases = (np.array_split(self.read(f"{name}.in_proj_{part}"), 3) for part in ("weight", "bias"))
        self._assign_attention(layer, name, kernels, biases)

    def bert_attention(self, layer: Any, name: str) -> None:
        """Assign an attention layer with BERT's names of its matrices."""
        parts = [f"{name}.self.{part}" for part in ("query", "key", "value")]
        kernels, biases = ([self.read(f"{part}.{kind}") for part in parts] for kind in ("weight", "bias"))
        self._assign_attention(layer, f"{name}.output.dense", kernels, biases, "")

    def _assign_attention(
        self, layer: Any, name: str, kernels: list[np.ndarray], biases: list[np.ndarray], last: str = ".out_proj"
    ) -> None:
        """Assign (width, width) matrices, in which the rows of a head are one below the other."""
        output = self.read(f"{name}{last}.weight")
        parts = [layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense]
        for part, kernel in zip(parts, [*kernels, output], strict=True):
            if kernel.shape != output.shape or kernel.size != np.prod(part.kernel.shape):
                raise self._misfit(name, kernel)
            part.kernel.assign(kernel.T.reshape(part.kernel.shape))
        for part, bias in zip(parts, [*biases, self.read(f"{name}{last}.bias")], strict=True):
            if bias.size != np.prod(part.bias.shape):
                raise self._misfit(name, bias)
            part.bias.assign(bias.reshape(part.bias.shape))


def _sides(shape: Sequence[int]) -> list[int]:
    """Return a shape without axes of length 1."""
    return [side for side in shape if side > 1]


def _layer(kind: type, **config: Any) -> dict[str, Any]:
    """Return the configuration of a layer as Keras writes it."""
    return {
        "module": kind.__module__,
        "class_name": kind.__name__,
        "config": {"trainable": True, **config},
        "registered_name": keras.saving.get_registered_name(kind),
    }


class ClipCheckpoint(DualCheckpoint):
    """`CLIPModel`: CLIP of OpenAI (Radford et al. 2021, arXiv:2103.00020), of LAION, MetaCLIP, DFN."""

    text_defaults = {
        "vocab_size": 49408,
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "max_position_embeddings": 77,
        "eos_token_id": 49407,
        **_CLIP,
    }
    image_defaults = {**_BASE, **_CLIP, "num_channels": 3, "image_size": 224, "patch_size": 32}
    networks: ClassVar[tuple[str, str, str]] = ("CLIPBackbone", "CLIPVisionEncoder", "CLIPTextEncoder")

    def describe(self, folder: Path) -> None:
        super().describe(folder)
        # keras-hub's preprocessor reads 77 ids of a text unless it is told another number.
        options = {"sequence_length": self.text["max_position_embeddings"]}
        write_json(folder / _PREPROCESSOR, {"class_name": "CLIPPreprocessor", "config": options})

    def network(self) -> dict[str, Any]:
        import keras_hub

        both, of_images, of_texts = (getattr(keras_hub.models, name) for name in self.networks)
        for tower, values in (("text", self.text), ("vision", self.images)):
            if values["layer_norm_eps"] != 1e-5:
                raise self._unsupported(f"{tower}_config.layer_norm_eps", values["layer_norm_eps"], "1e-05")
        images = _layer(
            of_images,
            name="image_tower",
            patch_size=self.images["patch_size"],
            image_shape=[self.images["image_size"], self.images["image_size"], 3],
            **_transformer(self.images),
        )
        texts = _layer(
            of_texts,
            name="text_tower",
            vocabulary_size=self.text["vocab_size"],
            embedding_dim=self.text["hidden_size"],
            max_sequence_length=self.text["max_position_embeddings"],
            **_transformer(self.text),
        )
        dim = self.config.get("projection_dim", 512)
        return _layer(both, name="dual_encoder", vision_encoder=images, text_encoder=texts, projection_dim=dim)

    def describe_tokenizer(self, assets: Path) -> dict[str, Any]:
        self._copy_merges(assets, end_of_word_suffix="</w>")
        end = read_json(assets / "vocabulary.json", "vocabulary").get("<|endoftext|>")
        if self.text["eos_token_id"] not in (_LARGEST, end):
            raise self._unsupported(
                "text_config.eos_token_id", self.text["eos_token_id"], f"{end}, as in its tokenizer"
            )
        return {"class_name": "CLIPTokenizer", "config": {"pad_with_end_token": True}}

    def assign(self, network: Any, weights: _Weights) -> None:
        images, texts = network.vision_encoder, network.text_encoder
        weights.patches(images.embedding.patch_embedding, "vision_model.embeddings.patch_embedding")
        weights.table(images.embedding.class_embedding, "vision_model.embeddings.class_embedding")
        weights.table(
            images.embedding.position_embedding.embeddings, "vision_model.embeddings.position_embedding.weight"
        )
        weights.norm(images.pre_layer_norm, "vision_model.pre_layrnorm")
        weights.norm(self.last_norm(network), "vision_model.post_layernorm")
        weights.dense(network.vision_projection, "visual_projection")
        weights.table(texts.embedding.token_embedding.embeddings, "text_model.embeddings.token_embedding.weight")
        positions = texts.embedding.position_embedding.position_embeddings
        weights.table(positions, "text_model.embeddings.position_embedding.weight")
        weights.norm(texts.layer_norm, "text_model.final_layer_norm")
        weights.dense(network.text_projection, "text_projection")
        weights.table(self.head(network).logit_scale, "logit_scale")
        for tower, name in ((images, "vision_model"), (texts, "text_model")):
            for number, layer in enumerate(tower.encoder_layers):
                place = f"{name}.encoder.layers.{number}"
                weights.norm(layer.layer_norm_1, f"{place}.layer_norm1")
                weights.attention(layer.attention, f"{place}.self_attn")
                weights.norm(layer.layer_norm_2, f"{place}.layer_norm2")
                weights.dense(layer.dense_1, f"{place}.mlp.fc1")
                weights.dense(layer.dense_2, f"{place}.mlp.fc2")

    def last_norm(self, network: Any) -> Any:
        """Return the layer normalization behind the image tower."""
        return network.vision_encoder.layer_norm

    def head(self, network: Any) -> Any:
        """Return the layer with the logit scale."""
        return network.clip_head


class MetaClip2Checkpoint(ClipCheckpoint):
    """`MetaClip2Model` (Chuang et al. 2025, arXiv:2507.22062): CLIP with the tokenizer of XLM-V."""

    networks = ("MetaCLIP2Backbone", "MetaCLIP2VisionEncoder", "MetaCLIP2TextEncoder")

    def describe_tokenizer(self, assets: Path) -> dict[str, Any]:
        if self.text["eos_token_id"] != _XLM_END:
            raise self._unsupported("text_config.eos_token_id", self.text["eos_token_id"], str(_XLM_END))
        self._copy_pieces(_XLM_PIECES, assets, _without_padding)
        # keras-hub's preprocessor lower-cases by default.
        return {"class_name": "MetaCLIP2Tokenizer", "config": {"to_lower": False}}

    def last_norm(self, network: Any) -> Any:
        return network.vision_post_layer_norm

    def head(self, network: Any) -> Any:
        return network.metaclip_2_head


class SiglipCheckpoint(DualCheckpoint):
    """`SiglipModel`: SigLIP (Zhai et al. 2023, arXiv:2303.15343), and SigLIP 2 (arXiv:2502.14786) of one image size."""

    text_defaults = {
        **_BASE,
        **_SIGLIP,
        "vocab_size": 32000,
        "max_position_embeddings": 64,
        "projection_size": None,
    }
    image_defaults = {
        **_BASE,
        **_SIGLIP,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 16,
        "vision_use_head": True,
    }

    def network(self) -> dict[str, Any]:
        from keras_hub import models

        if not self.images["vision_use_head"]:
            raise self._unsupported("vision_config.vision_use_head", False, "true")
        images = _layer(
            models.SigLIPVisionEncoder,
            name="image_tower",
            patch_size=self.images["patch_size"],
            image_shape=[self.images["image_size"], self.images["image_size"], 3],
            layer_norm_epsilon=self.images["layer_norm_eps"],
            **_transformer(self.images),
        )
        texts = _layer(
            models.SigLIPTextEncoder,
            name="text_tower",
            vocabulary_size=self.text["vocab_size"],
            embedding_dim=self.text["hidden_size"],
            max_sequence_length=self.text["max_position_embeddings"],
            projection_dim=self.text["projection_size"],
            layer_norm_epsilon=self.text["layer_norm_eps"],
            **_transformer(self.text),
        )
        return _layer(models.SigLIPBackbone, name="dual_encoder", vision_encoder=images, text_encoder=texts)

    def describe_tokenizer(self, assets: Path) -> dict[str, Any]:
        if (self.directory / "spiece.model").is_file() or self._has_unigram:
            self._copy_pieces("spiece.model", assets)
            return {"class_name": "SigLIPTokenizer", "config": {}}
        # SigLIP 2 has Gemma's tokenizer.
        self._copy("tokenizer.json", assets)
        settings = read_json(self.directory / "tokenizer_config.json", "tokenizer")
        side = settings.get("padding_side", "right")
        if side != "right":
            raise DataError(f"`padding_side` in tokenizer_config.json of {self.source} must be right; got {side!r}.")
        return {"class_name": "Siglip2Tokenizer", "config": {}}

    def assign(self, network: Any, weights: _Weights) -> None:
        images, texts = network.vision_encoder, network.text_encoder
        weights.patches(images.embedding.patch_embedding, "vision_model.embeddings.patch_embedding")
        for tower, name in ((images, "vision_model"), (texts, "text_model")):
            positions = tower.embedding.position_embedding.embeddings
            weights.table(positions, f"{name}.embeddings.position_embedding.weight")
            for number, layer in enumerate(tower.encoder_layers):
                place = f"{name}.encoder.layers.{number}"
                weights.norm(layer.layer_norm1, f"{place}.layer_norm1")
                weights.attention(layer.self_attn, f"{place}.self_attn")
                weights.norm(layer.layer_norm2, f"{place}.layer_norm2")
                weights.dense(layer.mlp.fc1, f"{place}.mlp.fc1")
                weights.dense(layer.mlp.fc2, f"{place}.mlp.fc2")
        weights.norm(images.post_layer_norm, "vision_model.post_layernorm")
        weights.table(images.head.probe, "vision_model.head.probe")
        weights.joined_attention(images.head.attention, "vision_model.head.attention")
        weights.norm(images.head.layer_norm, "vision_model.head.layernorm")
        weights.dense(images.head.mlp.fc1, "vision_model.head.mlp.fc1")
        weights.dense(images.head.mlp.fc2, "vision_model.head.mlp.fc2")
        weights.table(texts.embedding.token_embedding.embeddings, "text_model.embeddings.token_embedding.weight")
        weights.norm(texts.post_layer_norm, "text_model.final_layer_norm")
        weights.dense(texts.head, "text_model.head")
        weights.table(network.siglip_head.logit_scale, "logit_scale")
        weights.table(network.siglip_head.logit_bias, "logit_bias")


class EncoderCheckpoint(Checkpoint):
    """Base of the networks with a vector per token, BERT and its relatives.

    Class attributes:
        kind: class of the network in keras-hub.
        defaults: what `config.json` leaves out.
        first: number of positions before that of the first token.
    """

    kind: ClassVar[str]
    first: ClassVar[int] = 0
    defaults: ClassVar[dict[str, Any]] = {
        **_BASE,
        "hidden_act": "gelu",
        "vocab_size": 30522,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "position_embedding_type": "absolute",
    }

    @property
    def text(self) -> dict[str, Any]:
        text = self._complete("", self.config, self.defaults)
        if text["position_embedding_type"] != "absolute":
            raise self._unsupported("position_embedding_type", text["position_embedding_type"], "absolute")
        return text

    def network(self) -> dict[str, Any]:
        import keras_hub

        text = self.text
        options = _transformer(text)
        settings = {"activation": options.pop("intermediate_activation"), "epsilon": text["layer_norm_eps"]}
        described = _layer(
            getattr(keras_hub.models, self.kind),
            name="text_network",
            vocabulary_size=text["vocab_size"],
            max_sequence_length=text["max_position_embeddings"] - self.first,
            dropout=text["hidden_dropout_prob"],
            **self.options(text),
            **options,
        )
        return {**described, SETTINGS: settings}

    def options(self, text: dict[str, Any]) -> dict[str, Any]:
        """Return further arguments of the network's class."""
        return {}

    def assign(self, network: Any, weights: _Weights) -> None:
        # Models with a head have the network inside.
        base = next((base for base in ("", "bert.", "roberta.") if weights.has(f"{base}{_WORDS}")), "")
        weights.table(network.token_embedding.embeddings, f"{base}{_WORDS}")
        self.assign_positions(network, weights, f"{base}embeddings")
        weights.norm(network.embeddings_layer_norm, f"{base}embeddings.LayerNorm")
        for number, layer in enumerate(network.transformer_layers):
            place = f"{base}encoder.layer.{number}"
            weights.bert_attention(layer._self_attention_layer, f"{place}.attention")
            weights.norm(layer._self_attention_layer_norm, f"{place}.attention.output.LayerNorm")
            weights.dense(layer._feedforward_intermediate_dense, f"{place}.intermediate.dense")
            weights.dense(layer._feedforward_output_dense, f"{place}.output.dense")
            weights.norm(layer._feedforward_layer_norm, f"{place}.output.LayerNorm")

    def _copy_xlm(self, assets: Path) -> dict[str, Any]:
        self._copy_pieces(_XLM_PIECES, assets, _without_padding)
        return {"class_name": "XLMRobertaTokenizer", "config": {}}

    @abstractmethod
    def assign_positions(self, network: Any, weights: _Weights, name: str) -> None:
        """Assign the vectors of positions and segments."""


class BertCheckpoint(EncoderCheckpoint):
    """`BertModel`: BERT (Devlin et al. 2019, arXiv:1810.04805), E5 (arXiv:2212.03533) and others."""

    kind = "BertBackbone"

    def options(self, text: dict[str, Any]) -> dict[str, Any]:
        return {"num_segments": text["type_vocab_size"]}

    def describe_tokenizer(self, assets: Path) -> dict[str, Any]:
        if (self.directory / _XLM_PIECES).is_file() or self._has_unigram:
            # The small multilingual E5 is a BERT with the tokenizer of XLM-R.
            return self._copy_xlm(assets)
        settings = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
        if (self.directory / "tokenizer.json").is_file():
            path = self.directory / "tokenizer.json"
            model = _tokenizer_model(path, "WordPiece", unk_token="[UNK]", continuing_subword_prefix="##")
            pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
            if [model["vocab"][piece] for piece in pieces] != list(range(len(pieces))):
                raise DataError(f"{path} must map each subword to a distinct number from 0.")
            (assets / "vocabulary.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
            normalizer = read_json(path, "tokenizer").get("normalizer") or {}
            _only(f"`normalizer` in {path}", normalizer, type="BertNormalizer", clean_text=True)
            names = ("lowercase", "strip_accents", "handle_chinese_chars")
            settings = dict(zip(settings, (normalizer.get(name) for name in names), strict=True))
        else:
            self._copy("vocab.txt", assets, "vocabulary.txt")
            path = self.directory / "tokenizer_config.json"
            if path.is_file():
                settings |= read_json(path, "tokenizer")
        _only(f"The tokenizer of {self.source}", settings, tokenize_chinese_chars=True)
        lower, strip = settings["do_lower_case"], settings["strip_accents"]
        return {
            "class_name": "BertTokenizer",
            "config": {"lowercase": lower, "strip_accents": lower if strip is None else strip},
        }

    def assign_positions(self, network: Any, weights: _Weights, name: str) -> None:
        weights.table(network.position_embedding.position_embeddings, f"{name}.position_embeddings.weight")
        weights.table(network.segment_embedding.embeddings, f"{name}.token_type_embeddings.weight")


class RobertaCheckpoint(EncoderCheckpoint):
    """`RobertaModel` (Liu et al. 2019, arXiv:1907.11692). Its positions begin behind the id of padding, which is 1."""

    kind = "RobertaBackbone"
    first = 2
    defaults = {**EncoderCheckpoint.defaults, "vocab_size": 50265, "pad_token_id": 1}

    @property
    def text(self) -> dict[str, Any]:
        text = super().text
        if text["pad_token_id"] != 1:
            raise self._unsupported("pad_token_id", text["pad_token_id"], "1")
        return text

    def describe_tokenizer(self, assets: Path) -> dict[str, Any]:
        self._copy_merges(assets)
        path = self.directory / "tokenizer.json"
        if path.is_file():
            words = read_json(path, "tokenizer").get("pre_tokenizer") or {}
            _only(f"`pre_tokenizer` in {path}", words, type="ByteLevel", add_prefix_space=False)
        return {"class_name": "RobertaTokenizer", "config": {}}

    def assign_positions(self, network: Any, weights: _Weights, name: str) -> None:
        positions = weights.read(f"{name}.position_embeddings.weight")[self.first :]
        # All tokens are of the first segment.
        positions = positions + weights.read(f"{name}.token_type_embeddings.weight")[:1]
        variable = network.embeddings.position_embedding.position_embeddings
        weights.fit(variable, positions, f"{name}.position_embeddings.weight")


class XlmRobertaCheckpoint(RobertaCheckpoint):
    """`XLMRobertaModel` (Conneau et al. 2020, arXiv:1911.02116), and multilingual E5 (arXiv:2402.05672)."""

    kind = "XLMRobertaBackbone"

    def describe_tokenizer(self, assets: Path) -> dict[str, Any]:
        return self._copy_xlm(assets)


def _only(place: str, fields: dict[str, Any], **only: object) -> None:
    for name, value in only.items():
        if fields.get(name) != value:
            raise DataError(f"{place} must have {name}={json.dumps(value)}; got {json.dumps(fields.get(name))}.")


def _transformer(tower: dict[str, Any]) -> dict[str, Any]:
    return {
        "hidden_dim": tower["hidden_size"],
        "num_layers": tower["num_hidden_layers"],
        "num_heads": tower["num_attention_heads"],
        "intermediate_dim": tower["intermediate_size"],
        "intermediate_activation": _ACTIVATIONS[tower["hidden_act"]],
    }


# `model_type` in `config.json` -> class.
_TYPES: dict[str, type[Checkpoint]] = {
    "clip": ClipCheckpoint,
    "metaclip_2": MetaClip2Checkpoint,
    "siglip": SiglipCheckpoint,
    "bert": BertCheckpoint,
    "roberta": RobertaCheckpoint,
    "xlm-roberta": XlmRobertaCheckpoint,
}


def open_checkpoint(source: str) -> Checkpoint | None:
    """Open a checkpoint of a network that reads texts, without its weights.

    Args:
        source: a directory, or `hf://USER/NAME`, which is downloaded to the cache of huggingface_hub.

    Returns:
        The checkpoint; None for another source, and for checkpoints of other architectures.

    Raises:
        DataError: if the download fails, or its settings are malformed or not supported.
        MissingExtraError: for a handle without huggingface_hub.
    """
    directory = _download(source) if source.startswith(HANDLE) else Path(source)
    for layout in sorted(LAYOUTS, key=lambda layout: not layout.has_weights(directory)):
        settings = layout.open(directory, source)
        kind = None if settings is None else _TYPES.get(str(settings.config.get("model_type")))
        if settings is not None and kind is not None:
            return kind(directory, settings, source)
    return None


@functools.cache
def _download(source: str, layout: type[Layout] | None = None) -> Path:
    """Download the description of a repository of the Hub, or its weights of a layout too; with progress bars."""
    with needs_extra("huggingface_hub", "hf"):
        import huggingface_hub
    files = [*(name for each in LAYOUTS for name in each.files), *_TOKENIZERS]
    if layout is not None:
        parts = layout.weights_file.replace(".", "-*.")
        files += [layout.index_file(), layout.weights_file, parts]
    name = source.removeprefix(HANDLE)
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=files))
    except Exception as error:  # The library and its HTTP client raise many types.
        own = TransformersLayout
        wanted = f"{own.config_file}, {own.weights_file}, {PROCESSORS[-1]} and the tokenizer's files"
        raise DataError(
            f"Cannot download {source} ({one_line(error, 160)}). Without a network, download its files elsewhere "
            f"({wanted}), put them into one directory and pass hub:DIRECTORY."
        ) from error


def _without_padding(model: UnigramModel) -> UnigramModel:
    """Return a model of XLM-R, whose ids begin with names of the transformers library, with those of sentencepiece."""
    names = [piece for piece, _, _ in model.pieces[:4]]
    if names != ["<s>", "<pad>", "</s>", "<unk>"]:
        raise DataError(
            f"The first subwords in tokenizer.json must be <s>, <pad>, </s>, <unk>; got {', '.join(names)}."
        )
    start, _, end, unknown, *others = model.pieces
    return replace(model, pieces=(unknown, start, end, *others))


def _tokenizer_model(path: Path, kind: str, **only: object) -> dict[str, Any]:
    """Return the model in a `tokenizer.json` of the tokenizers library.

    Raises:
        DataError: for another model, or other values of the fields `only`.
    """
    content = read_json(path, "tokenizer")
    model = content.get("model") if isinstance(content, dict) else None
    wanted = {"type": kind, **only}
    got = {field: model.get(field) for field in wanted} if isinstance(model, dict) else None
    if got != wanted:
        raise DataError(f"`model` in {path} must have {json.dumps(wanted)}; got {json.dumps(got)}.")
    return model  # type: ignore[return-value]
