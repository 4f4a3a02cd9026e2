"""Checkpoints of open_clip, in terms of the transformers library.

A repository or directory of open_clip has these files:

    open_clip_config.json         network, and preprocessing of pixels
    open_clip_model.safetensors   weights, such as `visual.transformer.resblocks.0.ln_1.weight`
    tokenizer.json, …             tokenizer

    towers                                 network
    its own Transformers, pool `argmax`    CLIP
    its own Transformers, pool `eos`       MetaCLIP 2
    timm's Transformer of SigLIP           SigLIP, SigLIP 2

Each field of the file is honoured, has no effect on embeddings, or is refused by its name.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vsemb.errors import DataError
from vsemb.files import read_json, write_json
from vsemb.systems.presets.layouts import EVEN_OFFSET, PROCESSORS, Layout, Place

_CONFIG = "open_clip_config.json"
# Interpolations -> numbers in Pillow; `random` is for training.
_RESAMPLES = {"bicubic": 3, "bilinear": 2, "random": 3}
# Sizes of SigLIP's image tower -> width, layers, heads, width inside.
_SIZES = {
    "base": (768, 12, 12, 3072),
    "large": (1024, 24, 16, 4096),
    "so400m": (1152, 27, 16, 4304),
    "giantopt": (1536, 40, 16, 6144),
}
# Its activation in timm, by size, side of a patch and side of an image.
_TRUNKS = {
    "gelu": {("base", 16): (224, 256, 384, 512), ("large", 16): (256, 384), ("so400m", 14): (224, 378, 384)},
    "gelu_pytorch_tanh": {
        ("base", 32): (256,),
        ("large", 16): (512,),
        ("so400m", 16): (256, 384, 512),
        ("giantopt", 16): (256, 384),
    },
}


def _trunk(size: str, patch: int, activation: str) -> dict[str, Any]:
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return {**dict(zip(names, _SIZES[size], strict=True)), "patch_size": patch, "hidden_act": activation}


#: Names of SigLIP's image towers in timm -> configuration in the transformers library.
TRUNKS = {
    f"vit_{size}_patch{patch}_siglip_{side}": _trunk(size, patch, activation)
    for activation, towers in _TRUNKS.items()
    for (size, patch), sides in towers.items()
    for side in sides
}
# Fields without an effect on embeddings of a network that has none of the parts they configure.
_NO_EFFECT = {
    "": ("init_logit_scale", "nonscalar_logit_scale", "output_dict", "cast_dtype"),
    "vision_cfg.": (
        "patch_dropout",
        "output_tokens",
        "final_ln_after_pool",
        "attn_pooler_queries",
        "attn_pooler_heads",
        "timm_model_pretrained",
        "timm_drop",
        "timm_drop_path",
        "timm_proj_bias",
    ),
    # The mask of later tokens hides padding.
    "text_cfg.": (
        "pad_id",
        "output_tokens",
        "final_ln_after_pool",
        "hf_tokenizer_name",
        "hf_model_pretrained",
        "hf_proj_type",
        "hf_pooler_type",
    ),
    "preprocess_cfg.": ("size", "fill_color"),
}

# Names of tensors in the transformers library, as patterns -> names in the file.
Names = Mapping[str, str | tuple[str, ...]]
_BLOCK = {
    r"layer_norm(?P<number>\d)\.(?P<kind>\w+)": r"ln_\g<number>.\g<kind>",
    r"self_attn\.(?P<third>[qkv])_proj\.(?P<kind>\w+)": r"attn.in_proj_\g<kind>",
    r"self_attn\.out_proj\.(?P<kind>\w+)": r"attn.out_proj.\g<kind>",
    r"mlp\.fc1\.(?P<kind>\w+)": r"mlp.c_fc.\g<kind>",
    r"mlp\.fc2\.(?P<kind>\w+)": r"mlp.c_proj.\g<kind>",
}
_TIMM_BLOCK = {
    r"layer_norm(?P<number>\d)\.(?P<kind>\w+)": r"norm\g<number>.\g<kind>",
    r"self_attn\.(?P<third>[qkv])_proj\.(?P<kind>\w+)": r"attn.qkv.\g<kind>",
    r"self_attn\.out_proj\.(?P<kind>\w+)": r"attn.proj.\g<kind>",
    r"mlp\.(?P<part>fc\d\.\w+)": r"mlp.\g<part>",
}


def _blocks(tower: str, place: str, block: Mapping[str, str]) -> Names:
    before = rf"{tower}_model\.encoder\.layers\.(?P<layer>\d+)\."
    return {f"{before}{name}": rf"{place}.\g<layer>.{target}" for name, target in block.items()}


_IMAGES: Names = {
    r"vision_model\.embeddings\.class_embedding": "visual.class_embedding",
    r"vision_model\.embeddings\.patch_embedding\.weight": "visual.conv1.weight",
    r"vision_model\.embeddings\.position_embedding\.weight": "visual.positional_embedding",
    r"vision_model\.pre_layrnorm\.(?P<kind>\w+)": r"visual.ln_pre.\g<kind>",
    r"vision_model\.post_layernorm\.(?P<kind>\w+)": r"visual.ln_post.\g<kind>",
    r"visual_projection\.(?P<transposed>weight)": "visual.proj",
    **_blocks("vision", "visual.transformer.resblocks", _BLOCK),
}
_TIMM_IMAGES: Names = {
    r"vision_model\.embeddings\.patch_embedding\.(?P<kind>\w+)": r"visual.trunk.patch_embed.proj.\g<kind>",
    r"vision_model\.embeddings\.position_embedding\.weight": "visual.trunk.pos_embed",
    r"vision_model\.post_layernorm\.(?P<kind>\w+)": r"visual.trunk.norm.\g<kind>",
    r"vision_model\.head\.probe": "visual.trunk.attn_pool.latent",
    r"vision_model\.head\.attention\.in_proj_(?P<kind>\w+)": (
        r"visual.trunk.attn_pool.q.\g<kind>",
        r"visual.trunk.attn_pool.kv.\g<kind>",
    ),
    r"vision_model\.head\.attention\.out_proj\.(?P<kind>\w+)": r"visual.trunk.attn_pool.proj.\g<kind>",
    r"vision_model\.head\.layernorm\.(?P<kind>\w+)": r"visual.trunk.attn_pool.norm.\g<kind>",
    r"vision_model\.head\.(?P<part>mlp\.fc\d\.\w+)": r"visual.trunk.attn_pool.\g<part>",
    **_blocks("vision", "visual.trunk.blocks", _TIMM_BLOCK),
}


def _texts(before: str) -> Names:
    """Return the names of the text tower, which begin with `text.` in models with `custom_text`."""
    return {
        r"text_model\.embeddings\.token_embedding\.weight": f"{before}token_embedding.weight",
        r"text_model\.embeddings\.position_embedding\.weight": f"{before}positional_embedding",
        r"text_model\.final_layer_norm\.(?P<kind>\w+)": rf"{before}ln_final.\g<kind>",
        r"text_model\.head\.(?P<kind>\w+)": rf"{before}text_projection.\g<kind>",
        r"text_projection\.(?P<transposed>weight)": f"{before}text_projection",
        **_blocks("text", f"{before}transformer.resblocks", _BLOCK),
    }


class _Fields:
    """Fields of a part of the file. Each one is read, or must be absent."""

    def __init__(self, values: object, place: str, source: str) -> None:
        self._place, self._source = place, source
        if not isinstance(values, dict):
            raise self.refused(place.rstrip(".") or "model_cfg", values, "an object", whole=True)
        self._values = {name: value for name, value in values.items() if name not in _NO_EFFECT.get(place, ())}

    def refused(self, name: str, value: object, allowed: str, whole: bool = False) -> DataError:
        name = name if whole else f"{self._place}{name}"
        return DataError(f"`{name}` in {_CONFIG} of {self._source} must be {allowed}; got {value!r}.")

    def read(self, name: str, default: Any = None) -> Any:
        """Return a value of any type."""
        value = self._values.pop(name, None)
        return default if value is None else value

    def only(self, name: str, allowed: object, default: object = None) -> None:
        """Refuse any other value of a field; `default` is what its absence means."""
        value = self.read(name, default)
        if (value or None) != (allowed or None):
            raise self.refused(name, value, repr(allowed) if allowed else "absent")

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return a value; the first one is the default."""
        value = self.read(name, allowed[0])
        if value not in allowed:
            raise self.refused(name, value, f"one of {', '.join(allowed)}")
        return str(value)

    def size(self, name: str, default: int) -> int:
        value = self.read(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refused(name, value, "a whole number above 0")
        return value

    def square(self, name: str, default: int) -> int:
        """Return the side of a square, which may be stored twice."""
        value = self.read(name, default)
        sides = value if isinstance(value, list) and len(set(value)) == 1 else [value]
        self._values[name] = sides[0]
        return self.size(name, default)

    def ratio(self, name: str, default: float) -> float:
        value = self.read(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise self.refused(name, value, "a number above 0")
        return float(value)

    def part(self, name: str) -> _Fields:
        return _Fields(self.read(name, {}), f"{self._place}{name}.", self._source)

    def activation(self, quick: object) -> str:
        """Return the name of the activation in the transformers library."""
        options = self.part("act_kwargs")
        approximation = options.read("approximate", "none")
        names = {"none": "gelu", "tanh": "gelu_pytorch_tanh"}
        if quick:
            names = {"none": "quick_gelu"}
        if approximation not in names:
            raise options.refused("approximate", approximation, f"one of {', '.join(names)}")
        options.end()
        return names[approximation]

    def epsilon(self) -> float:
        """Return the epsilon of layer normalizations."""
        options = self.part("norm_kwargs")
        epsilon = options.ratio("eps", 1e-5)
        options.end()
        return epsilon

    def end(self) -> None:
        """Refuse fields that were not read."""
        for name, value in self._values.items():
            if value:
                raise self.refused(name, value, "absent")


@dataclass(frozen=True)
class OpenClipLayout(Layout):
    """Files of open_clip.

    Attributes:
        names: names of tensors in the transformers library, as patterns -> names in the file.
        processor: an image processor of the transformers library.
        tokenizers: class of a tokenizer in the transformers library -> its configuration in open_clip.
    """

    names: Names
    processor: dict[str, Any]
    tokenizers: Mapping[str, dict[str, Any]]

    config_file = _CONFIG
    weights_file = "open_clip_model.safetensors"
    files = (_CONFIG,)

    @classmethod
    def open(cls, directory: Path, source: str) -> Self | None:
        path = directory / _CONFIG
        if not path.is_file():
            return None
        content = read_json(path, "checkpoint")
        content = content if isinstance(content, dict) else {}
        model = _Fields(content.get("model_cfg"), "", source)
        images, texts = model.part("vision_cfg"), model.part("text_cfg")
        custom, dim, quick = model.read("custom_text"), model.size("embed_dim", 512), model.read("quick_gelu")
        trunk = images.read("timm_model_name")
        towers = _Siglip(images, texts, dim, quick, trunk) if trunk else _Clip(images, texts, dim, quick)
        model.only("multimodal_cfg", None)
        config = towers.config(model)
        model.end()
        images.end()
        texts.end()
        side = config["vision_config"]["image_size"]
        processor = _processor(_Fields(content.get("preprocess_cfg") or {}, "preprocess_cfg.", source), side)
        names = {**towers.names, **_texts("text." if custom else "")}
        return cls(config, names, processor, towers.tokenizers)

    def place(self, name: str) -> Place:
        for pattern, targets in self.names.items():
            match = re.fullmatch(pattern, name)
            if match:
                targets = (targets,) if isinstance(targets, str) else targets
                groups = match.groupdict()
                third = "qkv".index(groups["third"]) if "third" in groups else None
                return Place(tuple(map(match.expand, targets)), third, "transposed" in groups)
        return Place((name,))

    def write_processor(self, directory: Path, folder: Path) -> bool:
        write_json(folder / PROCESSORS[-1], self.processor)
        return True

    def tokenizer(self, described: dict[str, Any]) -> dict[str, Any]:
        return self.tokenizers.get(described["class_name"], described)


class _Towers(ABC):
    """Base of the pairs of towers, whose settings are read once.

    Class attributes:
        names, tokenizers: see `OpenClipLayout`.
    """

    names: Names
    tokenizers: Mapping[str, dict[str, Any]] = {}

    def __init__(self, images: _Fields, texts: _Fields, dim: int, quick: object) -> None:
        self.images, self.texts, self.dim, self.quick = images, texts, dim, quick

    @abstractmethod
    def config(self, model: _Fields) -> dict[str, Any]:
        """Return the configuration in the transformers library; `model` are the fields of both towers."""

    def text(self) -> dict[str, Any]:
        """Return the configuration of the text tower, without pooling."""
        texts = self.texts
        texts.only("hf_model_name", None)
        texts.only("proj_type", "linear", "linear")
        width = texts.size("width", 512)
        return {
            "hidden_size": width,
            "intermediate_size": int(width * texts.ratio("mlp_ratio", 4.0)),
            "num_hidden_layers": texts.size("layers", 12),
            "num_attention_heads": texts.size("heads", 8),
            "max_position_embeddings": texts.size("context_length", 77),
            "vocab_size": texts.size("vocab_size", 49408),
            "hidden_act": texts.activation(self.quick),
            "layer_norm_eps": texts.epsilon(),
        }


class _Clip(_Towers):
    """Transformers of open_clip, with a causal text tower."""

    names = _IMAGES
    # Texts are padded with 0, which the network does not see.
    tokenizers = {"CLIPTokenizer": {"class_name": "CLIPTokenizer", "config": {"pad_with_end_token": False}}}

    def config(self, model: _Fields) -> dict[str, Any]:
        text = self.text()
        self.texts.only("no_causal_mask", None)
        self.texts.only("proj_bias", None)
        kind, options = "clip", self.texts.part("tokenizer_kwargs")
        if self.texts.one_of("pool_type", ("argmax", "eos")) == "eos":
            kind = "metaclip_2"
            options.only("clean", "whitespace", "whitespace")
            text["eos_token_id"] = self.texts.size("eos_id", 2)
        else:
            options.only("clean", "lower", "lower")
            self.texts.read("eos_id")
            # The token with the largest id ends a text.
            text["eos_token_id"] = 2
        options.end()
        return {
            "model_type": kind,
            "projection_dim": self.dim,
            "text_config": text,
            "vision_config": self._vision(),
        }

    def _vision(self) -> dict[str, Any]:
        images = self.images
        images.only("pool_type", "tok", "tok")
        images.only("pos_embed_type", "learnable", "learnable")
        # Fields of towers of timm.
        images.read("timm_pool")
        images.read("timm_proj")
        width, head = images.size("width", 768), images.size("head_width", 64)
        return {
            "hidden_size": width,
            "intermediate_size": int(width * images.ratio("mlp_ratio", 4.0)),
            "num_hidden_layers": images.size("layers", 12),
            "num_attention_heads": max(width // head, 1),
            "image_size": images.square("image_size", 224),
            "patch_size": images.square("patch_size", 16),
            "hidden_act": images.activation(self.quick),
            "layer_norm_eps": images.epsilon(),
        }


class _Siglip(_Towers):
    """SigLIP's image tower in timm, and a text tower that sees all tokens and pools the last one."""

    names = _TIMM_IMAGES
    tokenizers = {
        name: {"class_name": f"Canonical{name}", "config": {}} for name in ("SigLIPTokenizer", "Siglip2Tokenizer")
    }

    def __init__(self, images: _Fields, texts: _Fields, dim: int, quick: object, trunk: object) -> None:
        super().__init__(images, texts, dim, quick)
        # Behind a dot is the name of the weights.
        name = str(trunk).partition(".")[0]
        if name not in TRUNKS:
            allowed = f"a SigLIP of the sizes {', '.join(_SIZES)}, such as {next(iter(TRUNKS))}"
            raise images.refused("timm_model_name", trunk, allowed)
        self.trunk = TRUNKS[name]

    def config(self, model: _Fields) -> dict[str, Any]:
        model.read("init_logit_bias")
        options = self.texts.part("tokenizer_kwargs")
        options.only("clean", "canonicalize", "whitespace")
        options.end()
        text = self.text()
        self.texts.only("no_causal_mask", True)
        self.texts.only("proj_bias", True)
        self.texts.only("pool_type", "last", "argmax")
        self.images.only("timm_pool", "map", "avg")
        self.images.only("timm_proj", "none", "linear")
        if self.trunk["hidden_size"] != self.dim:
            allowed = f"{self.trunk['hidden_size']}, as in the image tower"
            raise self.images.refused("embed_dim", self.dim, allowed, True)
        return {
            "model_type": "siglip",
            "text_config": {**text, "projection_size": self.dim},
            "vision_config": {**self.trunk, "image_size": self.images.square("image_size", 224)},
        }


def _processor(fields: _Fields, side: int) -> dict[str, Any]:
    """Return an image processor of the transformers library."""
    fields.only("mode", "RGB", "RGB")
    squash = fields.one_of("resize_mode", ("shortest", "squash")) == "squash"
    processor: dict[str, Any] = {"size": {"height": side, "width": side}, "do_center_crop": False}
    if not squash:
        processor = {"size": {"shortest_edge": side}, "crop_size": side, "do_center_crop": True, EVEN_OFFSET: True}
    processor["resample"] = _RESAMPLES[fields.one_of("interpolation", tuple(_RESAMPLES))]
    # CLIP's mean and deviation are the defaults of both libraries.
    moments = {f"image_{name}": fields.read(name) for name in ("mean", "std")}
    fields.end()
    return processor | {name: value for name, value in moments.items() if value is not None}
