"""Language models that write captions: of splits and keys, beside other runs, served; and those that see no image."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb import recipes
from vsemb.errors import DataError
from vsemb.exporting import ImageInput, export_savedmodel
from vsemb.exporting.contract import Contract, contract_path
from vsemb.image.backbones import BackboneConfig
from vsemb.image.decode import decode_images
from vsemb.runs.serve import export_run, model_facts
from vsemb.systems.captions.caption_measure import measure_captions
from vsemb.systems.captions.captioning import (
    CaptionOptions,
    caption_images,
    caption_split,
    open_captioning_run,
)
from vsemb.systems.captions.signature import ServedCaptioner
from vsemb.systems.language.conditioning import encoder_of

pytest.importorskip("pycocoevalcap", reason="the extra `captions` is not installed")


@pytest.mark.slow
def test_language_models_write_for_their_encoder(language_run, tagged_scenes) -> None:
    options = CaptionOptions(n_best=2, candidates=6)
    rows = np.array([4, 1])
    split = caption_split(language_run, tagged_scenes, "val", options, rows=rows)
    assert all(1 <= len(captions) <= 2 for captions in split)
    keys = [tagged_scenes.split("val").keys[row] for row in rows]
    captioned = caption_images(language_run, keys, tagged_scenes, options)
    assert [[text for text, _ in each.captions] for each in captioned] == [
        [text for text, _ in captions] for captions in split
    ]
    for name, value in {"sample": "random", "max_words": 5, "length_penalty": 1.0}.items():
        with raises_argument(name):
            language_run.recipe.captioner(language_run, CaptionOptions(**{name: value}))


def test_a_model_that_sees_no_image_writes_no_captions(tmp_path) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps(recipes.get("log-bilinear").to_json()))
    with pytest.raises(DataError, match="log-bilinear"):
        open_captioning_run(tmp_path)


@pytest.mark.slow
def test_a_language_model_stands_beside(caption_run, language_run, scenes) -> None:
    table = measure_captions(
        [caption_run, language_run], scenes, "val", limit=3, meteor=False, options=CaptionOptions(beam=2)
    )
    assert [row.recipe for row in table.rows] == ["multimodal-rnn", "sc-nlm", None]


@dataclass(frozen=True, eq=False)
class PixelFeatures(ImageInput):
    """Features of images that need no network: a few of their pixels."""

    dim: int = 16

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels, valid = decode_images(encoded, 32)
        return tf.reshape(pixels, [-1, 32 * 32 * 3])[:, :: 3072 // self.dim][:, : self.dim] / 32.0, valid


@pytest.mark.slow
def test_an_encoder_on_features_captions_no_new_images(language_run, tmp_path):
    with pytest.raises(DataError, match=re.escape(str(language_run.path))):
        export_run(language_run, tmp_path / "captions")


@pytest.mark.slow
def test_a_language_model_writes_by_its_encoder(language_run, tmp_path):
    run = language_run
    options = CaptionOptions(n_best=2)
    captioner = run.recipe.captioner(run, options)
    taken = PixelFeatures(BackboneConfig("SmallConvNet"), dim=encoder_of(run).info["feature_dim"])
    facts = {"words": len(run.vocabulary.words), **captioner.facts}
    path = export_savedmodel(ServedCaptioner(captioner, taken, facts), tmp_path / "sc-nlm", card=model_facts(run))
    loaded = tf.saved_model.load(str(path))
    # Embeddings of training sentences and all else that is large are variables of the file.
    assert {tuple(variable.shape) for variable in captioner.variables} <= {
        tuple(variable.shape) for variable in loaded.weights
    }
    assert (path / "saved_model.pb").stat().st_size < 3_000_000
    contract = Contract.read(contract_path(path.parent))
    longest = {"max_words": captioner.longest, "words": len(run.vocabulary.words)}
    assert contract.settings == {"n_best": 2, "candidates": 12, "beam": 1, **longest}
    assert contract.golden["caption"].outputs["valid"].tolist() == [True, False, True, False, False]
    card = (tmp_path / "contracts" / "sc-nlm.md").read_text()
    assert "images are looked at by their encoder" in card and "The best of 12 candidates" in card
    assert "choosing the most probable word at each step" in card
