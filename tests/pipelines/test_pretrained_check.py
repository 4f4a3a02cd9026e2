"""The comparison with quoted figures: it passes on the model's own figures, and fails on others."""

from __future__ import annotations

import pytest

import vsemb
from pipelines import pretrained_check
from pipelines.pretrained_check import RECALLS, compared, main


@pytest.mark.slow
def test_figures_are_compared(preset_path, scenes_path, monkeypatch, capsys) -> None:
    name = f"hub:{preset_path('clip')}"
    metrics = vsemb.evaluate(name, scenes_path, "test")
    own = [[found[recall] for recall in RECALLS] for found in (metrics.image_to_text, metrics.text_to_image)]
    monkeypatch.setattr(pretrained_check, "QUOTED", {name: own})
    rows, largest = compared(str(scenes_path), name, "test")
    assert largest == 0.0 and [row[0] for row in rows] == ["image to text", "text to image"]
    options = ["--data", str(scenes_path), "--models", name]
    for shift, status in ((0.9, 0), (1.1, 1)):
        shifted = own[0], [own[1][0] + shift, *own[1][1:]]
        monkeypatch.setattr(pretrained_check, "QUOTED", {name: shifted})
        assert main(options) == status
        assert f"{shift:.1f} points" in capsys.readouterr().out


def test_models_without_figures_are_refused(scenes_path, capsys) -> None:
    assert main(["--data", str(scenes_path), "--models", "hub:clip_vit_base_patch3"]) == 1
    assert "hub:clip_vit_base_patch32" in capsys.readouterr().err
