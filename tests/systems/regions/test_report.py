"""The report of a run of regions."""

from __future__ import annotations

import base64
import io
import re

import pytest
from PIL import Image

from tests.html_tree import Page
from tests.raising import raises_argument
from vsemb import Run, write_report
from vsemb.data.store import StoredDataset
from vsemb.systems.regions.image_tower import regions_of


@pytest.mark.slow
def test_sets_are_shown_by_what_their_words_describe(region_run, region_scenes, tmp_path) -> None:
    pages = [
        write_report(region_run, data=region_scenes, split="val", out=tmp_path / name, shown=2).path.read_text()
        for name in ("first.html", "again.html")
    ]
    assert pages[0] == pages[1]
    root, part = Page(pages[0]).root, region_scenes.split("val")
    facts = dict(zip([n.text for n in root.all("dt")], [n.text for n in root.all("dd")], strict=True))
    assert facts["Space"] == "sets of vectors, 16 dimensions, max-sim"
    images = "features of SmallConvNet, images of 32 pixels a side, of 6 regions at most (grid)"
    assert facts["Images"].startswith(images)
    section = root.one("section", id="alignments")
    figures = section.all("figure")
    assert len(figures) == 6 and len({figure.attributes["data-key"] for figure in figures}) == 6
    for figure in figures:
        row = part.keys.index(str(figure.attributes["data-key"]))
        caption = figure.one("q").text
        assert caption in part.captions_of(row)
        scores = [pair_score(region_run, region_scenes, row, one) for one in part.captions_of(row)]
        assert figure.one("span", kind="rank").text == f"score {max(scores):.2f}"
        picture = figure.one("img")
        # What the picture says in words is the caption again, phrase by phrase.
        said = re.findall("“(.*?)”", str(picture.attributes["alt"]))
        assert " ".join(said) == caption
        head, _, body = str(picture.attributes["src"]).partition(",")
        assert head == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(body, validate=True))) as shown:
            shown.load()
            assert shown.size == tuple(int(str(picture.attributes[side])) for side in ("width", "height"))
    assert "Word arithmetic" in section.one("p", id="left-out").text
    assert {"arithmetic", "plane"}.isdisjoint(n.attributes.get("id") for n in root.all("section"))
    with raises_argument("arithmetic"):
        wanted = [(part.keys[0], "red", "blue")]
        write_report(region_run, data=region_scenes, split="val", out=tmp_path / "refused.html", arithmetic=wanted)
    assert not (tmp_path / "refused.html").exists()


def pair_score(run: Run, dataset: StoredDataset, row: int, caption: str) -> float:
    part = dataset.split("val")
    regions = run.model.encode_images(regions_of(run, dataset).rows(part.ids[[row]]))
    return float(run.model.similarity.scores(regions, run.model.encode_texts(run.tokenizer([caption])))[0, 0])
