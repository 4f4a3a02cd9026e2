"""CLIPScore and RefCLIPScore: by hand, from a run, and in the table."""

from __future__ import annotations

import numpy as np
import pytest

import vsemb
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.systems.captions.clip_score import ClipScorer, clip_scores


def test_scores_by_hand():
    # Unit vectors in the plane. Cosines of captions and images: 0.6, -1 and 0; lengths play no part.
    images = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    captions = np.array([[0.6, 0.8], [-1.0, 0.0], [5.0, 0.0]])
    # The first caption's references have cosines 0.8 and 0.6, the second's 1, the third's -1.
    references = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    score, with_references = clip_scores(images, captions, references, np.array([0, 0, 1, 2]))
    assert score.tolist() == pytest.approx([1.5, 0, 0])
    # 2 x 1.5 x 0.8 / (1.5 + 0.8).
    assert with_references.tolist() == pytest.approx([2.4 / 2.3, 0, 0])


def test_a_run_scores_captions_of_a_split(tiny_run, scenes):
    part, rows = scenes.split("val"), np.array([4, 1])
    references = [part.captions_of(row) for row in rows]
    scorer = ClipScorer(tiny_run, scenes, "val", rows)
    scores, with_references = scorer([references[0][2], " "], references)
    image = tiny_run.model.encode_images(tiny_run.images_of(scenes, part).gather(rows[:1])).numpy()[0]
    text = tiny_run.model.encode_texts(tiny_run.tokenizer([references[0][2]])).numpy()[0]
    score = 250 * max(float(image @ text), 0)
    # The caption is one of its references: the largest cosine is 1. A caption without words scores 0.
    assert scores.tolist() == pytest.approx([score, 0], rel=1e-3)
    assert with_references.tolist() == pytest.approx([2 * score / (score / 100 + 1), 0], rel=1e-3)


def test_the_table_and_json_have_both(caption_run, tiny_run, capsys, tmp_path):
    pytest.importorskip("pycocoevalcap", reason="the extra `captions` is not installed")
    command = [
        "evaluate",
        str(caption_run.path),
        "--protocol",
        "captions",
        "--no-meteor",
        "--limit",
        "3",
        "--clip-score",
    ]
    assert main([*command, str(tiny_run.path)]) == 0
    header = capsys.readouterr().out.splitlines()[0].split()
    assert header[header.index("CIDEr") + 1 :][:2] == ["CLIP-S", "RefCLIP-S"]
    assert main([*command, str(caption_run.path)]) == 1
    assert str(caption_run.path) in capsys.readouterr().err


def test_a_run_of_trees_parses_captions(tree_run, parsed_scenes):
    part, rows = parsed_scenes.split("val"), np.arange(2)
    references = [part.captions_of(row) for row in rows]
    scores, _ = ClipScorer(tree_run, parsed_scenes, "val", rows)([own[0] for own in references], references)
    images = tree_run.model.encode_images(tree_run.images_of(parsed_scenes, part).gather(rows)).numpy()
    texts = vsemb.load(tree_run).encode_texts([own[0] for own in references])
    assert scores.tolist() == pytest.approx(250 * np.maximum((images * texts).sum(axis=1), 0), rel=1e-3)


def test_runs_of_sets_are_refused(region_run, region_scenes):
    with pytest.raises(DataError, match="'dvsa'"):
        ClipScorer(region_run, region_scenes, "val", np.arange(1))
