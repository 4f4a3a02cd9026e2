"""Fixtures that every room's tests may use: a tiny dataset and tiny trained runs."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import tiny

COUNTS = {"train": 48, "val": 12, "test": 12}
FEATURE_DIM = 16

#: Beside what `tiny` makes small, what makes a recipe of captions learn in two epochs.
TINY_CAPTIONS = (
    "decoder.dropout=0.1",
    "text.words.dropout=0.1",
    "image.dropout=0.1",
    "optimizer.learning_rate=0.01",
    "optimizer.schedule=constant",
    "batches.size=8",
)

#: The same of a language model.
TINY_LANGUAGE = ("model.context=2", "model.dim=16", "optimizer.learning_rate=0.01", "batches.size=16")


def word_sums(captions: list[str]) -> np.ndarray:
    """Features that tell what the captions say, so that a tiny model can learn from them."""
    words = [word for caption in captions for word in caption.split()]
    vectors = [np.random.default_rng(zlib.crc32(word.encode())).normal(size=FEATURE_DIM) for word in words]
    return np.mean(vectors, axis=0).astype(np.float32)


@pytest.fixture(scope="session")
def scenes_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny scenes dataset, 32 x 32 pixels, five captions an image, with features."""
    from vsemb.data import synthetic as generator
    from vsemb.data.features.compute import write_precomputed
    from vsemb.data.writing.writer import write_dataset

    path = tmp_path_factory.mktemp("data") / "scenes"
    source = {"format": "scenes", "path_name": "vsemb.data.synthetic", "sha256": {}, "options": {}}
    records = generator.generate(COUNTS, seed=5, image_size=32)
    dataset = write_dataset(records, path, name="scenes", source=source, images_per_shard=20)
    ids, features = [], []
    for name in dataset.splits:
        split = dataset.split(name)
        ids.append(split.ids)
        features += [word_sums(entry["captions"]) for entry in split.entries]
    write_precomputed(dataset, np.concatenate(ids), 4 * np.stack(features))
    return path


@pytest.fixture(scope="session")
def scenes(scenes_path: Path):
    """A tiny `Dataset` with splits train (48 images), val and test (12 each); treat it as read-only."""
    from vsemb.data.store import Dataset

    return Dataset.open(scenes_path)


@pytest.fixture(scope="session")
def flowers_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of tiny flowers: 40, 8 and 12 classes of two images, with attributes and features."""
    from vsemb.data.features.compute import write_precomputed
    from vsemb.data.store import Dataset
    from vsemb.data.writing.writer import write_dataset
    from vsemb.systems.zero_shot import flowers as generator
    from vsemb.systems.zero_shot.attributes import write_attributes

    path = tmp_path_factory.mktemp("data") / "flowers"
    source = {"format": "scenes", "path_name": "vsemb.data.synthetic", "sha256": {}, "options": {}}
    records = generator.generate({"train": 80, "val": 16, "test": 24}, image_size=32)
    dataset = write_dataset(records, path, name="flowers", source=source)
    write_attributes(path, generator.attributes())
    splits = [dataset.split(name) for name in dataset.splits]
    features = [word_sums(entry["captions"]) for split in splits for entry in split.entries]
    write_precomputed(dataset, np.concatenate([split.ids for split in splits]), 4 * np.stack(features))
    return Dataset.open(path).path


@pytest.fixture
def scenes_copy(scenes_path: Path, tmp_path: Path):
    """A copy of `scenes` that a test may change."""
    from vsemb.data.store import Dataset

    return Dataset.open(shutil.copytree(scenes_path, tmp_path / "scenes"))


@pytest.fixture(scope="session")
def tiny_recipe():
    """A recipe on features that trains in seconds."""
    from vsemb import recipes

    settings = ["optimizer.learning_rate=0.01", "loss.negatives=all", "text.encoder.pooling=mean"]
    return tiny(recipes.get("vsepp", "paper"), *settings)


@pytest.fixture(scope="session")
def tiny_run(scenes, tiny_recipe, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of two epochs on the features of `scenes`; treat it as read-only."""
    from vsemb.runs.train import train

    return train(tiny_recipe, scenes, tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture(scope="session")
def tiny_pixel_run(scenes, tiny_recipe, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of two epochs on the pixels of `scenes`, with a SmallConvNet of its own."""
    from vsemb.runs.fine_tune import with_backbone
    from vsemb.runs.train import train

    recipe = with_backbone(tiny_recipe, scenes, "SmallConvNet").with_overrides(["image.size=32"])
    return train(recipe, scenes, tmp_path_factory.mktemp("runs") / "tiny-pixels")


@pytest.fixture(scope="session")
def spacy_pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny spaCy pipeline with a parser; treat it as read-only."""
    pytest.importorskip("spacy", reason="the extra parse is not installed")
    from tests.spacy_pipeline import write_pipeline

    return write_pipeline(tmp_path_factory.mktemp("parsers") / "tiny")


@pytest.fixture(scope="session")
def parsed_scenes(scenes_path: Path, spacy_pipeline: Path, tmp_path_factory: pytest.TempPathFactory):
    """A copy of `scenes` whose captions are parsed; treat it as read-only."""
    from vsemb.data.store import Dataset
    from vsemb.systems.trees.parsers import open_parser
    from vsemb.systems.trees.parsing import parse_dataset

    dataset = Dataset.open(shutil.copytree(scenes_path, tmp_path_factory.mktemp("data") / "parsed"))
    parse_dataset(dataset, open_parser(spacy_pipeline))
    return dataset


@pytest.fixture(scope="session")
def tree_recipe(tiny_recipe):
    """`tiny_recipe` over dependency trees."""
    return tiny(tiny_recipe.with_overrides(["text.tokenizer=trees", "text.encoder=tree-lstm"]))


@pytest.fixture(scope="session")
def tree_run(parsed_scenes, tree_recipe, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of two epochs on the dependency trees of `parsed_scenes`; treat it as read-only."""
    from vsemb.runs.train import train

    return train(tree_recipe, parsed_scenes, tmp_path_factory.mktemp("runs") / "tree")


@pytest.fixture(scope="session")
def region_scenes(scenes_path: Path, tmp_path_factory: pytest.TempPathFactory):
    """A copy of `scenes` with six regions an image; treat it as read-only."""
    from vsemb.data.store import Dataset
    from vsemb.image.backbones import BackboneConfig
    from vsemb.systems.regions.compute import cache_regions
    from vsemb.systems.regions.region_store import RegionConfig

    dataset = Dataset.open(shutil.copytree(scenes_path, tmp_path_factory.mktemp("data") / "regions"))
    backbone, regions = BackboneConfig("SmallConvNet", size=32), RegionConfig(count=5, pooling="crops")
    cache_regions(dataset, backbone, regions, weights="random")
    return dataset


@pytest.fixture(scope="session")
def region_recipe():
    """The recipe `dvsa`, small enough for a test."""
    from vsemb import recipes

    return tiny(recipes.get("dvsa", "paper"), "optimizer=adam", "optimizer.learning_rate=0.01")


@pytest.fixture(scope="session")
def region_run(region_scenes, region_recipe, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of two epochs on the regions of `region_scenes`; treat it as read-only."""
    from vsemb.runs.train import train

    return train(region_recipe, region_scenes, tmp_path_factory.mktemp("runs") / "regions")


@pytest.fixture(scope="session")
def caption_recipe():
    """The recipe `multimodal-rnn`, small enough for a test."""
    from vsemb import recipes

    return tiny(recipes.get("multimodal-rnn"), *TINY_CAPTIONS)


@pytest.fixture(scope="session")
def caption_run(scenes, caption_recipe, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of captions of two epochs on the features of `scenes`; treat it as read-only."""
    from vsemb.runs.train import train

    return train(caption_recipe, scenes, tmp_path_factory.mktemp("runs") / "captions")


@pytest.fixture(scope="session")
def pixel_caption_run(scenes, caption_recipe, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of captions of one epoch on the pixels of `scenes`, selected by CIDEr; treat it as read-only."""
    pytest.importorskip("pycocoevalcap", reason="the extra captions is not installed")
    from vsemb.runs.fine_tune import with_backbone
    from vsemb.runs.train import train

    recipe = with_backbone(caption_recipe, scenes, "SmallConvNet").with_overrides(
        ["image.size=32", "training.epochs=1", "validation=cider", "batches.size=48"]
    )
    return train(recipe, scenes, tmp_path_factory.mktemp("runs") / "pixel-captions")


@pytest.fixture(scope="session")
def region_caption_run(region_scenes, region_run, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of captions of two epochs on the snippets that `region_run` cuts; treat it as read-only."""
    from vsemb import recipes
    from vsemb.runs.train import train

    recipe = tiny(recipes.get("multimodal-rnn-regions"), *TINY_CAPTIONS)
    out = tmp_path_factory.mktemp("runs") / "region-captions"
    return train(recipe, region_scenes, out, inputs={"alignment": region_run})


@pytest.fixture(scope="session")
def tagged_scenes(scenes_path: Path, tmp_path_factory: pytest.TempPathFactory):
    """A copy of `scenes` whose captions have made-up parts of speech; treat it as read-only."""
    from vsemb.data.store import Dataset
    from vsemb.systems.language.tags import write_tags
    from vsemb.text.normalize import words_of

    dataset = Dataset.open(shutil.copytree(scenes_path, tmp_path_factory.mktemp("data") / "tagged"))
    known = {"a": "DT", "the": "DT", "and": "CC", "of": "IN", "on": "IN", "is": "VBZ"}
    tags = {
        name: [[known.get(word, "NN") for word in words] for words in words_of(dataset.split(name).captions)]
        for name in dataset.splits
    }
    write_tags(dataset, tags, source={"tagger": "by hand"})
    return Dataset.open(dataset.path)


@pytest.fixture(scope="session")
def language_recipe(tmp_path_factory: pytest.TempPathFactory):
    """The recipe `sc-nlm`, small enough for a test."""
    from vsemb import recipes

    stopwords = tmp_path_factory.mktemp("words") / "stopwords.txt"
    stopwords.write_text("a\nthe\nand\nof\non\nis\n")
    small = ("model.structure=1", "model.factors=8", "model.writing.candidates=12")
    return tiny(recipes.get("sc-nlm"), *TINY_LANGUAGE, *small, f"model.writing.stopwords={stopwords}")


@pytest.fixture(scope="session")
def kiros_run(scenes, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of `kiros2014` of two epochs on the features of `scenes`; treat it as read-only."""
    from vsemb import recipes
    from vsemb.runs.train import train

    recipe = tiny(recipes.get("kiros2014"))
    return train(recipe, scenes, tmp_path_factory.mktemp("runs") / "kiros")


@pytest.fixture(scope="session")
def language_run(tagged_scenes, kiros_run, language_recipe, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of `sc-nlm`, two epochs on `tagged_scenes`; treat it as read-only."""
    pytest.importorskip("pycocoevalcap", reason="the extra captions is not installed")
    from vsemb.runs.train import train

    out = tmp_path_factory.mktemp("runs") / "language"
    return train(language_recipe, tagged_scenes, out, inputs={"encoder": kiros_run})


@pytest.fixture(scope="session")
def preset_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes tiny presets by kind: `clip`, `siglip`, `vit`, `resnet` or `efficientnet`; read-only."""
    from tests.systems.presets.preset_files import write_clip, write_image_network, write_siglip

    folder = tmp_path_factory.mktemp("presets")

    def path(kind: str) -> Path:
        if not (folder / kind).exists():
            dual = {"clip": write_clip, "siglip": write_siglip}
            dual[kind](folder / kind) if kind in dual else write_image_network(folder / kind, kind)
        return folder / kind

    return path
