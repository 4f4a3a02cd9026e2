"""Tiny presets of keras-hub, written as `save_to_preset` writes them: no network is asked for anything."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np

from tests.systems.presets.checkpoint_files import word_pieces
from tests.systems.presets.texts import SIZE, clip_vocabulary, sentencepiece_model


def spread(network: keras.Model, seed: int = 0) -> keras.Model:
    """Draws weights anew, so large that different inputs have clearly different outputs."""
    random = np.random.default_rng(seed)
    for weight in network.trainable_weights:
        if len(weight.shape):
            drawn = random.normal(size=weight.shape) * (0.3 if len(weight.shape) > 1 else 0.1)
            weight.assign(drawn + (1.0 if weight.name in ("gamma", "scale") else 0.0))
    return network


def _spread_like_clip(network: keras.Model) -> None:
    spread(network)
    for weight in network.weights:
        if weight.name == "position_ids":
            weight.assign(np.arange(weight.shape[1])[None])
        if weight.name == "logit_scale":
            weight.assign(np.log(100.0))


def write_clip(path: Path, size: int = SIZE) -> Path:
    """CLIP with a layer of 16 in each tower, and CLIP's own preprocessing."""
    from keras_hub import layers, models

    vocabulary, merges = clip_vocabulary()
    network = models.CLIPBackbone(
        models.CLIPVisionEncoder(8, 16, 1, 2, 32, image_shape=(size, size, 3), name="vision"),
        models.CLIPTextEncoder(len(vocabulary), 16, 16, 1, 2, 32, max_sequence_length=24, name="text"),
        projection_dim=12,
    )
    _spread_like_clip(network)
    deviation = np.array([0.26862954, 0.26130258, 0.27577711])
    mean = np.array([0.48145466, 0.4578275, 0.40821073])
    preprocessor = models.CLIPPreprocessor(
        models.CLIPTokenizer(vocabulary, merges, pad_with_end_token=True),
        layers.CLIPImageConverter(
            image_size=(size, size),
            scale=(1 / 255 / deviation).tolist(),
            offset=(-mean / deviation).tolist(),
            interpolation="bicubic",
        ),
        sequence_length=24,
    )
    network.save_to_preset(str(path))
    preprocessor.save_to_preset(str(path))
    return path


def write_metaclip2(path: Path, size: int = SIZE) -> Path:
    """MetaCLIP 2 with a layer of 16 in each tower, and its own preprocessing."""
    from keras_hub import layers, models

    tokenizer = models.MetaCLIP2Tokenizer(sentencepiece_model(pad_id=-1, unk_id=0, bos_id=1, eos_id=2, vocab_size=80))
    network = models.MetaCLIP2Backbone(
        models.MetaCLIP2VisionEncoder(8, 16, 1, 2, 32, image_shape=(size, size, 3), name="vision"),
        models.MetaCLIP2TextEncoder(tokenizer.vocabulary_size(), 16, 16, 1, 2, 32, max_sequence_length=24, name="text"),
        projection_dim=12,
    )
    _spread_like_clip(network)
    converter = layers.MetaCLIP2ImageConverter(image_size=(size, size), scale=1 / 127.5, offset=-1.0)
    network.save_to_preset(str(path))
    models.MetaCLIP2CausalLMPreprocessor(tokenizer, converter, sequence_length=24).save_to_preset(str(path))
    return path


def write_siglip(path: Path, size: int = SIZE) -> Path:
    """SigLIP with a layer of 16 in each tower, and SigLIP's own preprocessing."""
    from keras_hub import layers, models

    tokenizer = models.SigLIPTokenizer(sentencepiece_model())
    network = models.SigLIPBackbone(
        models.SigLIPVisionEncoder(8, 16, 1, 2, 32, image_shape=(size, size, 3), name="vision"),
        models.SigLIPTextEncoder(tokenizer.vocabulary_size(), 16, 16, 1, 2, 32, max_sequence_length=20, name="text"),
    )
    spread(network)
    for weight in network.weights:
        if weight.name == "logit_scale":
            weight.assign(np.log(117.3))
        if weight.name == "logit_bias":
            weight.assign(-12.9)
    converter = layers.SigLIPImageConverter(image_size=(size, size), scale=1 / 127.5, offset=-1.0)
    network.save_to_preset(str(path))
    models.SigLIPPreprocessor(tokenizer, converter, sequence_length=20).save_to_preset(str(path))
    return path


def write_bert(path: Path) -> Path:
    """BERT with a layer of 16, and its tokenizer."""
    from keras_hub import models

    tokenizer = models.BertTokenizer(vocabulary=word_pieces(), lowercase=True)
    network = models.BertBackbone(tokenizer.vocabulary_size(), 1, 2, 16, 32, max_sequence_length=24)
    spread(network).save_to_preset(str(path))
    tokenizer.save_to_preset(str(path))
    return path


def write_image_network(path: Path, kind: str, size: int = SIZE) -> Path:
    """A `vit`, `resnet` or `efficientnet` with the converter that its presets have."""
    from keras_hub import layers, models

    if kind == "vit":
        network = models.ViTBackbone((size, size, 3), 8, 1, 2, 16, 32)
        converter = layers.ViTImageConverter(image_size=(size, size), scale=1 / 127.5, offset=-1.0)
    elif kind == "resnet":
        network = models.ResNetBackbone([64], [3], [64, 64], [1, 1], [1, 2], "basic_block")
        converter = layers.ResNetImageConverter(
            image_size=(size, size), scale=[0.017, 0.018, 0.017], offset=[-2.1, -2.0, -1.8]
        )
    else:
        one = {name: [value] for name, value in _EFFICIENT.items()}
        network = models.EfficientNetBackbone(**one, stackwise_nores_option=[False])
        converter = layers.EfficientNetImageConverter(image_size=(size, size), scale=1 / 255.0)
    spread(network)
    network.save_to_preset(str(path))
    converter.save_to_preset(str(path))
    return path


_EFFICIENT = {
    "stackwise_width_coefficients": 1.0,
    "stackwise_depth_coefficients": 1.0,
    "stackwise_kernel_sizes": 3,
    "stackwise_num_repeats": 1,
    "stackwise_input_filters": 8,
    "stackwise_output_filters": 8,
    "stackwise_expansion_ratios": 2,
    "stackwise_squeeze_and_excite_ratios": 0.25,
    "stackwise_strides": 2,
    "stackwise_block_types": "v1",
    "stackwise_force_input_filters": 0,
}
