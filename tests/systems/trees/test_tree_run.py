"""A run on dependency trees, from parsing to search, export and what refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.searched import search_run
from tests.tiny import tiny
from vsemb import Run, write_projector
from vsemb.cli.__main__ import main
from vsemb.data.store import StoredDataset
from vsemb.demo.answers import Demo
from vsemb.demo.pictures import DatasetPictures
from vsemb.errors import DataError
from vsemb.evaluation import Embedder
from vsemb.report.space import Space
from vsemb.runs.indexing import build_index, open_index, open_indexed
from vsemb.runs.inputs import Query
from vsemb.runs.measure import evaluate_run
from vsemb.runs.searching import embed_text
from vsemb.runs.serve import export_run
from vsemb.runs.train import train
from vsemb.searching.index import StaleIndexError
from vsemb.serving import Client
from vsemb.serving.server import Server
from vsemb.systems.trees.parse_texts import TreeReader, keep_parser, stored_parser, use_parser
from vsemb.systems.trees.parses import Parses, write_parses
from vsemb.systems.trees.trees import Tree, is_parsed
from vsemb.text import Vocabulary

SENTENCE = "a red circle above a blue square"


@pytest.fixture(scope="module")
def without_parser(tree_run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A copy of the run whose captions' trees came from a file; treat it as read-only."""
    path = Path(shutil.copytree(tree_run.path, tmp_path_factory.mktemp("without-parser") / "run"))
    shutil.rmtree(path / "parser")
    return Run.open(path)


@pytest.fixture
def parsed_copy(parsed_scenes, tmp_path: Path) -> StoredDataset:
    """A copy of the dataset, to be changed."""
    return StoredDataset.open(shutil.copytree(parsed_scenes.path, tmp_path / "data"))


def flatten(dataset: StoredDataset, parser: dict[str, str] | None = None) -> Parses:
    """Hangs all words of each caption on its first."""
    flat = {
        name: [
            Tree(tree.words, (0, *[1] * (len(tree) - 1)))
            for tree in dataset.annotation("parses").trees(dataset.split(name))
        ]
        for name in dataset.splits
    }
    return write_parses(dataset, flat, parser=parser, overwrite=True)


def test_what_a_run_keeps(tree_run, parsed_scenes, spacy_pipeline) -> None:
    assert tree_run.info["parses"] == parsed_scenes.annotation("parses").fingerprint
    assert json.loads((tree_run.path / "parser/parser.json").read_text())["language"] == "xx"
    assert (tree_run.path / "parser/pipeline/config.cfg").read_bytes() == (spacy_pipeline / "config.cfg").read_bytes()
    assert tree_run.reader.parser.info.fingerprint == parsed_scenes.annotation("parses").parser["fingerprint"]


def test_captions_are_read_with_the_parses_of_the_dataset(tree_run, parsed_scenes) -> None:
    split = parsed_scenes.split("val")
    texts, rows = tree_run.texts_of(split)
    assert texts == parsed_scenes.annotation("parses").texts(split)
    assert rows.tolist() == split.caption_rows.tolist()
    assert tree_run.shown_texts_of(split) == split.captions
    words = Tree.from_text(texts[0]).words
    assert "".join(words) == split.captions[0].replace(" ", "")


@pytest.mark.slow
def test_a_caption_read_anew_is_embedded_as_in_training(tree_run, parsed_scenes) -> None:
    split = parsed_scenes.split("val")
    embedder = Embedder(tree_run.model)
    stored = embedder.texts(*tree_run.encode(tree_run.texts_of(split)[0]))
    anew = embedder.texts(*tree_run.encode(split.captions))
    # Bucketed into other batches, the same float32 sums are added up in another order.
    np.testing.assert_allclose(anew, stored, rtol=1e-4, atol=1e-5)
    served = tree_run.encoders(images=False).encode_text(tf.constant(split.captions[:3]))
    np.testing.assert_allclose(served["embedding"].numpy(), stored[:3], rtol=1e-4, atol=1e-5)


def test_reading_passes_over_what_needs_no_parser(without_parser) -> None:
    assert without_parser.reader.parser is None
    parsed = "a\t2\ndog\t0"
    assert without_parser.reader([parsed, "dog", " dog ", "", "  "]) == [parsed, "dog\t0", "dog\t0", "", ""]
    assert without_parser.reader(["\0", "red\0"]) == ["", "red\t0"]
    for sentence in ("a dog", "a\tdog"):
        with pytest.raises(DataError, match=r"'a.*dog'.*vsemb parser"):
            without_parser.reader([sentence])


def test_words_are_what_the_run_takes_for_words(tree_run, without_parser, monkeypatch) -> None:
    known = frozenset({"'s", "not", "t-shirt"})
    for run in (tree_run, without_parser):
        monkeypatch.setitem(vars(run.reader), "_words", known)
    assert without_parser.reader(["'s", "T-Shirt"]) == ["'s\t0", "T-Shirt\t0"]
    # A parser may split what has no gap.
    monkeypatch.setitem(vars(tree_run.reader), "parser", lambda texts: [Tree(("can", "not"), (0, 1))] * len(texts))
    assert tree_run.reader(["not", "cannot", "a\tb"]) == ["not\t0", "can\t0\nnot\t1", "can\t0\nnot\t1"]


def test_bytes_that_are_no_text_are_refused(tree_run, tiny_run) -> None:
    odd = b"\xff a red circle".decode(errors="surrogateescape")
    for run in (tiny_run, tree_run):
        with raises_argument("text"):
            embed_text(run, odd, "text", print)


def test_a_text_is_read_as_far_as_it_is_served(tree_run) -> None:
    filled = "a red circle " * 400
    assert tree_run.reader([filled]) == tree_run.reader([filled[:4096]])
    assert tree_run.reader([filled]) != tree_run.reader([filled[:2048]])


def test_another_parser_can_be_named(without_parser, tiny_run, spacy_pipeline, tmp_path) -> None:
    run = Run.open(shutil.copytree(without_parser.path, tmp_path / "run"))
    use_parser(run, spacy_pipeline)
    (read,) = run.reader([SENTENCE])
    assert is_parsed(read)
    with raises_argument("run"):
        use_parser(tiny_run, spacy_pipeline)
    assert tiny_run.reader([SENTENCE]) == [SENTENCE]


def test_measuring_and_searching(tree_run, parsed_scenes, capsys) -> None:
    metrics = evaluate_run(tree_run, parsed_scenes, "val", recalls=(20,), pairs=5)
    assert metrics.recall_sum > 0
    assert set(metrics.pairs.image_to_text) >= {"R@1", "R@5", "R@10", "R@20"}
    results = search_run(tree_run, parsed_scenes, Query(SENTENCE), split="val", report=print)
    assert len(results) == 10
    assert results[0].item.caption in parsed_scenes.split("val").captions
    by_caption = search_run(tree_run, parsed_scenes, Query(SENTENCE), split="val", captions=True, report=print)
    assert by_caption[0].item.caption in parsed_scenes.split("val").captions
    with raises_argument("query"):
        search_run(tree_run, parsed_scenes, Query("zyzzyva"), split="val", report=print)
    search_run(tree_run, parsed_scenes, Query("a zyzzyva circle"), split="val", report=print)
    assert "not known to the run: zyzzyva" in capsys.readouterr().out


def test_the_index_of_captions_holds_the_parsed_ones(tree_run, parsed_scenes) -> None:
    index = open_index(tree_run, parsed_scenes, "val", "text", print)
    split = parsed_scenes.split("val")
    wanted = Embedder(tree_run.model).texts(*tree_run.encode(tree_run.texts_of(split)[0]))
    np.testing.assert_allclose(index.embeddings, wanted, rtol=1e-4, atol=1e-5)
    index.close()


def test_other_parses_make_the_index_of_captions_stale(tree_run, parsed_copy, tmp_path) -> None:
    run = Run.open(shutil.copytree(tree_run.path, tmp_path / "run"))
    for kind in ("image", "text"):
        build_index(run, parsed_copy, "val", kind, out=tmp_path / kind)
        index, _, found = open_indexed(tmp_path / kind, run.path)
        assert found is not None
        index.close()
    before = open_index(run, parsed_copy, "val", "text", report=print)
    flatten(parsed_copy)
    lines: list[str] = []
    after = open_index(run, parsed_copy, "val", "text", report=lines.append)
    assert "Embedding anew" in lines[0]
    assert np.abs(after.embeddings - before.embeddings).max() > 1e-3
    with pytest.raises(StaleIndexError):
        open_indexed(tmp_path / "text", run.path, parsed_copy.path)
    assert open_indexed(tmp_path / "text", run.path)[2] is None
    assert open_indexed(tmp_path / "image", run.path, parsed_copy.path)[2] is not None


def test_other_parses_than_those_of_the_training_are_refused(tree_run, parsed_copy) -> None:
    run = replace(tree_run, info=tree_run.info | {"data": str(parsed_copy.path)})
    assert run.open_data().annotation("parses").fingerprint == tree_run.info["parses"]
    flatten(parsed_copy)
    with pytest.raises(DataError, match="parses"):
        run.open_data()
    assert run.open_data(parsed_copy.path).path == parsed_copy.path


@pytest.mark.parametrize(
    ("parser", "name"),
    [
        ({"name": "stanza"}, ""),
        (
            {"library": "Stanza 1.10", "name": "ewt", "version": "1", "language": "en", "fingerprint": None},
            "ewt 1 (Stanza 1.10)",
        ),
    ],
    ids=["as others write it", "as we do"],
)
def test_a_parser_that_is_none_of_spacy(parsed_copy, tmp_path, parser, name) -> None:
    keep_parser(flatten(parsed_copy, parser), tmp_path)
    assert stored_parser(tmp_path) is None
    assert TreeReader(Vocabulary(["dog"]), tmp_path).parser_name == name


def test_the_kept_parser_can_be_removed(parsed_copy, tmp_path) -> None:
    folder = parsed_copy.annotation("parses").parser_folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        keep_parser(parsed_copy.annotation("parses"), tmp_path)
        kept = tmp_path / "parser" / "pipeline"
        assert all(path.stat().st_mode & 0o200 for path in (kept, *kept.rglob("*")))
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)


@pytest.mark.slow
def test_a_demonstration_says_that_it_has_no_parser(without_parser, parsed_scenes) -> None:
    lines: list[str] = []
    demo = Demo(without_parser, DatasetPictures(parsed_scenes, "val"), lines.append)
    assert any("vsemb parser" in line for line in lines)
    assert demo.by_text("red", 2).images
    demo.close()


def test_classes_are_read_as_trees(tree_run, without_parser) -> None:
    classify = pytest.importorskip("vsemb.systems.zero_shot.classify", reason="the system zero_shot is not there")
    prompts = classify.embed_classes(tree_run, ["circle", "square"], ["a picture of a red {}"])
    assert prompts.embeddings.shape == (2, 1, 16)
    assert not np.allclose(prompts.embeddings[0], prompts.embeddings[1])
    # Bare names need no parser.
    assert classify.embed_classes(without_parser, ["circle", "square"]).embeddings.shape == (2, 1, 16)


def test_the_card_names_the_parser(tree_run) -> None:
    (said,) = tree_run.encoders(images=False).text_input.cannot()
    assert "cannot parse" in said and tree_run.reader.parser_name in said


@pytest.mark.slow
def test_exported_and_asked(tree_run, without_parser, parsed_scenes, spacy_pipeline, tmp_path) -> None:
    path = export_run(tree_run, tmp_path / "models" / "trees", report=print)
    loaded = tf.saved_model.load(str(path))
    assert set(loaded.signatures) == {"serving_default", "encode_tree", "describe"}
    card = (tmp_path / "models/contracts/trees.md").read_text()
    assert "cannot parse" in card
    assert tree_run.reader.parser_name in card
    wanted = tree_run.encoders(images=False).encode_text(tf.constant([SENTENCE, ""]))
    with (
        Server({"trees": tmp_path / "models" / "trees"}, port=0, rest_port=0, poll=0) as server,
        Client(f"http://127.0.0.1:{server.rest_port}", "trees", parser=spacy_pipeline, timeout=60) as client,
    ):
        embedded = client.encode_text([SENTENCE, ""])
    assert embedded.valid.tolist() == [True, False]
    np.testing.assert_allclose(embedded.embedding, wanted["embedding"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_twin_over_sums_of_children_trains(parsed_scenes, tree_recipe, tmp_path) -> None:
    twin = ["image.projection=mlp", "text.encoder=projection-mlp", "text.encoder.encoder=child-sum-tree-lstm"]
    recipe = tiny(tree_recipe.with_overrides(twin), "training.epochs=1", "batches.size=48")
    run = train(recipe, parsed_scenes, tmp_path / "run")
    assert evaluate_run(run, parsed_scenes).recall_sum > 0


def test_other_parses_are_another_training(parsed_copy, tree_recipe, tree_run, tmp_path) -> None:
    flatten(parsed_copy)
    run = shutil.copytree(tree_run.path, tmp_path / "run")
    with pytest.raises(DataError, match="parses"):
        train(tree_recipe, parsed_copy, run)


def test_without_parses_the_way_to_them_is_named(scenes, tree_recipe, tmp_path, capsys) -> None:
    with pytest.raises(DataError, match="vsemb annotate"):
        train(tree_recipe, scenes, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert main(["train", "tree-twin", "--data", str(scenes.path), "--out", str(tmp_path / "run")]) == 1
    assert "vsemb annotate" in capsys.readouterr().err


def test_a_run_is_given_a_parser_once(without_parser, parsed_scenes, spacy_pipeline, tmp_path, capsys) -> None:
    run = str(shutil.copytree(without_parser.path, tmp_path / "run"))
    data = ["--data", str(parsed_scenes.path), "--split", "val"]
    assert main(["search", run, SENTENCE, *data]) == 1
    assert f"vsemb parser {run}" in capsys.readouterr().err
    assert main(["parser", run, "nowhere"]) == 1
    assert not (Path(run) / "parser").exists()
    assert main(["parser", run, str(spacy_pipeline)]) == 0
    assert capsys.readouterr().out.startswith(f"{run} parses with xx_tiny 0.0.0")
    assert main(["search", run, SENTENCE, *data]) == 0
    # A second one replaces it, and the run is as it was before.
    assert main(["parser", run, str(spacy_pipeline)]) == 0
    assert Run.open(run).fingerprint == without_parser.fingerprint
    (Path(run) / "parser" / "pipeline" / "meta.json").write_text("{}")
    with pytest.raises(DataError, match="parser"):
        Run.open(run)


def test_the_projector_and_the_report_read_parses_and_show_captions(without_parser, parsed_scenes, tmp_path) -> None:
    run, captions = without_parser, parsed_scenes.split("val").captions
    wanted = Embedder(run.model).texts(*run.encode(run.texts_of(parsed_scenes.split("val"))[0]))
    space = Space(run, parsed_scenes, "val")
    np.testing.assert_allclose(space.texts, wanted, atol=1e-5)
    assert list(space.text_list) == list(captions)
    folder = write_projector(
        run, data=parsed_scenes, split="val", out=tmp_path / "projector", images=0, sentences=9, words=3
    ).path

    def read(name: str) -> tuple[list[str], np.ndarray]:
        _, *lines = (folder / f"{name}.metadata.tsv").read_text().splitlines()
        return [line.split("\t")[0] for line in lines], np.loadtxt(folder / f"{name}.tsv", delimiter="\t")

    said, vectors = read("sentences")
    np.testing.assert_allclose(vectors, wanted[[captions.index(each) for each in said]], atol=1e-5)
    words, vectors = read("words")
    np.testing.assert_allclose(vectors, Embedder(run.model).texts(*run.encode(words)), atol=1e-5)
    assert (len(said), len(words)) == (9, 3)


@pytest.mark.slow
def test_the_other_commands(without_parser, tree_run, parsed_scenes, tmp_path) -> None:
    data = ["--data", str(parsed_scenes.path), "--split", "val"]
    assert main(["evaluate", str(without_parser.path), *data]) == 0
    assert main(["projector", str(without_parser.path), *data, "--out", str(tmp_path / "projector")]) == 0
    assert main(["report", str(without_parser.path), *data, "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert parsed_scenes.split("val").captions[0].split()[0] in page
    assert "\t" not in page.split("<body>")[-1]
    columns = (tmp_path / "projector" / "sentences.metadata.tsv").read_text().split("\n")
    assert columns[1].split("\t")[0] in parsed_scenes.split("val").captions
    assert main(["search", str(tree_run.path), "circle", "--minus", "red", *data]) == 0
