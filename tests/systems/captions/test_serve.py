"""One way from bytes to captions: a run, the command line and the SavedModel write the same."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.exporting.contract import Contract, contract_path
from vsemb.exporting.reference_outputs import compare
from vsemb.runs.serve import export_run, model_facts
from vsemb.systems.captions.captioning import CaptionOptions
from vsemb.systems.captions.signature import TIES, ServedCaptioner

SEVERAL = CaptionOptions(beam=3, n_best=2, max_words=8)


def compared(run, dataset, out):
    """Compares captions of a split's images as the dataset has them with those of the SavedModel."""
    split, captioner = dataset.split("val"), run.recipe.captioner(run, SEVERAL)
    encoded = tf.constant([split.read_image(row) for row in range(6)] + [b"no image"])
    path = export_run(run, out, options=SEVERAL)
    function = tf.saved_model.load(str(path)).signatures["caption"]
    outputs = {name: value.numpy() for name, value in function(image_bytes=encoded).items()}
    served = ServedCaptioner(captioner, run.image_input).caption_rows(encoded)
    wanted = {name: value.numpy() for name, value in served.items()}
    assert compare(wanted, outputs, 1e-5, ties=TIES)[1] is None
    assert outputs["valid"].tolist() == [True] * 6 + [False]
    source = run.images_of(dataset, split)
    images = source.finish(tf.constant(source.gather(np.arange(6))), None)
    cached = captioner(images)
    return outputs, cached, Contract.read(contract_path(path.parent))


@pytest.mark.slow
def test_a_run_of_regions_captions_the_whole_image(region_caption_run, region_scenes, tmp_path):
    run = region_caption_run
    outputs, cached, contract = compared(run, region_scenes, tmp_path / "regions")
    # The cache keeps features in float16, which has 11 bits, and a near tie may turn over.
    np.testing.assert_allclose(outputs["log_probs"][:6], cached.log_probs, atol=0.05)
    assert np.mean(outputs["captions"][:6] == cached.texts.numpy()) > 0.6
    facts = {"words": len(run.vocabulary.words), "beam": 3, "length_penalty": 0.0, "max_words": 8}
    assert contract.settings == {"n_best": 2, **facts} and contract.fingerprint == run.fingerprint
    card = (tmp_path / "contracts" / "regions.md").read_text()
    assert "a served caption is of the whole image" in card and "features of SmallConvNet" in card
    assert f"of {len(run.vocabulary.words)} words" in card


@pytest.mark.slow
def test_a_run_from_pixels(scenes, pixel_caption_run, tmp_path):
    run = pixel_caption_run
    outputs, cached, _ = compared(run, scenes, tmp_path / "pixels")
    assert outputs["captions"][:6].tolist() == cached.texts.numpy().tolist()
    np.testing.assert_allclose(outputs["log_probs"][:6], cached.log_probs, rtol=1e-5)
    facts = model_facts(run)
    assert "read by SmallConvNet, which was trained too" in facts.images
    assert "epoch 1" in facts.selection and not facts.features_fingerprint


def test_a_run_on_precomputed_features_captions_no_new_images(caption_run, tmp_path):
    with pytest.raises(DataError, match="vsemb features"):
        export_run(caption_run, tmp_path / "captions")
    assert not (tmp_path / "captions").exists()


def test_what_captions_do_not_read_is_refused(caption_run):
    with raises_argument("loud"):
        caption_run.recipe.served(caption_run, loud=True)
