"""Classification by prompts: templates, unknown words, image by image and whole splits."""

from __future__ import annotations

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.tiny import tiny
from vsemb import Run, recipes
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.models import LogitScale
from vsemb.runs.train import train
from vsemb.systems.zero_shot.classify import (
    ClassPrompts,
    class_prompts,
    classify_images,
    classify_split,
    embed_classes,
    logit_factor,
    read_classes,
)

TEMPLATES = ["a {}", "there is a {} above"]


def test_prompts_are_each_name_in_each_template() -> None:
    assert class_prompts(["a dog", " cat "], ["my {}.", "{}!"]) == [
        ["my a dog.", "a dog!"],
        ["my cat.", "cat!"],
    ]
    assert class_prompts(["dog"]) == [["dog"]]
    # Names are not templates, and nothing but {} is a place.
    assert class_prompts(["{}", "{0}"], ["a {} {x}"]) == [["a {} {x}"], ["a {0} {x}"]]


@pytest.mark.parametrize(
    ("classes", "templates", "argument"),
    [
        ([], [], "classes"),
        (["dog", " "], [], "classes"),
        (["dog", "cat", "dog "], [], "classes"),
        (["dog"], ["a photo"], "template"),
        (["dog"], ["{}", "{} and {}"], "template"),
        (["dog"], ["{name}"], "template"),
        (["dog"], [""], "template"),
    ],
)
def test_bad_classes_and_templates(classes, templates, argument) -> None:
    with raises_argument(argument):
        class_prompts(classes, templates)


@pytest.mark.slow
def test_scores_are_means_over_templates(tiny_pixel_run, scenes) -> None:
    run, names = tiny_pixel_run, ["red circle", "blue square", "star"]
    prompts = embed_classes(run, names, TEMPLATES)
    assert prompts.names == tuple(names) and prompts.embeddings.shape == (3, 2, 16)
    keys = scenes.split("val").keys[:3]
    classified = classify_images(run, keys, prompts, scenes, top=2)
    pixels = run.images_of(scenes, scenes.split("val")).gather(np.arange(3)).astype(np.float32)
    images = run.model.encode_images(pixels).numpy()
    flat = [template.replace("{}", name) for template in TEMPLATES for name in names]
    each = images @ run.model.encode_texts(run.tokenizer(flat)).numpy().T  # (3, templates x names)
    wanted = each.reshape(3, 2, 3).mean(axis=1)
    for result, key, scores in zip(classified, keys, wanted, strict=True):
        best = np.argsort(-scores)[:2]
        assert result.image == key and result.error is None
        assert list(result.scores) == [names[place] for place in best]
        np.testing.assert_allclose(list(result.scores.values()), scores[best], atol=1e-5)
    # Not the score of a mean at unit length: two templates that differ make a shorter vector.
    assert np.linalg.norm(prompts.embeddings.mean(axis=1), axis=1).max() < 1 - 1e-4


def test_a_bad_image_does_not_stop_the_others(tiny_pixel_run, scenes, tmp_path) -> None:
    prompts = embed_classes(tiny_pixel_run, ["red circle", "blue square"])
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    good.write_bytes(scenes.split("val").read_image(1))
    bad.write_bytes(b"\x89PNG nothing")
    names = [str(bad), str(good), "nowhere.png", scenes.split("val").keys[1]]
    classified = classify_images(tiny_pixel_run, names, prompts, scenes)
    assert [result.error is None for result in classified] == [False, True, False, True]
    assert "unreadable" in classified[0].error and "nowhere.png" in classified[2].error
    assert classified[1].scores == pytest.approx(classified[3].scores, abs=1e-5) and len(classified[1].scores) == 2
    assert classified[0].to_json() == {"image": str(bad), "error": classified[0].error}
    # Files need no dataset; keys do.
    alone = classify_images(tiny_pixel_run, names[1:2] + names[3:], prompts)
    assert alone[0].scores == pytest.approx(classified[1].scores) and "Expected: an image file." in alone[1].error
    with raises_argument("top"):
        classify_images(tiny_pixel_run, names, prompts, top=0)


def test_precomputed_features_classify_images_of_the_dataset_only(tiny_run, scenes, tmp_path) -> None:
    prompts = embed_classes(tiny_run, ["red circle", "blue square"])
    (tmp_path / "new.png").write_bytes(scenes.split("val").read_image(1))
    names = [scenes.split("val").keys[0], str(tmp_path / "new.png")]
    classified = classify_images(tiny_run, names, prompts, scenes)
    assert classified[0].error is None and "precomputed features" in classified[1].error


def test_classes_without_a_known_word_are_skipped(tiny_run) -> None:
    said: list[str] = []
    prompts = embed_classes(tiny_run, ["red circle", "zyzzyva", "...", "blue"], TEMPLATES, report=said.append)
    assert prompts.names == ("red circle", "blue") and prompts.skipped == ("zyzzyva", "...")
    assert said == ["Warning: skipped classes without a known word: zyzzyva, ...."]
    wanted = embed_classes(tiny_run, ["red circle", "blue"], TEMPLATES)
    np.testing.assert_allclose(prompts.embeddings, wanted.embeddings, atol=1e-6)
    with raises_argument("classes"):
        embed_classes(tiny_run, ["zyzzyva", "..."], ["a {}"])
    # A template that names nothing known does not matter, since the name does.
    assert embed_classes(tiny_run, ["red"], ["zyzzyva {}"]).skipped == ()


def test_unknown_words_of_other_names_are_listed(tiny_run) -> None:
    said: list[str] = []
    names = ["red zyzzyva circle", "blue qwrt", "green", "green zyzzyva"]
    embed_classes(tiny_run, names, ["a {}"], report=said.append)
    assert said == ["Warning: not known to the run: zyzzyva, qwrt."]
    names = ["red", *(f"red {'x' * count} {'y' * count}" + " red" * count for count in range(2, 8))]
    embed_classes(tiny_run, names, report=said.append)
    assert said[1].endswith("yyyyyy and 2 more.") and said[1].count(",") == 9


def test_probabilities_are_the_softmax_of_scaled_scores(tiny_run, scenes) -> None:
    prompts = embed_classes(tiny_run, ["red circle", "blue square", "green"])
    assert prompts.scale == 1  # A ranking loss has no temperature.
    for scale in (1.0, 20.0):
        scaled = replace(prompts, scale=scale)
        (classified,) = classify_images(tiny_run, scenes.split("val").keys[:1], scaled, scenes, top=2)
        (full,) = classify_images(tiny_run, scenes.split("val").keys[:1], scaled, scenes)
        logits = scale * np.array(list(full.scores.values()))
        wanted = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(list(full.probabilities.values()), wanted, atol=1e-5)
        # Of the classes that are left out, too.
        assert classified.probabilities == pytest.approx(dict(list(full.probabilities.items())[:2]))


def test_the_scale_is_that_of_the_loss() -> None:
    learned = SimpleNamespace(model=SimpleNamespace(logit_scale=LogitScale(25.0)), recipe=None)
    learned.model.logit_scale.build()
    assert logit_factor(learned) == pytest.approx(25)  # type: ignore[arg-type]
    fixed = SimpleNamespace(
        model=SimpleNamespace(logit_scale=None), recipe=SimpleNamespace(loss=SimpleNamespace(temperature=0.05))
    )
    assert logit_factor(fixed) == pytest.approx(20)  # type: ignore[arg-type]


def test_classes_that_the_run_cannot_tell_apart_are_refused(tiny_run) -> None:
    for names in (["blue", "Red", "red"], ["red zyzzyva", "blue", "red qwrt"]):
        both = [name for name in names if name != "blue"]
        with pytest.raises(InvalidArgumentError) as caught:
            embed_classes(tiny_run, names, TEMPLATES)
        assert caught.value.argument == "classes" and repr(both) in str(caught.value)
    # A word that is not known is a word: these differ.
    embed_classes(tiny_run, ["red", "red zyzzyva", "zyzzyva red"], TEMPLATES, report=[].append)


def test_a_whole_split(tiny_run, scenes) -> None:
    part = scenes.split("val")
    names = sorted(set(part.class_names))[1:]
    classified = classify_split(tiny_run, scenes, "val", embed_classes(tiny_run, names, TEMPLATES))
    labelled = [name in names for name in part.class_names]
    assert (classified.images, classified.labelled) == (12, sum(labelled)) and 0 < classified.labelled < 12
    assert list(classified.counts) == names and sum(classified.counts.values()) == 12
    # By hand, from the scores of one image at a time.
    prompts = embed_classes(tiny_run, names, TEMPLATES)
    best = [next(iter(each.scores)) for each in classify_images(tiny_run, part.keys, prompts, scenes)]
    right = [name == classified for name, classified in zip(part.class_names, best, strict=True)]
    by_class: dict[str, list[bool]] = {}
    for name, hit in zip(part.class_names, right, strict=True):
        if name in names:
            by_class.setdefault(name, []).append(hit)
    assert classified.accuracy_images == pytest.approx(100 * sum(right) / classified.labelled)
    assert classified.accuracy == pytest.approx(100 * np.mean([np.mean(hits) for hits in by_class.values()]))
    assert {name: best.count(name) for name in names} == classified.counts


def test_without_labels_there_is_no_accuracy(tiny_run, scenes) -> None:
    classified = classify_split(tiny_run, scenes, "val", embed_classes(tiny_run, ["red", "blue"]))
    assert (classified.labelled, classified.accuracy, classified.accuracy_images) == (0, None, None)
    # Equal scores are nobody's: both names are of the same class and tie.
    same = ClassPrompts(("red circle", "other"), np.repeat(embed_classes(tiny_run, ["red"]).embeddings, 2, axis=0))
    label = scenes.split("val").class_names[0]
    tied = classify_split(tiny_run, scenes, "val", ClassPrompts((label, "other"), same.embeddings))
    assert tied.labelled >= 1 and tied.accuracy == 0


def test_classes_in_a_file(tmp_path) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes("\ufeffred circle\r\n\n  Brünnich's Guillemot \n".encode())
    assert read_classes(path) == ["red circle", "Brünnich's Guillemot"]
    path.write_bytes(b"\xff\xfe")
    for wrong in (path, tmp_path / "nowhere.txt", tmp_path):
        with pytest.raises(DataError, match=wrong.name):
            read_classes(wrong)


@pytest.mark.slow
def test_an_order_averages_scores_and_not_texts(scenes, tmp_path) -> None:
    recipe = tiny(recipes.get("order-embedding"), "training.epochs=1", "batches.size=48")
    run = train(recipe, scenes, tmp_path / "order")
    prompts = embed_classes(run, ["red circle", "blue square"], TEMPLATES)
    (classified,) = classify_images(run, scenes.split("val").keys[:1], prompts, scenes)
    images = run.model.encode_images(run.images_of(scenes, scenes.split("val")).gather(np.arange(1)))
    over = np.maximum(prompts.embeddings - images.numpy()[0], 0)
    wanted = -np.square(over).sum(axis=-1).mean(axis=1)
    assert classified.scores == pytest.approx(dict(zip(prompts.names, wanted.tolist(), strict=True)), abs=1e-5)
    in_graph = prompts.scores(tf.constant(images), run.model.similarity)
    np.testing.assert_allclose(in_graph, [wanted], atol=1e-5)


def test_a_run_is_not_changed(tiny_run, scenes, tmp_path) -> None:
    copy = Run.open(shutil.copytree(tiny_run.path, tmp_path / "run"))
    before = sorted(path.name for path in copy.path.rglob("*"))
    classify_split(copy, scenes, "val", embed_classes(copy, ["red", "blue"]))
    assert sorted(path.name for path in copy.path.rglob("*")) == before


def test_sets_are_classified_by_the_scores_of_their_words(region_run, region_scenes) -> None:
    run, part, said = region_run, region_scenes.split("val"), []
    names = ["circle", "square", "star"]
    prompts = embed_classes(run, names, TEMPLATES, report=said.append)
    assert said == []
    regions = run.model.encode_images(run.features_of(region_scenes).rows(part.ids)).numpy()
    scores = np.zeros((len(part), 3))
    for column, name in enumerate(names):
        for template in TEMPLATES:
            words = run.model.encode_texts(run.tokenizer([template.replace("{}", name)])).numpy()[0]
            products = np.einsum("nid,td->nit", regions, words)
            # Padding, of which there may be some, is never a word's best region.
            products[~regions.any(axis=2)] = -np.inf
            scores[:, column] += products.max(axis=1).sum(axis=1) / len(TEMPLATES)
    classified = classify_images(run, part.keys[:3], prompts, region_scenes, top=3)
    for row, each in enumerate(classified):
        assert each.scores == {
            name: pytest.approx(score, rel=1e-4, abs=1e-5) for name, score in zip(names, scores[row], strict=True)
        }
    best = np.bincount(scores.argmax(axis=1), minlength=3)
    assert classify_split(run, region_scenes, "val", prompts).counts == dict(zip(names, best, strict=True))
    embed_classes(run, ["circle", "red square"], report=said.append)
    assert len(said) == 1 and "'red square', with more words than 'circle'" in said[0]
