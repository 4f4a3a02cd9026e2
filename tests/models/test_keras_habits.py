"""What Keras users do by habit, as they would type it: one model on bytes and raw strings, and variations of it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from PIL import Image

from tests.raising import raises_argument
from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, PixelEncoder, WordEmbedding
from vsemb.errors import InvalidArgumentError, VsembError
from vsemb.evaluation import evaluate_retrieval
from vsemb.image.backbones import PixelScaling
from vsemb.losses import InfoNCE
from vsemb.models import DualEncoder
from vsemb.searching.index import SearchIndex
from vsemb.text.subwords import WordPieceTokenizer
from vsemb.text.tokenizers import CharacterTokenizer, WordTokenizer
from vsemb.text.vocabulary import Vocabulary
from vsemb.training import RetrievalValidation

SIZE, DIM = 8, 4
COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}
TEXTS = [f"a {colour} square" for colour in COLOURS]
VOCABULARY = Vocabulary(["a", "square", *COLOURS])


def png(colour: tuple[int, int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (5, 7), colour).save(buffer, "PNG")
    return buffer.getvalue()


BYTES = [png(colour) for colour in COLOURS.values()]
PIXELS = np.stack([np.full((SIZE, SIZE, 3), colour, np.float32) for colour in COLOURS.values()])
FEATURES = np.eye(4, 6, dtype=np.float32)
IDS = np.array([[2, 4 + number, 3] for number in range(4)], np.int32)


def backbone() -> keras.Model:
    pixels = keras.Input((SIZE, SIZE, 3))
    return keras.Model(pixels, keras.layers.Conv2D(5, 3)(PixelScaling("tf")(pixels)))


def text_encoder() -> keras.layers.Layer:
    return LinearSentenceEncoder(WordEmbedding(len(VOCABULARY), DIM, init_scale=1.0))


def raw_model(**options) -> DualEncoder:
    """Takes bytes or pixels, and raw strings or ids."""
    keras.utils.set_random_seed(0)
    images = PixelEncoder(backbone(), ImageEncoder(DIM))
    return DualEncoder(images, text_encoder(), **{"tokenizer": WordTokenizer(VOCABULARY), **options})


def feature_model(text: keras.layers.Layer | None = None, image: keras.layers.Layer | None = None) -> DualEncoder:
    keras.utils.set_random_seed(0)
    return DualEncoder(image or ImageEncoder(DIM), text or text_encoder())


def compiled(model: DualEncoder, loss: keras.losses.Loss | None = None, **options) -> DualEncoder:
    model.compile(**{"optimizer": keras.optimizers.Adam(0.05), "loss": loss or InfoNCE(0.5), **options})
    return model


def dataset(images=BYTES, texts=TEXTS, **more) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices({"image": images, "text": texts, **more}).repeat(5).batch(4)


@pytest.fixture(scope="module")
def trained() -> DualEncoder:
    """Trained on bytes and raw strings."""
    model = compiled(raw_model(), metrics=["accuracy"])
    model.history_ = model.fit(dataset(image_id=[7, 8, 9, 3]), epochs=3, verbose=0).history
    return model


def run_eagerly(model: DualEncoder) -> DualEncoder:
    """Spares a test the graph of a step, where it is about something else."""
    model.run_eagerly = True
    return model


def embeddings(model: DualEncoder, batch: dict) -> tuple[np.ndarray, np.ndarray]:
    outputs = model({name: tf.constant(rows) for name, rows in batch.items()})
    return outputs["image"].numpy(), outputs["text"].numpy()


RAW = {"image": BYTES, "text": TEXTS}


@pytest.mark.parametrize("outside", [99, -1, -100])
def test_ids_outside_the_embedding_are_named(outside: int) -> None:
    model, wrong = run_eagerly(compiled(feature_model())), IDS.copy()
    wrong[1, 2] = outside
    for use in (
        lambda: model.fit({"image": FEATURES, "text": wrong}, verbose=0),
        lambda: model.predict({"text": wrong}, verbose=0),
        lambda: model.encode_texts(wrong),
    ):
        with pytest.raises(InvalidArgumentError, match=f"got {outside}") as raised:
            use()
        assert raised.value.argument == "text"


def test_a_lone_surrogate_names_its_row(trained: DualEncoder) -> None:
    texts = [*TEXTS[:-1], "red \ud83d star"]
    for use in (
        lambda: trained.fit({"image": BYTES, "text": texts}, verbose=0),
        lambda: trained.evaluate({"image": BYTES, "text": texts}, verbose=0),
        lambda: trained.predict({"text": texts}, verbose=0),
        lambda: trained.predict({"text": np.array(texts)}, verbose=0),
        lambda: trained.tokenizer.encode(texts),
    ):
        with pytest.raises(InvalidArgumentError, match=rf"`texts?\[{len(texts) - 1}\]`.*ud83d"):
            use()


COLUMNS = {
    "series": pd.Series(TEXTS),
    "series of objects": pd.Series(TEXTS, dtype=object),
    "series of Arrow strings": pd.Series(TEXTS, dtype="string[pyarrow]"),
    "categories": pd.Series(TEXTS, index=[9, 8, 7, 6]).astype("category"),
    "column of a table": pd.DataFrame({"caption": TEXTS})["caption"],
    "Arrow": pa.array(TEXTS),
    "Arrow in chunks": pa.chunked_array([TEXTS[:3], TEXTS[3:]]),
    "objects": np.array(TEXTS, object),
    "tuple": tuple(TEXTS),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_texts_may_be_any_sequence_of_strings(name: str) -> None:
    model, texts = run_eagerly(compiled(raw_model())), COLUMNS[name]
    expected = model.predict({"text": TEXTS}, verbose=0)["text"]
    np.testing.assert_array_equal(model.predict({"text": texts}, verbose=0)["text"], expected)
    np.testing.assert_allclose(model.encode_texts(texts), expected, atol=1e-6)
    loss = model.evaluate(PIXELS, TEXTS, verbose=0)
    assert model.evaluate(PIXELS, texts, verbose=0) == loss
    assert model.evaluate({"image": pd.Series(BYTES), "text": texts}, verbose=0) == pytest.approx(loss)
    history = model.fit(PIXELS, texts, validation_data=(PIXELS, texts), verbose=0).history
    assert len(history["val_loss"]) == 1


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
@pytest.mark.parametrize("row", [0, 2])
def test_a_row_without_a_text_or_an_image_is_named(trained: DualEncoder, missing: object, row: int) -> None:
    texts, images = [*TEXTS], [*BYTES]
    texts[row] = images[row] = missing
    uses = {
        "y": lambda: trained.fit(PIXELS, texts, verbose=0),
        "text": lambda: trained.evaluate({"image": BYTES, "text": pd.Series(texts, dtype=object)}, verbose=0),
        "image": lambda: trained.encode_images(images),
        "x": lambda: trained.fit(images, TEXTS, verbose=0),
    }
    for name, use in uses.items():
        with raises_argument(f"{name}[{row}]"):
            use()
    with raises_argument(f"text[{row}]"):
        trained.encode_texts(texts)


def test_fit_on_bytes_and_raw_strings(trained: DualEncoder) -> None:
    losses = trained.history_["loss"]
    assert losses[-1] < losses[0]
    assert trained.history_["accuracy"][-1] > trained.history_["accuracy"][0]


def test_summary_shows_the_towers_and_their_parameters(trained: DualEncoder) -> None:
    lines: list[str] = []
    trained.summary(print_fn=lines.append)
    shown = "\n".join(lines)
    for tower in (trained.image_encoder, trained.text_encoder):
        assert tower.name in shown and f"{tower.count_params():,}" in shown


def test_evaluate_and_predict(trained: DualEncoder) -> None:
    logs = trained.evaluate(dataset(), return_dict=True, verbose=0)
    assert logs["accuracy"] == 1.0 and 0 < logs["loss"] < 2
    embedded = trained.predict({name: np.asarray(rows) for name, rows in RAW.items()}, verbose=0)
    images, texts = embedded["image"], embedded["text"]
    assert images.shape == texts.shape == (4, DIM) and images.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, rtol=1e-5)
    # Pixels and ids are read as bytes and strings are; one tower works alone.
    numbers = embeddings(trained, {"image": PIXELS, "text": IDS})
    np.testing.assert_allclose(numbers, (images, texts), rtol=1e-5, atol=1e-6)
    assert list(trained({"text": np.array(TEXTS)})) == ["text"]
    assert evaluate_retrieval(images, texts).recall_sum == 600


FRESH = """
import sys
import keras
import numpy as np
import vsemb
import vsemb.models

model = keras.saving.load_model(sys.argv[1])
found = model({"image": np.array(%r), "text": np.array(%r)})
np.savez(sys.argv[2], **{name: value.numpy() for name, value in found.items()})
"""


@pytest.mark.slow
def test_save_and_load_in_a_fresh_process(trained: DualEncoder, tmp_path: Path) -> None:
    trained.save(tmp_path / "m.keras")
    arguments = [sys.executable, "-c", FRESH % (BYTES, TEXTS), str(tmp_path / "m.keras"), str(tmp_path / "found.npz")]
    root = Path(__file__).parents[2]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONPATH": "."})
    assert done.returncode == 0, done.stderr[-3000:]
    images, texts = embeddings(trained, RAW)
    with np.load(tmp_path / "found.npz") as arrays:
        np.testing.assert_allclose(arrays["image"], images, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(arrays["text"], texts, rtol=1e-5, atol=1e-6)


def test_a_loaded_model_goes_on_training(trained: DualEncoder, tmp_path: Path) -> None:
    trained.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    assert int(loaded.optimizer.iterations) == int(trained.optimizer.iterations)
    history = run_eagerly(loaded).fit(dataset(), verbose=0).history
    assert history["loss"][0] <= trained.history_["loss"][-1] and history["accuracy"] == [1.0]


def test_tokenizers_are_saved_with_the_model() -> None:
    for tokenizer in CharacterTokenizer(), WordPieceTokenizer(Vocabulary(["a", "sq", "##uare"]), max_length=5):
        stored = keras.saving.serialize_keras_object(tokenizer)
        again = keras.saving.deserialize_keras_object(stored)
        assert again(TEXTS).numpy().tolist() == tokenizer(TEXTS).numpy().tolist()


class OfClasses(WordTokenizer):
    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, 1)


def test_a_tokenizer_that_cannot_be_saved_says_so() -> None:
    with pytest.raises(VsembError):
        keras.saving.serialize_keras_object(OfClasses(VOCABULARY))


def served(path: Path, name: str, **inputs) -> dict[str, np.ndarray]:
    signature = tf.saved_model.load(str(path)).signatures[name]
    return {key: value.numpy() for key, value in signature(**inputs).items()}


def test_export_gives_the_served_signatures(trained: DualEncoder, tmp_path: Path) -> None:
    trained.export(tmp_path / "1")
    images, texts = embeddings(trained, RAW)
    outputs = served(tmp_path / "1", "encode_text", text=tf.constant([*TEXTS, ""]))
    np.testing.assert_allclose(outputs["embedding"][:4], texts, rtol=1e-5, atol=1e-6)
    assert outputs["valid"].tolist() == [True] * 4 + [False]
    outputs = served(tmp_path / "1", "encode_image", image_bytes=tf.constant([*BYTES, b"no image"]))
    np.testing.assert_allclose(outputs["embedding"][:4], images, rtol=1e-5, atol=1e-6)
    assert outputs["valid"].tolist() == [True] * 4 + [False] and not outputs["embedding"][4].any()


def test_export_of_ids_and_features(tmp_path: Path) -> None:
    model = run_eagerly(compiled(feature_model()))
    model.fit({"image": FEATURES, "text": IDS}, verbose=0)
    model.export(tmp_path / "1")
    images, texts = embeddings(model, {"image": FEATURES, "text": IDS})
    outputs = served(tmp_path / "1", "serving_default", token_ids=tf.constant(IDS))
    np.testing.assert_allclose(outputs["embedding"], texts, rtol=1e-5, atol=1e-6)
    outputs = served(tmp_path / "1", "encode_image", image=tf.constant(FEATURES))
    np.testing.assert_allclose(outputs["embedding"], images, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_stock_callbacks(tmp_path: Path) -> None:
    model = compiled(raw_model())
    best = tmp_path / "best.keras"
    callbacks = [
        RetrievalValidation.from_arrays(BYTES, TEXTS),
        keras.callbacks.ModelCheckpoint(best, monitor="val_recall_sum", mode="max", save_best_only=True),
        keras.callbacks.EarlyStopping("val_loss", patience=0, min_delta=100, restore_best_weights=True),
        keras.callbacks.TensorBoard(tmp_path / "logs", histogram_freq=1),
    ]
    fitted = model.fit(dataset(), validation_data=dataset(), epochs=9, callbacks=callbacks, verbose=0)
    assert len(fitted.history["loss"]) == 2
    assert {"val_loss", "val_recall_sum", "val_t2i_R@1"} <= set(fitted.history)
    assert list((tmp_path / "logs").rglob("events*"))
    assert keras.saving.load_model(best)({"text": np.array(TEXTS)})["text"].shape == (4, DIM)


@pytest.mark.parametrize(
    "optimizer", ["sgd", "lion", "adamw", "adafactor", keras.optimizers.Muon, keras.optimizers.Lamb]
)
def test_any_optimizer(optimizer) -> None:
    optimizer = optimizer if isinstance(optimizer, str) else optimizer()
    model = run_eagerly(compiled(feature_model(), optimizer=optimizer))
    assert np.isfinite(model.fit({"image": FEATURES, "text": IDS}, verbose=0).history["loss"][0])


def test_adafactor_adds_up_the_gradients_of_a_repeated_word() -> None:
    """Keras' step for a list of rows is another one than for the same gradient as a table."""
    ids = np.tile(IDS[:, 1:2], (1, 3))
    model = run_eagerly(compiled(feature_model(), optimizer=keras.optimizers.Adafactor(0.1)))
    model.build({"image": FEATURES.shape, "text": ids.shape})
    table = model.text_encoder.trainable_variables[0]
    with tf.GradientTape() as tape:
        batch = {"image": tf.constant(FEATURES), "text": tf.constant(ids)}
        loss = model.compute_loss(batch, None, model(batch, training=True))
    start, gradient = keras.Variable(table.numpy()), tf.convert_to_tensor(tape.gradient(loss, table.value))
    keras.optimizers.Adafactor(0.1).apply([gradient], [start])
    model.fit({"image": FEATURES, "text": ids}, batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_allclose(table.numpy(), start.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.CategoricalCrossentropy(from_logits=True),
        keras.losses.BinaryCrossentropy(from_logits=True),
        keras.losses.CategoricalHinge(),
        keras.losses.MeanSquaredError(),
        keras.losses.Huber(),
    ],
)
def test_any_loss_of_labels_and_scores(loss: keras.losses.Loss) -> None:
    model = run_eagerly(compiled(feature_model(), loss))
    losses = model.fit({"image": FEATURES, "text": IDS}, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


class Total(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.sum(y_pred - y_true)


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        keras.losses.CategoricalCrossentropy(),
        "categorical_crossentropy",
        Total(),
    ],
)
def test_losses_of_something_else_are_refused(loss: keras.losses.Loss | str) -> None:
    with raises_argument("loss"):
        compiled(feature_model(), loss).fit({"image": FEATURES, "text": IDS}, verbose=0)


def test_metrics_of_labels_and_scores() -> None:
    # By hand: images e0, e1, e2; texts 0 and 1 swapped. Scores are 1 where equal and 0 elsewhere.
    class Given(keras.layers.Layer):
        def call(self, x):
            return x[:, 0] if len(x.shape) == 3 else x

    model = DualEncoder(Given(), Given())
    metrics = [keras.metrics.CategoricalAccuracy("top1"), keras.metrics.TopKCategoricalAccuracy(3, "top3")]
    model.compile("sgd", loss=InfoNCE(), metrics=metrics, run_eagerly=True)
    swapped = np.eye(3, dtype=np.float32)[[1, 0, 2]]
    batch = {"image": np.eye(3, dtype=np.float32), "text": swapped[:, None]}
    logs = model.evaluate(batch, return_dict=True, verbose=0)
    assert (round(logs["top1"], 4), logs["top3"]) == (0.3333, 1.0)
    # Rows 0 and 1 show one image, so that its other text is ignored: a tie with the third text, where the first wins.
    logs = model.evaluate({**batch, "image_id": np.array([5, 5, 6])}, return_dict=True, verbose=0)
    assert logs["top1"] == 1.0


def test_an_own_backbone_of_keras_applications() -> None:
    network = keras.applications.MobileNetV3Small(
        input_shape=(32, 32, 3), alpha=0.35, include_top=False, weights=None, minimalistic=True
    )
    model = compiled(DualEncoder(PixelEncoder(network, ImageEncoder(DIM)), text_encoder()))
    run_eagerly(model).fit({"image": np.ones((4, 32, 32, 3), np.float32), "text": IDS}, verbose=0)
    # The last map is averaged.
    assert model({"image": np.array(BYTES)})["image"].shape == (4, DIM)


def test_an_own_backbone_of_keras_hub() -> None:
    keras_hub = pytest.importorskip("keras_hub")
    network = keras_hub.models.ViTBackbone((16, 16, 3), 8, 1, 1, 6, 12)
    model = compiled(DualEncoder(PixelEncoder(network, ImageEncoder(DIM)), text_encoder()))
    run_eagerly(model).fit({"image": np.ones((4, 16, 16, 3), np.float32), "text": IDS}, verbose=0)
    assert model({"image": np.array(BYTES)})["image"].shape == (4, DIM)


@keras.saving.register_keras_serializable("tests")
class Mean(keras.layers.Layer):
    """A text layer as users write them: without `build`, `training` or a config."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.words = keras.layers.Embedding(len(VOCABULARY), DIM)

    def call(self, ids):
        return keras.ops.mean(self.words(ids), axis=1)


@pytest.mark.parametrize(
    "make",
    [
        Mean,
        lambda: keras.Sequential([keras.layers.Embedding(len(VOCABULARY), DIM), keras.layers.GRU(DIM)]),
        lambda: keras.Sequential([WordEmbedding(len(VOCABULARY), DIM), keras.layers.GRU(DIM)]),
    ],
)
def test_an_own_text_layer(make, tmp_path: Path) -> None:
    model = compiled(feature_model(make()))
    # Of a layer without `build`, the variables are made before the step is traced.
    model.run_eagerly = make is not Mean
    losses = model.fit({"image": FEATURES, "text": IDS}, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save_weights(tmp_path / "m.weights.h5")
    other = feature_model(make())
    other.build({"image": (None, 6), "text": (None, None)})
    other.load_weights(tmp_path / "m.weights.h5")
    batch = {"image": FEATURES, "text": IDS}
    np.testing.assert_allclose(embeddings(other, batch), embeddings(model, batch), rtol=1e-5, atol=1e-6)


@keras.saving.register_keras_serializable("tests")
class Head(keras.layers.Layer):
    """A head whose inner layer is built by its call."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.dense = keras.layers.Dense(DIM)

    def call(self, features):
        return self.dense(features)


@pytest.mark.filterwarnings("ignore:`build..` was called on layer:UserWarning")
def test_own_layers_without_build_keep_their_weights_in_a_saved_model(tmp_path: Path) -> None:
    pixels = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Conv2D(5, 3)])
    model = compiled(DualEncoder(PixelEncoder(pixels, Head()), Mean()))
    batch = {"image": np.ones((4, 4, 4, 3), np.float32), "text": IDS}
    model.build({"image": (None, 4, 4, 3), "text": (None, None)})
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(embeddings(loaded, batch), embeddings(model, batch), rtol=1e-5, atol=1e-6)


def test_a_text_vectorization_layer_as_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = keras.layers.TextVectorization()
    tokenizer.adapt(TEXTS)
    model = run_eagerly(compiled(raw_model(tokenizer=tokenizer)))
    model.fit(dataset().take(1), verbose=0)
    model.export(tmp_path / "1")
    outputs = served(tmp_path / "1", "encode_text", text=tf.constant(TEXTS))
    np.testing.assert_allclose(outputs["embedding"], embeddings(model, RAW)[1], rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(embeddings(loaded, RAW), embeddings(model, RAW), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    try:
        model = compiled(raw_model())
    finally:
        keras.config.set_dtype_policy("float32")
    model.run_eagerly = policy == "mixed_bfloat16"
    losses = model.fit(dataset().take(2), epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert model.text_encoder.compute_dtype == policy.removeprefix("mixed_")
    images, texts = embeddings(model, RAW)
    assert images.dtype == texts.dtype == np.float32
    # Pixels reach the backbone as they are.
    seen = []
    scaling = model.image_encoder.backbone.layers[1]
    scaling.call = lambda pixels, call=scaling.call: seen.append(pixels.dtype) or call(pixels)
    model({"image": PIXELS})
    assert seen == [tf.float32]


def test_rows_without_ids_are_images_of_their_own() -> None:
    batch = {"image": FEATURES, "text": IDS}
    losses = []
    for each in (batch, {**batch, "image_id": np.array([4, 2**40, 0, 1])}):
        losses.append(run_eagerly(compiled(feature_model())).fit(each, verbose=0, shuffle=False).history["loss"])
    assert losses[0] == losses[1]


def test_pairs_as_tuples_and_as_two_arrays() -> None:
    expected = run_eagerly(compiled(raw_model())).fit(dataset().take(1), verbose=0).history["loss"]
    tuples = dataset().take(1).map(lambda batch: (batch["image"], batch["text"]))
    assert run_eagerly(compiled(raw_model())).fit(tuples, verbose=0).history["loss"] == expected
    model = run_eagerly(compiled(feature_model()))
    wanted = model.evaluate({"image": FEATURES, "text": IDS}, verbose=0)
    assert model.evaluate(FEATURES, IDS, verbose=0) == wanted


BAD_BATCHES = [
    ({"text": None}, r"`x` must be .*a dictionary with image, text.*; got \['image'\]"),
    ({"image": None}, "image, text"),
    ({"text_image_id": np.arange(4)}, "image_id, text"),
    ({"text": np.array(TEXTS)}, "tokenizer=WordTokenizer"),
    ({"image": np.array(BYTES)}, "PixelEncoder"),
    ({"text": IDS[:, :0] + [[0.5]] * 4, "negative_text": IDS}, "negative_text_id"),
]


def test_bad_batches_are_refused_and_the_next_one_trains() -> None:
    good = {"image": FEATURES, "text": IDS}
    model = compiled(feature_model())
    for change, message in BAD_BATCHES:
        bad = {name: value for name, value in {**good, **change}.items() if value is not None}
        with pytest.raises(InvalidArgumentError, match=message):
            model.fit(bad, verbose=0)
    losses = model.fit(good, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


UNFIT_BATCHES = [
    ({"image_id": np.arange(4)[:, None]}, r"`image_id` must be .*; got .int64 \(None, 1\)"),
    ({"image_id": np.arange(4.0)}, "image_id.*one integer per row"),
    ({"text": np.array(TEXTS)[:, None]}, "`text` must be .*one string per row.*; got "),
    ({"photo": FEATURES, "image": None}, r"row\['photo'\]"),
]


@pytest.mark.parametrize(("change", "message"), UNFIT_BATCHES)
def test_inputs_of_other_shapes_and_types_are_refused(change, message: str) -> None:
    batch = {name: each for name, each in {"image": FEATURES, "text": IDS, **change}.items() if each is not None}
    with pytest.raises(InvalidArgumentError, match=message):
        compiled(feature_model()).fit(batch, verbose=0)


def test_rows_that_were_not_batched_are_refused() -> None:
    rows = tf.data.Dataset.from_tensor_slices({"image": FEATURES, "text": IDS})
    with raises_argument("image"):
        compiled(feature_model()).fit(rows, verbose=0)


def test_a_third_part_of_a_batch_is_refused() -> None:
    with raises_argument("sample_weight"):
        compiled(feature_model()).fit(tf.data.Dataset.from_tensors((FEATURES, IDS, np.arange(4))), verbose=0)


@pytest.mark.parametrize("name", ["sample_weight", "class_weight"])
def test_weights_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"`{name}` must be omitted, since all pairs count alike; got"):
        compiled(feature_model()).fit({"image": FEATURES, "text": IDS}, verbose=0, **{name: {0: 1.0}})


@pytest.fixture(scope="module")
def eager() -> DualEncoder:
    """A model of features and strings."""
    return run_eagerly(compiled(DualEncoder(ImageEncoder(DIM), text_encoder(), tokenizer=WordTokenizer(VOCABULARY))))


ROWS = {"image": FEATURES, "text": TEXTS}


def test_all_methods_take_what_fit_takes(eager: DualEncoder) -> None:
    for held_out in ((FEATURES, TEXTS), [FEATURES, TEXTS], ROWS):
        history = eager.fit(FEATURES, TEXTS, validation_data=held_out, verbose=0).history
        assert np.isfinite(history["val_loss"]).all()
    expected = eager.evaluate(FEATURES, TEXTS, verbose=0)
    for arguments in ((FEATURES, TEXTS), (ROWS,), (FEATURES.tolist(), TEXTS)):
        assert eager.test_on_batch(*arguments) == pytest.approx(expected, rel=1e-5)
        assert np.isfinite(eager.train_on_batch(*arguments))
        expected = eager.evaluate(FEATURES, TEXTS, verbose=0)
    assert eager.predict_on_batch({"text": TEXTS})["text"].shape == (4, DIM)


def texts_of(ids: list[int]) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors({**ROWS, "image_id": np.arange(4), "text_image_id": np.array(ids)})


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("y", lambda model: model.fit(ROWS, np.arange(4), verbose=0)),
        ("y", lambda model: model.train_on_batch(ROWS, np.arange(4))),
        ("y", lambda model: model.evaluate(dataset(FEATURES), np.arange(4), verbose=0)),
        ("y", lambda model: model.fit(dataset(FEATURES).map(lambda row: (row, tf.zeros(4))), verbose=0)),
        ("sample_weight", lambda model: model.fit(ROWS, validation_data=(FEATURES, TEXTS, np.ones(4)), verbose=0)),
        ("sample_weight", lambda model: model.test_on_batch(ROWS, sample_weight=np.ones(4))),
        ("image_id", lambda model: model.fit({**ROWS, "image_id": None}, verbose=0)),
        ("image_id", lambda model: model.fit({**ROWS, "image_ids": np.arange(4)}, verbose=0)),
        ("image_id", lambda model: model.predict({**ROWS, "image_ids": np.arange(4)}, verbose=0)),
        ("image_id", lambda model: model.train_on_batch({**ROWS, "image_id": np.arange(3)})),
        ("text_image_id", lambda model: model.fit(texts_of([0, 1, 2, 9]), verbose=0)),
        ("text_image_id", lambda model: model.evaluate(texts_of([0, -1, 2, 3]), verbose=0)),
        ("steps_per_epoch", lambda model: model.fit(dataset(FEATURES).repeat(), verbose=0)),
        ("validation_steps", lambda model: model.fit(ROWS, validation_data=dataset(FEATURES).repeat(), verbose=0)),
        ("steps", lambda model: model.evaluate(dataset(FEATURES).repeat(), verbose=0)),
        ("steps", lambda model: model.predict(dataset(FEATURES).repeat(), verbose=0)),
        ("read_bytes", lambda model: model.fit({"image": [Path("a.jpg")] * 4, "text": TEXTS}, verbose=0)),
    ],
)
def test_what_would_be_dropped_or_never_end_is_refused(eager: DualEncoder, argument: str, call) -> None:
    with pytest.raises(InvalidArgumentError, match=argument):
        call(eager)


def test_a_text_without_its_image_is_named_in_a_graph() -> None:
    model = compiled(DualEncoder(ImageEncoder(DIM), text_encoder(), tokenizer=WordTokenizer(VOCABULARY)))
    with pytest.raises(InvalidArgumentError, match="`text_image_id`.*7"):
        model.fit(texts_of([0, -7, 2, 3]), verbose=0)


def test_weights_of_losses_are_refused(eager: DualEncoder) -> None:
    model = run_eagerly(compiled(feature_model(), loss_weights=[2.0]))
    with raises_argument("loss_weights"):
        model.fit({"image": FEATURES, "text": IDS}, verbose=0)


def test_a_subclass_may_read_more_inputs() -> None:
    class Weighted(DualEncoder):
        def compute_loss(self, x, y=None, y_pred=None, sample_weight=None, training=True):
            return super().compute_loss(x, y, y_pred, training=training) * keras.ops.mean(x["weight"])

    model = run_eagerly(compiled(Weighted(ImageEncoder(DIM), text_encoder())))
    batch = {"image": FEATURES, "text": IDS, "weight": np.zeros(4, np.float32)}
    assert model.fit(batch, verbose=0).history["loss"] == [0.0]


class Rows(keras.utils.PyDataset):
    """Two batches of bytes and strings, as arrays."""

    def __init__(self, dtype: type) -> None:
        super().__init__()
        self.batch = {"image": np.array(BYTES, object), "text": np.array(TEXTS, dtype)}

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return self.batch


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
def test_batches_of_arrays_of_strings_are_read(trained: DualEncoder) -> None:
    expected = trained.predict(dataset(), verbose=0)["text"][:8]
    for batches in (Rows(str), (Rows(object)[index] for index in range(2))):
        np.testing.assert_allclose(trained.predict(batches, verbose=0)["text"], expected, rtol=1e-5, atol=1e-6)
    model = run_eagerly(compiled(raw_model()))
    history = model.fit(Rows(str), validation_data=((Rows(str)[0],) for _ in "12"), validation_steps=2, verbose=0)
    assert {"loss", "val_loss"} <= set(history.history)


@pytest.mark.parametrize(
    ("texts", "row"),
    [(["a dog", 3, "a cat", "b"], 1), ([3, "a dog"], 0), (np.array([["a dog"], [None]], object), 1)],
)
def test_strings_among_other_values_are_refused(texts, row: int) -> None:
    for name, call in (
        ("y", lambda: raw_model().fit(BYTES, texts)),
        ("text", lambda: raw_model().predict({"text": texts})),
    ):
        with raises_argument(f"{name}[{row}]"):
            call()


def test_no_rows_are_refused() -> None:
    for batch in ([FEATURES[:0], []], [{"image": FEATURES[:0], "text": IDS[:0]}]):
        with raises_argument("x"):
            compiled(feature_model()).fit(*batch, verbose=0)
    with raises_argument("x"):
        raw_model().predict({"text": []}, verbose=0)


def test_single_batches_are_refused_under_several_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        model = compiled(feature_model())
        model.build({"image": (None, 6), "text": (None, None)})
    monkeypatch.setattr("vsemb.models.replicated.spans_workers", lambda strategy: True)
    for method in (model.train_on_batch, model.test_on_batch):
        with raises_argument("x"):
            method({"image": FEATURES, "text": IDS})


def test_arrays_of_different_lengths_are_refused() -> None:
    for batch in ([{"image": FEATURES[:3], "text": IDS}], [FEATURES[:3], IDS]):
        with raises_argument("x"):
            compiled(feature_model()).evaluate(*batch, verbose=0)


def test_texts_without_a_dictionary_are_refused_with_an_example() -> None:
    with raises_argument("inputs"):
        raw_model().predict(TEXTS, verbose=0)


def test_strings_are_not_compiled_by_xla() -> None:
    model = raw_model()
    model.compile("sgd", loss=InfoNCE(), jit_compile=True)
    with raises_argument("jit_compile"):
        model.fit(dataset(), verbose=0)


def test_swapped_encoders_and_maps_of_grid_cells_are_refused() -> None:
    words = LinearSentenceEncoder(WordEmbedding(9, DIM))
    with raises_argument("text"):
        swapped = DualEncoder(words, ImageEncoder(DIM), tokenizer=WordTokenizer(VOCABULARY))
        compiled(swapped).fit({"image": FEATURES, "text": TEXTS}, verbose=0)
    with raises_argument("image_encoder, text_encoder"):
        compiled(feature_model()).fit({"image": np.zeros((4, 3, 3, 5), np.float32), "text": IDS}, verbose=0)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: DualEncoder(abs, ImageEncoder(DIM)), "image_encoder"),
        (lambda: DualEncoder(ImageEncoder(DIM), ImageEncoder(DIM), tokenizer="words"), "tokenizer"),
        (lambda: PixelEncoder(keras.applications.MobileNetV2, ImageEncoder(DIM)), "backbone"),
        (lambda: PixelEncoder(keras.Sequential([keras.layers.Conv2D(4, 3)]), ImageEncoder(DIM)), "backbone"),
        (lambda: WordTokenizer(["a", "dog"]), "vocabulary"),
        (lambda: Vocabulary.from_captions("a dog"), "captions"),
    ],
)
def test_arguments_of_other_types_are_refused(make, argument: str) -> None:
    with raises_argument(argument):
        make()


def test_metrics_of_class_numbers_are_refused() -> None:
    model = feature_model()
    model.compile("sgd", loss=InfoNCE(), metrics=["sparse_categorical_accuracy"])
    with raises_argument("metrics"):
        model.fit({"image": FEATURES, "text": IDS}, verbose=0)


def test_towers_of_different_sizes_are_refused() -> None:
    model = compiled(feature_model(image=ImageEncoder(DIM + 1)))
    with pytest.raises(InvalidArgumentError, match=rf"\({DIM + 1}, {DIM}\)") as raised:
        model.fit({"image": FEATURES, "text": IDS}, verbose=0)
    assert raised.value.argument == "image_encoder, text_encoder"


@pytest.mark.parametrize("shape", [(2, SIZE + 1, SIZE, 3), (SIZE, SIZE, 3), (1, 2, SIZE, SIZE, 1)])
def test_pixels_of_another_size_are_refused(trained: DualEncoder, shape: tuple[int, ...]) -> None:
    for use in (trained.image_encoder, lambda pixels: trained({"image": pixels})):
        with raises_argument("pixels"):
            use(np.zeros(shape, np.uint8))


def test_bytes_that_are_no_image_are_refused(trained: DualEncoder) -> None:
    bad = dataset(images=[*BYTES[:3], b"no image"])
    message = r"^`image` must be the bytes of JPEG or PNG images; got other bytes in these rows: 3\. Read files first"
    for use in (run_eagerly(compiled(raw_model())).fit, trained.evaluate):
        with pytest.raises(InvalidArgumentError, match=message):
            use(bad, verbose=0)
    with pytest.raises(InvalidArgumentError, match="0.*1"):
        trained.encode_images(tf.constant(["photos/a.jpg", "photos/b.jpg"]))
    assert trained.evaluate(dataset(), return_dict=True, verbose=0)["accuracy"] == 1.0


def test_retrieval_of_plain_arrays() -> None:
    images = np.array([[3.0, 0.0], [0.0, 0.5]])
    texts = [[9.0, 1.0], [0.1, 0.0], [1.0, 2.0]]
    metrics = evaluate_retrieval(images, texts, text_image_ids=[0, 0, 1], similarity="cosine")
    assert metrics.recall_sum == 600 and (metrics.images, metrics.texts) == (2, 3)
    # As inner products of the arrays as they are, the first image scores best with every text.
    assert evaluate_retrieval(images, texts, text_image_ids=[0, 0, 1], similarity="dot").recall_sum < 600
    assert evaluate_retrieval(tf.constant(images), images).recall_sum == 600


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        (([1.0, 2.0], [[1.0]]), "images"),
        (([["a"]], [[1.0]]), "images"),
        (([[1.0], [1.0, 2.0]], [[1.0]]), "images"),
        ((np.eye(2), np.eye(3)), "texts"),
        ((np.eye(2), np.eye(2)[[0, 0, 1]]), "text_image_ids"),
        ((np.eye(2), np.eye(2), "cosine"), "image_ids"),
        ((np.eye(2), np.eye(2), None, [0.5, 1.0]), "text_image_ids"),
        ((np.eye(2), np.eye(2), None, None, "cosin"), "similarity"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arguments, argument: str) -> None:
    with raises_argument(argument):
        evaluate_retrieval(*arguments)


def test_validation_on_arrays(trained: DualEncoder) -> None:
    several = RetrievalValidation.from_arrays(BYTES, [*TEXTS, TEXTS[3]], [0, 1, 2, 3, 3])
    several.set_model(trained)
    assert several.metrics()["val_recall_sum"] == 600
    with raises_argument("split"):
        RetrievalValidation(BYTES, TEXTS, WordTokenizer(VOCABULARY))


def test_an_index_of_own_arrays() -> None:
    index = SearchIndex.from_arrays([[2.0, 0.0], [3.0, 4.0], [0.0, 1.0]], ["a", "b", "c"])
    rows, scores = index.search([[0.6, 0.8]], k=2)
    assert [index.keys[row] for row in rows[0]] == ["b", "c"]
    np.testing.assert_allclose(scores, [[1.0, 0.8]], rtol=1e-6)
    for embeddings_, keys, message in ((np.ones(3), None, "embeddings"), (np.eye(2), ["a"], "keys")):
        with pytest.raises(InvalidArgumentError, match=message):
            SearchIndex.from_arrays(embeddings_, keys)
