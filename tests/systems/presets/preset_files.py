"""Tiny presets of keras-hub, written as `save_to_preset` writes them: no network is asked for anything."""

from __future__ import annotations

import io
from pathlib import Path

import keras
import numpy as np
from PIL import Image

CORPUS = [
    "a red circle above a blue square",
    "two dogs are running on the beach",
    "a photo of 12 cats, and a dog's ball!",
    "the quick brown fox jumped over the lazy dog",
]
SIZE = 32


def clip_vocabulary() -> tuple[dict[str, int], list[str]]:
    """All bytes, and the merges of a few words of the corpus, as CLIP's training would find them."""
    from vsemb.systems.presets.subwords import byte_letters

    letters = sorted(byte_letters())
    pieces = [*letters, *(f"{letter}</w>" for letter in letters)]
    merges = []
    for word in (
        "the",
        "red",
        "dog",
        "dogs",
        "cat",
        "a",
        "photo",
        "running",
        "beach",
        "circle",
        "square",
        "blue",
    ):
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            merge, joined = f"{parts[0]} {parts[1]}", parts[0] + parts[1]
            if merge not in merges:
                merges.append(merge)
            if joined not in pieces:
                pieces.append(joined)
            parts = [joined, *parts[2:]]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    return {piece: number for number, piece in enumerate(pieces)}, merges


def sentencepiece_model(**options: object) -> bytes:
    """A tiny unigram model with the ids of T5, which SigLIP's has."""
    import sentencepiece

    written = io.BytesIO()
    settings = {
        "vocab_size": 60,
        "model_type": "unigram",
        "pad_id": 0,
        "eos_id": 1,
        "unk_id": 2,
        "bos_id": -1,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line.lower() for line in CORPUS] * 4),
        model_writer=written,
        hard_vocab_limit=False,
        minloglevel=2,
        **{**settings, **options},
    )
    return written.getvalue()


def spread(network: keras.Model, seed: int = 0) -> keras.Model:
    """Draws weights anew, so large that different inputs have clearly different outputs."""
    random = np.random.default_rng(seed)
    for weight in network.trainable_weights:
        if len(weight.shape):
            drawn = random.normal(size=weight.shape) * (0.3 if len(weight.shape) > 1 else 0.1)
            weight.assign(drawn + (1.0 if weight.name in ("gamma", "scale") else 0.0))
    return network


def photographs() -> tuple[list[np.ndarray], list[bytes]]:
    """Images of mixed sizes with smooth and sharp parts: decoded pixels, and bytes of JPEG and PNG."""
    random, images, rows = np.random.default_rng(3), [], []
    for number, sides in enumerate([(150, 100), (90, 161), (300, 70), (64, 64), (41, 40), (20, 28), (333, 250)]):
        coarse = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize(sides, Image.Resampling.BICUBIC)
        pixels = np.asarray(picture).copy()
        # A colour that is not the mean of the rest, left of the centre and across.
        pixels[:, : sides[0] // 3] //= 3
        pixels[:: 1 + number % 3] //= 2
        written = io.BytesIO()
        Image.fromarray(pixels).save(written, "PNG" if number % 2 else "JPEG", quality=90)
        images.append(np.asarray(Image.open(written).convert("RGB")))
        rows.append(written.getvalue())
    return images, rows


def write_clip(path: Path, size: int = SIZE) -> Path:
    """CLIP with a layer of 16 in each tower, and CLIP's own preprocessing."""
    from keras_hub import layers, models

    vocabulary, merges = clip_vocabulary()
    network = models.CLIPBackbone(
        models.CLIPVisionEncoder(8, 16, 1, 2, 32, image_shape=(size, size, 3), name="vision"),
        models.CLIPTextEncoder(len(vocabulary), 16, 16, 1, 2, 32, max_sequence_length=24, name="text"),
        projection_dim=12,
    )
    spread(network)
    for weight in network.weights:
        if weight.name == "position_ids":
            weight.assign(np.arange(weight.shape[1])[None])
        if weight.name == "logit_scale":
            weight.assign(np.log(100.0))
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
