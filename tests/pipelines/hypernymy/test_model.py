"""The hypernym model: energies by hand and one pair at a time, all against all, `fit`, config."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest

from pipelines.hypernymy.model import COMPARISONS, GaussianComparison, HypernymModel
from tests.contract import SAME, check_config
from tests.ops.test_lorentz import slow_aperture, slow_violation
from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb.losses.max_margin import MaxMargin

CONCEPTS, DIM = 7, 4


def filled(comparison: str, seed: int = 0) -> HypernymModel:
    """A model whose every weight is drawn, the bilinear matrix too."""
    model = HypernymModel(CONCEPTS, DIM, comparison)
    generator = np.random.default_rng(seed)
    model.set_weights([generator.normal(size=weight.shape) for weight in model.weights])
    return model


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def slow_energy(model: HypernymModel, low: int, high: int) -> float:
    """The energy of one pair in float64, from the formulas of the papers."""
    weights = [weight.astype(np.float64) for weight in model.get_weights()]
    u, v = weights[0][low], weights[0][high]
    name = {kind: name for name, kind in COMPARISONS.items()}[type(model.comparison)]
    if name == "order":
        return float(sum(max(0.0, abs(y) - abs(x)) ** 2 for x, y in zip(u, v, strict=True)))
    if name == "symmetric":
        u, v = abs(u), abs(v)
        return float(1 - u @ v / math.sqrt(u @ u) / math.sqrt(v @ v))
    if name == "cone":
        return slow_violation(u, v) if low != high else math.pi / 2 - slow_aperture(v)
    if name == "bilinear":
        return float(np.log1p(np.exp(-(u @ weights[1] @ v))))
    # KL of diagonal normal densities: 1/2 sum of s²/t² + (n - m)²/t² - 1 + ln t²/s².
    (m, s), (n, t) = ((x[:DIM], 0.1 * 100 ** sigmoid(x[DIM:])) for x in (u, v))
    return float(0.5 * np.sum(s / t + (n - m) ** 2 / t - 1 + np.log(t / s)))


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_energies_of_pairs_and_of_all(comparison):
    model = filled(comparison)
    slow = np.array([[slow_energy(model, low, high) for high in range(CONCEPTS)] for low in range(CONCEPTS)])
    pairs = np.stack(np.meshgrid(range(CONCEPTS), range(CONCEPTS), indexing="ij"), -1).reshape(-1, 2)
    energies = keras.ops.convert_to_numpy(model(pairs))
    assert energies.shape == (CONCEPTS**2,) and energies.dtype == np.float32
    # The energies of the Gaussians go up to hundreds.
    np.testing.assert_allclose(
        energies.reshape(slow.shape), slow, rtol=1e-5, atol=1e-4 if comparison == "cone" else 1e-5
    )
    some = np.array([5, 0, 3])
    to_all = keras.ops.convert_to_numpy(model.energies_to_all(some))
    assert to_all.dtype == np.float32
    # The rounded products of cones: see `cone_violation_matrix`. A concept lies at no certain angle to itself.
    np.testing.assert_allclose(to_all, slow[some], rtol=1e-5, atol=5e-3 if comparison == "cone" else 2e-5)
    assert (energies >= -1e-6).all()
    if comparison == "symmetric":
        np.testing.assert_allclose(slow, slow.T)
    else:
        assert np.abs(slow - slow.T).max() > 0.1


def test_gaussian_by_hand():
    # One dimension. The variance of sigmoid(0) = 1/2 lies half-way in the logarithm: sqrt(0.1 * 10) = 1.
    # KL(N(2, 1) || N(0, 1)) = (2 - 0)² / 2 = 2. With the variance at most, 10, half-way no longer:
    # free = 50: KL(N(2, 1) || N(0, 10)) = (1/10 + 4/10 - 1 + ln 10) / 2 = 0.901293.
    model = HypernymModel(3, 1, "gaussian")
    model.set_weights([np.array([[2.0, 0.0], [0.0, 0.0], [0.0, 50.0]])])
    energies = keras.ops.convert_to_numpy(model(np.array([[0, 1], [0, 2]])))
    np.testing.assert_allclose(energies, [2, 0.901293], rtol=1e-5)


def test_loss_against_the_oracle():
    case = oracle("hypernym_max_margin")
    pairs = [*case.inputs["positives"], *case.inputs["negatives"]]
    model = HypernymModel(12, 3)
    # The signs are for the absolute value to take away.
    signs = np.resize([1, -1], (12, 3))
    model.set_weights([signs * np.array(pairs).reshape(12, 3)])
    energies = keras.ops.convert_to_numpy(model(np.arange(12).reshape(6, 2)))
    np.testing.assert_allclose(energies, [*case.expected["E_positive"], *case.expected["E_negative"]], **TOLERANCE)
    loss = MaxMargin(case.inputs["margin"])(np.array([1, 1, 1, 0, 0, 0]), energies)
    np.testing.assert_allclose(float(loss), case.expected["sum"], **TOLERANCE)


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_fit_learns_a_chain(comparison):
    keras.utils.set_random_seed(0)
    # 0 < 1 < 2 and 3 < 4 < 5; the corrupted pairs lead across. Symmetric energies can learn that too.
    true = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]
    pairs = np.array(true + [(low, (high + 3) % 6) for low, high in true], np.int32)
    labels = np.repeat([1, 0], 6)
    # Far from the root cones are narrow, and have no gradient towards a concept on the other side.
    model = HypernymModel(6, 8, comparison, scale=0.3 if comparison == "cone" else 1.0, seed=3)
    model.compile(keras.optimizers.Adam(0.05), loss=MaxMargin(model.comparison.margin))
    # One epoch of 60 batches, each with all pairs.
    model.fit(np.tile(pairs, (60, 1)), np.tile(labels, 60), batch_size=12, shuffle=False, verbose=0)
    energies = keras.ops.convert_to_numpy(model(pairs))
    assert energies[:6].max() < energies[6:].min()
    np.testing.assert_allclose(model.predict(pairs, verbose=0), energies, **SAME)


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_comparison_contract(comparison):
    kind = COMPARISONS[comparison]
    rows = np.random.default_rng(0).normal(size=(2, 5, kind().width(DIM))).astype(np.float32)
    check_config(kind())
    layer = kind()
    expected = keras.ops.convert_to_numpy(layer(*rows))
    assert expected.shape == layer.compute_output_shape(*(row.shape for row in rows)) == (5,)


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_saved_and_loaded(comparison, tmp_path):
    model = filled(comparison)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    pairs = np.array([[0, 1], [5, 2], [6, 6]])
    np.testing.assert_allclose(loaded(pairs), model(pairs), **SAME)
    np.testing.assert_allclose(loaded.energies_to_all([4]), model.energies_to_all([4]), **SAME)


def test_config_and_seed():
    model = HypernymModel(5, 3, GaussianComparison(0.2, 4.0), scale=0.5, seed=7)
    rebuilt = HypernymModel.from_config(model.get_config())
    assert rebuilt.get_config() == model.get_config()
    assert (rebuilt.comparison.least_variance, rebuilt.comparison.most_variance) == (0.2, 4.0)
    np.testing.assert_array_equal(rebuilt.get_weights()[0], model.get_weights()[0])
    other = HypernymModel(5, 3, scale=0.5, seed=8)
    assert other.vectors.shape == (5, 3)
    assert model.vectors.shape == (5, 6)


def test_scale_is_the_deviation():
    # 20,000 draws: the estimate deviates by scale / sqrt(40,000) = 0.5 %, five of them 2.5 %.
    for scale in (0.1, 2.0):
        vectors = HypernymModel(2000, 10, scale=scale, seed=0).get_weights()[0]
        np.testing.assert_allclose(vectors.std(), scale, rtol=0.025)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"concepts": 0}, "concepts"),
        ({"concepts": 3, "dim": 0}, "dim"),
        ({"concepts": 3, "scale": 0.0}, "scale"),
        ({"concepts": 3, "scale": math.inf}, "scale"),
        ({"concepts": 3, "comparison": "odrer"}, "comparison"),
    ],
)
def test_bad_arguments(arguments, name):
    with raises_argument(name):
        HypernymModel(**arguments)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, math.inf)])
def test_bad_variances(bounds):
    with raises_argument("most_variance"):
        GaussianComparison(*bounds)


def test_metrics_and_weights_of_rows_count_each_pair() -> None:
    model, labels, weights = filled("order"), np.array([1, 0, 1, 0, 1]), np.arange(1.0, 6.0)
    pairs = np.random.default_rng(0).integers(0, CONCEPTS, (5, 2))
    energies = keras.ops.convert_to_numpy(model(pairs))
    options = {"metrics": ["mae", "accuracy"], "weighted_metrics": ["mse"], "run_eagerly": True}
    model.compile(keras.optimizers.SGD(0.0), loss=MaxMargin(1.0), **options)
    logs = model.fit(pairs, labels, batch_size=2, shuffle=False, sample_weight=weights, verbose=0).history
    errors = energies - labels
    expected = {
        "mae": np.abs(errors).mean(),
        "accuracy": ((energies > 0.5) == labels).mean(),
        "mse": np.average(errors**2, weights=weights),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(logs[name], [value], rtol=1e-5, err_msg=name)
