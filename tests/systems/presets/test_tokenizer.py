"""Tokenizers of presets against keras-hub's own preprocessing, in graph, and on what strangers send."""

from __future__ import annotations

import io
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.systems.presets.texts import sentencepiece_model
from vsemb.errors import DataError
from vsemb.systems.presets.subwords import PieceModel, SentencePieceTokenizer, piece_vocabulary
from vsemb.systems.presets.tokenizer import PresetText

TEXTS = [
    "A red circle above a blue square",
    "two DOGS running: on   the\tbeach\n",
    "a photo of 12 cats, and a dog's ball!",
    "",
    " \n ",
    "zebra's déjà vu 2024 — ok",
    "<|endoftext|> hi <|startoftext|>",
    "don't we'll it's i'd 're",
    "ａｂｃ ﬁne… ½",
    "the quick brown fox jumped over the lazy dog " * 3,
    "日本語 и кириллица",
    "aaaaaaaaaaaaaaaaaaaa!!!???",
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_ids_are_those_of_keras_hub(kind: str, preset_path) -> None:
    import keras_hub

    name = {"clip": "CLIPPreprocessor", "siglip": "SigLIPPreprocessor"}[kind]
    theirs = getattr(keras_hub.models, name).from_preset(str(preset_path(kind)))
    wanted = np.array(theirs({"prompts": TEXTS, "images": np.zeros((len(TEXTS), 32, 32, 3))})["token_ids"])
    texts = PresetText.open(f"hub:{preset_path(kind)}")
    tokenizer = texts.tokenizer(1000)
    assert tokenizer.max_length == texts.most_pieces
    eager = tokenizer.ragged(tf.constant(TEXTS)).to_list()
    graph = tf.function(
        lambda given: tokenizer(given), autograph=False, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    padded = graph(tf.constant(TEXTS)).numpy()
    begin, end = ([] if one is None else [one] for one in (texts.start, texts.end))
    for row, ids in enumerate(eager):
        whole = [*begin, *(one - 2 for one in ids), *end]
        assert whole + [texts.padding] * (texts.length - len(whole)) == wanted[row].tolist(), TEXTS[row]
        assert padded[row].tolist() == ids + [0] * (padded.shape[1] - len(ids))


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_a_row_does_not_depend_on_its_neighbours(kind: str, preset_path) -> None:
    tokenizer = PresetText.open(f"hub:{preset_path(kind)}").tokenizer(64)
    together = tokenizer.ragged(tf.constant(TEXTS)).to_list()
    for text, ids in zip(TEXTS, together, strict=True):
        assert tokenizer.ragged(tf.constant([text])).to_list() == [ids]
    assert tokenizer(tf.constant([], tf.string)).shape == (0, 1)
    assert tokenizer(tf.constant(["", " "])).numpy().tolist() == [[0], [0]]


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_pieces_are_what_the_ids_stand_for(kind: str, preset_path) -> None:
    texts = PresetText.open(f"hub:{preset_path(kind)}")
    tokenizer = texts.tokenizer(64)
    given = tf.constant(["a dog"])
    pieces = [piece.decode() for piece in tokenizer.pieces(given).flat_values.numpy()]
    assert pieces == [texts.pieces[one - 2] for one in tokenizer.ragged(given).flat_values.numpy()]
    assert "".join(pieces).replace("</w>", " ").replace("▁", " ").strip() == "a dog"


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_what_strangers_send_ends(kind: str, preset_path) -> None:
    tokenizer = PresetText.open(f"hub:{preset_path(kind)}").tokenizer(64)
    odd = [b"\xff\xfe dog", b"a\0dog", b"x" * 5000, ("é" * 3000).encode(), ("a b" * 2000).encode()]
    ids = tokenizer(tf.constant(odd)).numpy()
    assert ids.shape[0] == len(odd) and ids.shape[1] <= tokenizer.max_length
    assert (ids[1] != 0).any()


@pytest.mark.parametrize("options", [{"byte_fallback": True, "vocab_size": 330}, {"add_dummy_prefix": False}, {}])
def test_sentence_pieces_are_those_of_the_library(options: dict) -> None:
    import sentencepiece

    proto = sentencepiece_model(**options)
    model = PieceModel.read(proto)
    tokenizer = SentencePieceTokenizer(piece_vocabulary(model.pieces), model, 1000, lower=False, punctuation=True)
    library = sentencepiece.SentencePieceProcessor(model_proto=proto)
    random = np.random.default_rng(3)
    words = ["".join(random.choice(list("aeorsdgtbl"), size=random.integers(1, 12))) for _ in range(300)]
    texts = [*TEXTS, *(" ".join(words[start : start + 6]) for start in range(0, 300, 6))]
    rows = tokenizer.ragged(tf.constant(texts)).to_list()
    for text, ids in zip(texts, rows, strict=True):
        assert [one - 2 for one in ids] == library.Encode(text), text


def test_models_of_another_kind_are_refused() -> None:
    with pytest.raises(DataError, match="unigram"):
        PieceModel.read(sentencepiece_model(model_type="bpe"))
    with pytest.raises(DataError):
        PieceModel.read(io.BytesIO(b"\xff" * 40).getvalue())


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [("clip", "add_prefix_space", True), ("siglip", "add_bos", True), ("siglip", "sequence_length", 8)],
)
def test_a_field_that_the_graph_cannot_honour_is_refused_by_name(kind, field, value, preset_path, tmp_path) -> None:
    path = shutil.copytree(preset_path(kind), tmp_path / "preset")
    content = json.loads((path / "tokenizer.json").read_text())
    content["config"][field] = value
    (path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"`{field}`"):
        PresetText.open(f"hub:{path}")
