"""Fixtures that every room's tests may use: a tiny dataset and tiny trained runs."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import fcntl
import logging
import shutil
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.processes import SHARED
from tests.tiny import tiny

# Tests open a run again and again in one process, and trace its functions anew: no news, and no line of a command.
logging.getLogger("tensorflow").addFilter(lambda record: "tf.function retracing" not in record.getMessage())

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


#: What `made_once` gives: (name, what fills a path) -> the path.
MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A shell starts processes in the background with SIGINT ignored, and children would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is kept for the next time is not kept in the home directory of who runs the tests."""
    cache = tmp_path_factory.mktemp("cache")
    os.environ["VSEMB_CACHE"], os.environ["HF_DATASETS_CACHE"] = str(cache), str(cache / "datasets")


@pytest.fixture(scope="session")
def made_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """`made_once(name, make)` is a path that `make(path)` has filled, once for all processes; treat it as read-only."""
    shared = request.config.stash.get(SHARED, tmp_path_factory.getbasetemp())

    def path_of(name: str, make: Callable[[Path], object]) -> Path:
        folder = shared / f"shared-{name}"
        folder.mkdir(exist_ok=True)
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "made").exists():
                shutil.rmtree(folder / name, ignore_errors=True)
                make(folder / name)
                (folder / "made").touch()
        return folder / name

    return path_of


@pytest.fixture(scope="session")
def trained(made_once: MadeOnce):
    """`trained(name, recipe, dataset, **options)` is a `Run` that one process has trained; treat it as read-only."""
    from vsemb.runs.run import Run
    from vsemb.runs.train import train

    def run(name: str, recipe, data, **options):
        return Run.open(made_once(name, lambda out: train(recipe, data, out, **options)))

    return run


@pytest.fixture(scope="session")
def two_devices():
    """A `MirroredStrategy` over two devices of the processor, for files that start TensorFlow with it."""
    import tensorflow as tf

    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    try:
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    except RuntimeError:
        pytest.skip("TensorFlow has started with one device in this process; needs a process for each file")
    # Collective operations, the default, take several times as long to trace. Tests of whole trainings use them.
    sums = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=sums)


@pytest.fixture(scope="session")
def scenes_path(made_once: MadeOnce) -> Path:
    """The directory of a tiny scenes dataset, 32 x 32 pixels, five captions an image, with features."""
    from vsemb.data import synthetic as generator
    from vsemb.data.features.compute import write_precomputed
    from vsemb.data.writing.writer import write_dataset

    def make(path: Path) -> None:
        source = {"format": "scenes", "path_name": "vsemb.data.synthetic", "sha256": {}, "options": {}}
        records = generator.generate(COUNTS, seed=5, image_size=32)
        dataset = write_dataset(records, path, name="scenes", source=source, images_per_shard=20)
        ids, features = [], []
        for name in dataset.splits:
            split = dataset.split(name)
            ids.append(split.ids)
            features += [word_sums(own) for own in split.caption_lists()]
        write_precomputed(dataset, np.concatenate(ids), 4 * np.stack(features))

    return made_once("scenes", make)


@pytest.fixture(scope="session")
def scenes(scenes_path: Path):
    """A tiny `Dataset` with splits train (48 images), val and test (12 each); treat it as read-only."""
    from vsemb.data.store import StoredDataset

    return StoredDataset.open(scenes_path)


@pytest.fixture(scope="session")
def flowers_path(made_once: MadeOnce) -> Path:
    """The directory of tiny flowers: 40, 8 and 12 classes of two images, with attributes and features."""
    from vsemb.data.features.compute import write_precomputed
    from vsemb.data.writing.writer import write_dataset
    from vsemb.systems.zero_shot import flowers as generator
    from vsemb.systems.zero_shot.attributes import write_attributes

    def make(path: Path) -> None:
        source = {"format": "scenes", "path_name": "vsemb.data.synthetic", "sha256": {}, "options": {}}
        records = generator.generate({"train": 80, "val": 16, "test": 24}, image_size=32)
        dataset = write_dataset(records, path, name="flowers", source=source)
        write_attributes(path, generator.attributes())
        splits = [dataset.split(name) for name in dataset.splits]
        features = [word_sums(own) for split in splits for own in split.caption_lists()]
        write_precomputed(dataset, np.concatenate([split.ids for split in splits]), 4 * np.stack(features))

    return made_once("flowers", make)


@pytest.fixture
def scenes_copy(scenes_path: Path, tmp_path: Path):
    """A copy of `scenes` that a test may change."""
    from vsemb.data.store import StoredDataset

    return StoredDataset.open(shutil.copytree(scenes_path, tmp_path / "scenes"))


@pytest.fixture(scope="session")
def tiny_recipe():
    """A recipe on features that trains in seconds."""
    from vsemb import recipes

    settings = ["optimizer.learning_rate=0.01", "loss.negatives=all", "text.encoder.pooling=mean"]
    return tiny(recipes.get("vsepp", "paper"), *settings)


@pytest.fixture(scope="session")
def tiny_run(scenes, tiny_recipe, trained):
    """A `Run` of two epochs on the features of `scenes`; treat it as read-only."""
    return trained("tiny", tiny_recipe, scenes)


@pytest.fixture(scope="session")
def tiny_pixel_recipe(scenes, tiny_recipe):
    """The recipe of `tiny_pixel_run`."""
    from vsemb.runs.fine_tune import with_backbone

    overrides = ["image.size=32", "image.pooling=null"]
    return with_backbone(tiny_recipe, scenes, "SmallConvNet").with_overrides(overrides)


@pytest.fixture(scope="session")
def tiny_pixel_run(scenes, tiny_pixel_recipe, trained):
    """A `Run` of two epochs on the pixels of `scenes`, with a SmallConvNet of its own."""
    return trained("tiny-pixels", tiny_pixel_recipe, scenes)


@pytest.fixture(scope="session")
def tiny_order_run(scenes, trained):
    """A `Run` of an order-embedding, two epochs on the features of `scenes`; treat it as read-only."""
    from vsemb import recipes

    recipe = tiny(recipes.get("order-embedding"), "optimizer.learning_rate=0.01")
    return trained("tiny-order", recipe, scenes)


@pytest.fixture(scope="session")
def pixel_index(tiny_pixel_run, scenes, made_once: MadeOnce) -> Path:
    """The directory of an index of the images of val, by `tiny_pixel_run`; treat it as read-only."""
    from vsemb.runs.indexing import build_index

    return made_once("pixel-index", lambda out: build_index(tiny_pixel_run, scenes, "val", out=out))


@pytest.fixture(scope="session")
def exported(tiny_pixel_run, pixel_index: Path, made_once: MadeOnce) -> Path:
    """The directory `scenes` of a SavedModel of `tiny_pixel_run`: one version, with all signatures; read-only.

    It searches `pixel_index`, and has the signature of `tests.label_signature.Labels`.
    """
    from tests.label_signature import Labels
    from vsemb.runs.serve import export_run
    from vsemb.searching.storage import read_index

    def make(folder: Path) -> None:
        index = read_index(pixel_index)
        extras = [Labels.of(index).signature]
        export_run(tiny_pixel_run, folder / "scenes", index=index, extras=extras)

    return made_once("savedmodels", make) / "scenes"


@pytest.fixture(scope="module")
def opened_once() -> Iterator[None]:
    """Commands share the runs that they open, whose functions each would trace anew."""
    from vsemb.runs.run import Run

    opened, really = {}, Run.open

    def open_run(path, task=None):
        if isinstance(path, Run):
            return really(path, task)
        key = Path(path).resolve(), task
        if key not in opened:
            opened[key] = really(path, task)
        return opened[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "open", open_run)
        yield


@pytest.fixture(scope="session")
def spacy_pipeline(made_once: MadeOnce) -> Path:
    """The directory of a tiny spaCy pipeline with a parser; treat it as read-only."""
    pytest.importorskip("spacy", reason="the extra parse is not installed")
    from tests.systems.trees.spacy_pipeline import write_pipeline

    return made_once("spacy", write_pipeline)


@pytest.fixture(scope="session")
def parsed_scenes(scenes_path: Path, spacy_pipeline: Path, made_once: MadeOnce):
    """A copy of `scenes` whose captions are parsed; treat it as read-only."""
    from vsemb.data.store import StoredDataset
    from vsemb.systems.trees.parsers import open_parser
    from vsemb.systems.trees.parsing import parse_dataset

    def make(path: Path) -> None:
        parse_dataset(StoredDataset.open(shutil.copytree(scenes_path, path)), open_parser(spacy_pipeline))

    return StoredDataset.open(made_once("parsed", make))


@pytest.fixture(scope="session")
def tree_recipe(tiny_recipe):
    """`tiny_recipe` over dependency trees."""
    return tiny(tiny_recipe.with_overrides(["text.tokenizer=trees", "text.encoder=tree-lstm"]))


@pytest.fixture(scope="session")
def tree_run(parsed_scenes, tree_recipe, trained):
    """A `Run` of two epochs on the dependency trees of `parsed_scenes`; treat it as read-only."""
    return trained("tree", tree_recipe, parsed_scenes)


@pytest.fixture(scope="session")
def region_scenes(scenes_path: Path, made_once: MadeOnce):
    """A copy of `scenes` with six regions an image; treat it as read-only."""
    from vsemb.data.store import StoredDataset
    from vsemb.image.backbones import BackboneConfig
    from vsemb.systems.regions.compute import cache_regions
    from vsemb.systems.regions.region_store import RegionConfig

    def make(path: Path) -> None:
        backbone, regions = BackboneConfig("SmallConvNet", size=32), RegionConfig(count=5, pooling="crops")
        cache_regions(StoredDataset.open(shutil.copytree(scenes_path, path)), backbone, regions, weights="random")

    return StoredDataset.open(made_once("regions", make))


@pytest.fixture(scope="session")
def region_recipe():
    """The recipe `dvsa`, small enough for a test."""
    from vsemb import recipes

    return tiny(recipes.get("dvsa", "paper"), "optimizer=adam", "optimizer.learning_rate=0.01")


@pytest.fixture(scope="session")
def region_run(region_scenes, region_recipe, trained):
    """A `Run` of two epochs on the regions of `region_scenes`; treat it as read-only."""
    return trained("region-run", region_recipe, region_scenes)


@pytest.fixture(scope="session")
def caption_recipe():
    """The recipe `multimodal-rnn`, small enough for a test."""
    from vsemb import recipes

    return tiny(recipes.get("multimodal-rnn"), *TINY_CAPTIONS)


@pytest.fixture(scope="session")
def caption_run(scenes, caption_recipe, trained):
    """A `Run` of captions of two epochs on the features of `scenes`; treat it as read-only."""
    return trained("captions", caption_recipe, scenes)


@pytest.fixture(scope="session")
def pixel_caption_run(scenes, trained):
    """A `Run` of captions with attention, one epoch on pixels of `scenes`, selected by CIDEr; treat it as read-only."""
    pytest.importorskip("pycocoevalcap", reason="the extra captions is not installed")
    from vsemb import recipes

    once = ("image.size=32", "decoder.heads=2", "training.epochs=1", "validation=cider", "batches.size=24")
    recipe = tiny(recipes.get("multimodal-rnn", "attention"), *TINY_CAPTIONS, "text.words.dim=16", *once)
    return trained("pixel-captions", recipe, scenes)


@pytest.fixture(scope="session")
def region_caption_run(region_scenes, region_run, trained):
    """A `Run` of captions of two epochs on the snippets that `region_run` cuts; treat it as read-only."""
    from vsemb import recipes

    recipe = tiny(recipes.get("multimodal-rnn-regions"), *TINY_CAPTIONS)
    return trained("region-captions", recipe, region_scenes, inputs={"alignment": region_run})


@pytest.fixture(scope="session")
def tagged_scenes(scenes_path: Path, made_once: MadeOnce):
    """A copy of `scenes` whose captions have made-up parts of speech; treat it as read-only."""
    from vsemb.data.store import StoredDataset
    from vsemb.systems.language.tags import write_tags
    from vsemb.text.normalize import words_of

    known = {"a": "DT", "the": "DT", "and": "CC", "of": "IN", "on": "IN", "is": "VBZ"}

    def make(path: Path) -> None:
        dataset = StoredDataset.open(shutil.copytree(scenes_path, path))
        tags = {
            name: [[known.get(word, "NN") for word in words] for words in words_of(dataset.split(name).captions)]
            for name in dataset.splits
        }
        write_tags(dataset, tags, source={"tagger": "by hand"})

    return StoredDataset.open(made_once("tagged", make))


@pytest.fixture(scope="session")
def language_recipe(made_once: MadeOnce):
    """The recipe `sc-nlm`, small enough for a test."""
    from vsemb import recipes

    stopwords = made_once("stopwords", lambda path: path.write_text("a\nthe\nand\nof\non\nis\n"))
    small = ("model.structure=1", "model.factors=8", "model.writing.candidates=12")
    return tiny(recipes.get("sc-nlm"), *TINY_LANGUAGE, *small, f"model.writing.stopwords={stopwords}")


@pytest.fixture(scope="session")
def kiros_run(scenes, trained):
    """A `Run` of `kiros2014` of two epochs on the features of `scenes`; treat it as read-only."""
    from vsemb import recipes

    recipe = tiny(recipes.get("kiros2014"))
    return trained("kiros", recipe, scenes)


@pytest.fixture(scope="session")
def language_run(tagged_scenes, kiros_run, language_recipe, trained):
    """A `Run` of `sc-nlm`, two epochs on `tagged_scenes`; treat it as read-only."""
    pytest.importorskip("pycocoevalcap", reason="the extra captions is not installed")
    return trained("language", language_recipe, tagged_scenes, inputs={"encoder": kiros_run})


@pytest.fixture(scope="session")
def snli_path(made_once: MadeOnce) -> Path:
    """A folder as SNLI's archive, 144, 36 and 36 pairs."""
    from tests.systems.entailment.entailment_files import write_snli

    return made_once("snli_1.0", lambda path: write_snli(path, train=144, val=36, test=36))


@pytest.fixture(scope="session")
def preset_path(made_once: MadeOnce) -> Callable[[str], Path]:
    """Makes tiny presets by kind: `clip`, …, of `preset_files`, `vit`, `resnet` or `efficientnet`; read-only."""
    from tests.systems.presets import preset_files

    def path(kind: str) -> Path:
        write = getattr(preset_files, f"write_{kind}", None)
        return made_once(kind, write or (lambda out: preset_files.write_image_network(out, kind)))

    return path
