"""The projector's folder: what of a run is in it, what TensorBoard reads there, and what a browser shows."""

from __future__ import annotations

import csv
import io
import json
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image

from tests.browser import WEBGL, headless_chromium
from vsemb import write_projector
from vsemb.errors import DataError
from vsemb.evaluation import Embedder
from vsemb.runs import projector
from vsemb.runs.projector import MAX_POINTS, MAX_SHEET, ProjectorTensor, thumbnail_side, write_tensors
from vsemb.text.normalize import split_words

COLOURS = ["#d02020", "#d04020", "#d02040", "#c03030", "#e02020"]


def images_tensor() -> ProjectorTensor:
    # 38 of them: six rows of seven, were the sheet not square.
    vectors = np.random.default_rng(0).normal(size=(38, 8)).astype(np.float32)
    captions = [
        "a dog\ton a\r\nbeach",
        "line\u2028break",
        "<script>alert(1)</script>",
        "ünïcode",
        *["x"] * 34,
    ]
    columns = {"caption": captions, "key": [f"key {row}" for row in range(38)]}
    colours = [COLOURS[row % 5] for row in range(38)]
    return ProjectorTensor("images", vectors, columns, [Image.new("RGB", (40, 40), c) for c in colours])


def words_tensor(columns: dict | None = None) -> ProjectorTensor:
    return ProjectorTensor("words", np.eye(3, 8, dtype=np.float32), columns or {"word": ["a", "dog", "cat"]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_tensors(tmp_path_factory.mktemp("runs") / "projector", [images_tensor(), words_tensor()])


@pytest.fixture(scope="module")
def tensorboard(folder) -> str:
    """The address of a TensorBoard that shows the folder, in a thread."""
    from tensorboard import program

    board = program.TensorBoard()
    options = ["--logdir", str(folder), "--host", "127.0.0.1", "--port", "0", "--load_fast", "false"]
    board.configure(argv=["tensorboard", *options])
    return board.launch().rstrip("/")


def read(address: str, route: str, **query: object) -> bytes:
    url = f"{address}/data/plugin/projector/{route}?{urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.read()


def shown_run(address: str) -> str:
    """TensorBoard finds runs in the background, so the first answers may be empty."""
    end = time.monotonic() + 60
    while not (runs := json.loads(read(address, "runs"))):
        assert time.monotonic() < end, "the run does not show"
    return runs[0]


def test_tensorboard_reads_it(tensorboard: str) -> None:
    run = shown_run(tensorboard)
    with urllib.request.urlopen(f"{tensorboard}/data/runs", timeout=60) as response:
        assert json.loads(response.read()) == [run]
    shown = json.loads(read(tensorboard, "info", run=run))["embeddings"]
    assert [(tensor["tensorName"], tensor["tensorShape"]) for tensor in shown] == [
        ("images", [38, 8]),
        ("words", [3, 8]),
    ]
    for tensor in (images_tensor(), words_tensor()):
        values = np.frombuffer(read(tensorboard, "tensor", run=run, name=tensor.name), np.float32)
        np.testing.assert_allclose(values.reshape(-1, 8), tensor.embeddings, rtol=1e-6)
    lines = read(tensorboard, "metadata", run=run, name="images").decode().split("\n")
    assert lines[:3] == ["caption\tkey", "a dog on a beach\tkey 0", "line break\tkey 1"]
    assert lines[3:6] == ["<script>alert(1)</script>\tkey 2", "ünïcode\tkey 3", "x\tkey 4"]
    assert len(lines) == 40 and lines[-1] == ""
    # A single column has no header: TensorBoard would take it for a point.
    assert read(tensorboard, "metadata", run=run, name="words") == b"a\ndog\ncat\n"
    with Image.open(io.BytesIO(read(tensorboard, "sprite_image", run=run, name="images"))) as sheet:
        assert sheet.size == (280, 280) and shown[0]["sprite"]["singleImageDim"] == [40, 40]
        places = [(40 * (row % 7) + 20, 40 * (row // 7) + 20) for row in range(38)]
        colours = [sheet.convert("RGB").getpixel(place) for place in places]
    wanted = [tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for colour in COLOURS]
    np.testing.assert_allclose(colours, [wanted[row % 5] for row in range(38)], atol=6)
    with pytest.raises(urllib.error.HTTPError):
        read(tensorboard, "sprite_image", run=run, name="words")


@pytest.mark.slow
def test_a_browser_shows_points_and_thumbnails(tensorboard: str, tmp_path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    shown_run(tensorboard)
    find = """
      const inside = root => [...root.querySelectorAll('*')].flatMap(one => [
        one, ...(one.shadowRoot ? inside(one.shadowRoot) : []),
        ...(one.tagName === 'IFRAME' && one.contentDocument ? inside(one.contentDocument) : [])]);
      const all = inside(document);
    """
    points = find + "return all.filter(e => e.classList.contains('numDataPoints')).map(e => e.textContent)"
    # The canvas itself is empty again after each frame, so that only a picture of the page shows it.
    place = (
        find
        + """
      const canvas = all.find(e => e.tagName === 'CANVAS' && e.clientWidth > 300);
      if (!canvas) return null;
      const box = canvas.getBoundingClientRect(), frame = canvas.ownerDocument.defaultView.frameElement;
      const outer = frame ? frame.getBoundingClientRect() : {left: 0, top: 0};
      return [box.left + outer.left, box.top + outer.top, box.right + outer.left, box.bottom + outer.top];
    """
    )

    def drawn(browser) -> tuple[int, int]:
        """Pixels as red as the thumbnails, and as black as what surrounds them on the sheet."""
        box = browser.execute_script(place)
        if box is None:
            return 0, 0
        with Image.open(io.BytesIO(browser.get_screenshot_as_png())) as page:
            canvas = page.convert("RGB").crop([round(edge) for edge in box])
            # Icons lie above.
            pixels = np.asarray(canvas, int)[130:]
        red = (pixels[..., 0] > 150) & (pixels[..., 1:].max(axis=-1) < 100)
        return int(red.sum()), int((pixels.max(axis=-1) < 40).sum())

    with headless_chromium(tmp_path / "profile", *WEBGL) as browser:
        browser.get(f"{tensorboard}/#projector")
        wait = WebDriverWait(browser, 60, poll_frequency=0.2)
        wait.until(lambda b: [text.strip() for text in b.execute_script(points)] == ["38"])
        wait.until(lambda b: drawn(b)[0] > 2000)
        red, black = drawn(browser)
        assert black < red / 10
        messages = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert not messages


def test_without_an_event_file_it_would_not_show(folder) -> None:
    names = sorted(path.name for path in folder.iterdir())
    assert [name for name in names if name.startswith("events.out.tfevents.")] == names[:1]
    assert names[1:] == [
        "images.metadata.tsv",
        "images.sprite.jpg",
        "images.tsv",
        "projector_config.pbtxt",
        "words.metadata.tsv",
        "words.tsv",
    ]


def test_replaces_its_own_folder_alone(tmp_path) -> None:
    out = tmp_path / "projector"
    write_tensors(out, [images_tensor()])
    write_tensors(out, [words_tensor()])
    assert not list(out.glob("images*")) and (out / "words.tsv").exists()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"must be a projector's folder"):
        write_tensors(out, [images_tensor()])
    assert (out / "notes.txt").read_text() == "mine" and not list(out.glob("images*"))
    other = tmp_path / "tables"
    other.mkdir()
    (other / "table.tsv").write_text("1")
    for path in (other, other / "table.tsv"):
        with pytest.raises(DataError, match="must be a projector's folder"):
            write_tensors(path, [images_tensor()])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["projector", "tables"]


def test_an_error_half_way_leaves_nothing(tmp_path, monkeypatch) -> None:
    def refuse(thumbnails):
        raise RuntimeError

    monkeypatch.setattr(projector, "sprite_sheet", refuse)
    with pytest.raises(RuntimeError):
        write_tensors(tmp_path / "projector", [words_tensor(), images_tensor()])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [1, 2, 5, 1000, 7225, 7226, MAX_POINTS])
def test_as_many_thumbnails_as_fit(count: int) -> None:
    side = thumbnail_side(count)
    assert 64 <= side <= 96
    columns = int(np.ceil(np.sqrt(count)))
    assert columns * side <= MAX_SHEET and (side == 96 or columns * (side + 1) > MAX_SHEET)


def test_refuses_embeddings_that_are_not_finite() -> None:
    with pytest.raises(DataError, match="NaN"):
        ProjectorTensor("words", np.full((2, 3), np.inf, np.float32), {"word": ["a", "b"]})


def table(path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_images_sentences_and_words_lie_in_one_space(tiny_run, scenes, tmp_path) -> None:
    made = write_projector(
        tiny_run, data=scenes, split="val", out=tmp_path / "projector", images=7, sentences=16, words=9, seed=4
    )
    out, shapes = made.path, made.shapes
    assert out == tmp_path / "projector"
    assert shapes == {"everything": (32, 16), "images": (7, 16), "sentences": (16, 16), "words": (9, 16)}
    vectors = {name: np.loadtxt(out / f"{name}.tsv", delimiter="\t") for name in shapes}
    tables = {name: table(out / f"{name}.metadata.tsv") for name in shapes}
    part, embedder = scenes.split("val"), Embedder(tiny_run.model)
    embedded = embedder.images(tiny_run.images_of(scenes, part), len(part))
    rows = [part.keys.index(line["key"]) for line in tables["images"]]
    assert rows == sorted(set(rows))
    np.testing.assert_allclose(vectors["images"], embedded[rows], atol=1e-5)
    for row, line in zip(rows, tables["images"], strict=True):
        assert line["caption"] == max(part.captions_of(row), key=len)
    assert [line["class"] for line in tables["images"]] == [part.class_names[row] for row in rows]
    for name, column in (("sentences", "sentence"), ("words", "word")):
        texts = [line[column] for line in tables[name]]
        wanted = embedder.texts(*tiny_run.tokenizer.encode(texts))
        np.testing.assert_allclose(vectors[name], wanted, atol=1e-5)
    # In turns: every image has its first two sentences, two have three.
    each = Counter(line["key"] for line in tables["sentences"])
    assert sorted(each.values()) == [2, 2, 2, 2, 2, 3, 3] and set(each) == {part.keys[row] for row in rows}
    for line in tables["sentences"]:
        assert line["sentence"] in part.captions_of(part.keys.index(line["key"]))
        assert int(line["words"]) == len(line["sentence"].split())
    counts = Counter(split_words(part.captions).flat_values.numpy().tolist())
    assert [int(line["count"]) for line in tables["words"]] == [n for _, n in counts.most_common(9)]
    assert all(counts[line["word"].encode()] == int(line["count"]) for line in tables["words"])
    together = np.concatenate([vectors["images"], vectors["sentences"], vectors["words"]])
    np.testing.assert_array_equal(vectors["everything"], together)
    assert [line["kind"] for line in tables["everything"]] == ["image"] * 7 + ["sentence"] * 16 + ["word"] * 9
    assert [line["label"] for line in tables["everything"][23:]] == [line["word"] for line in tables["words"]]
    sheets = sorted(path.name for path in out.glob("*.jpg"))
    assert sheets == ["everything.sprite.jpg", "images.sprite.jpg"]


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        ((3, 0, 0), {"images": 3}),
        ((0, 8, 0), {"sentences": 8}),
        ((0, 0, 4), {"words": 4}),
        ((99, 999, 0), {"everything": 72, "images": 12, "sentences": 60}),
    ],
)
def test_some_of_them(tiny_run, scenes, tmp_path, counts, names) -> None:
    kinds = dict(zip(("images", "sentences", "words"), counts, strict=True))
    shapes = write_projector(tiny_run, data=scenes, split="val", out=tmp_path / "projector", **kinds).shapes
    assert {name: points for name, (points, _) in shapes.items()} == names


def test_without_image_bytes_there_are_points(tiny_run, scenes_copy, tmp_path) -> None:
    scenes_copy.split("val").has_images = False
    made = write_projector(tiny_run, data=scenes_copy, split="val", out=tmp_path / "projector")
    out, shapes = made.path, made.shapes
    assert shapes["everything"] == (72 + shapes["words"][0], 16)
    assert not list(out.glob("*.jpg")) and "sprite" not in (out / "projector_config.pbtxt").read_text()
