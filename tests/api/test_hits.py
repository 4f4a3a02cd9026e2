"""`vsemb.search` over arrays of embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import vsemb
from tests.raising import raises_argument
from vsemb.errors import InvalidArgumentError


def test_hits_are_the_best_in_order(model, pictures):
    embeddings = model.encode_images(pictures)
    hits = vsemb.search(model, "a red circle", embeddings, k=4)
    scores = model.similarity(embeddings, model.encode_texts("a red circle"))
    order = np.argsort(-scores, kind="stable")[:4]
    assert [hit.index for hit in hits] == order.tolist()
    np.testing.assert_allclose([hit.score for hit in hits], scores[order], rtol=1e-6)
    assert [len(vsemb.search(model, "a red circle", embeddings, k=k)) for k in (1, 12, 100)] == [1, 12, 12]


def test_an_image_and_a_vector_find_themselves(model, pictures):
    embeddings = model.encode_images(pictures)
    queries = (pictures[3], str(pictures[3]), pictures[3].read_bytes(), Image.open(pictures[3]), embeddings[3])
    for query in queries:
        hit = vsemb.search(model, query, embeddings, k=1)[0]
        assert hit.index == 3 and hit.score == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("precision", "dtype", "width"), [("int8", np.int8, 16), ("ubinary", np.uint8, 2)])
def test_hits_among_quantized_embeddings(model, pictures, precision, dtype, width):
    embeddings = model.encode_images(pictures, precision=precision)
    assert embeddings.dtype == dtype and embeddings.shape == (12, width)
    hits = vsemb.search(model, "a red circle", embeddings, k=3)
    scores = model.similarity(embeddings, model.encode_texts("a red circle"))
    assert [hit.index for hit in hits] == np.argsort(-scores, kind="stable")[:3].tolist()
    best = vsemb.search(model, embeddings[3], embeddings, k=1)[0]
    assert best.score == pytest.approx(1, abs=1e-5) and (embeddings[best.index] == embeddings[3]).all()


def test_a_query_of_two_rows_is_the_wrong_argument(model, pictures):
    texts = model.encode_texts(["a circle", "a square"])
    for query in (texts, texts[:1]):
        with raises_argument("query"):
            vsemb.search(model, query, model.encode_images(pictures))


def test_hits_show_their_items(model, pictures):
    embeddings = model.encode_images(pictures)
    hits = vsemb.search(model, "a circle", embeddings, k=2, items=pictures)
    assert [hit.item for hit in hits] == [pictures[hit.index] for hit in hits]
    assert str(pictures[hits[0].index].name) in repr(hits)
    page = hits._repr_html_()
    assert page.count("data:image/jpeg;base64,") == 2 and "<th>item</th>" in page
    captions = vsemb.search(model, "a circle", embeddings, k=1, items=["<b>bold</b>"] * 12)
    assert "&lt;b&gt;bold&lt;/b&gt;" in captions._repr_html_() and "<img" not in captions._repr_html_()
    gone = vsemb.search(model, "a circle", embeddings, k=1, items=["gone.jpg"] * 12)
    assert "Cannot read the image gone.jpg" in gone._repr_html_()
    plain = vsemb.search(model, "a circle", embeddings, k=1)
    assert "<th>item</th>" not in plain._repr_html_()


def test_arguments_that_do_not_fit(model, pictures):
    embeddings = model.encode_images(pictures)
    for arguments, said in (
        (("a circle", embeddings, 0), "`k` must be .*; got 0"),
        ((7, embeddings), "one text, one image, or an embedding"),
        (("a circle", embeddings[0]), r"\(rows, dim\)"),
        ((embeddings[0][:5], embeddings), "embeddings of one model"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            vsemb.search(model, *arguments)
    with raises_argument("items"):
        vsemb.search(model, "a circle", embeddings, items=pictures[:3])
    with raises_argument("items"):
        vsemb.search(model, "a circle", embeddings, items=set(pictures))


def test_unknown_words_of_a_query_are_named(model, pictures, capsys):
    embeddings = model.encode_images(pictures[:1])
    vsemb.search(model, "a red zyzzyva", embeddings)
    assert "zyzzyva" in capsys.readouterr().err
    vsemb.search(model, "a red circle", embeddings)
    assert capsys.readouterr().err == ""
