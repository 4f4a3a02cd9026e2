"""A vector per concept, trained so that true pairs (specific, general) have a small energy."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from vsemb.configured import Configured
from vsemb.errors import invalid_argument, unknown_name
from vsemb.models.replicated import ReplicatedModel
from vsemb.ops.geometry import l2_normalize
from vsemb.ops.lorentz import cone_violation, cone_violation_matrix
from vsemb.ops.order import order_violation, order_violation_matrix
from vsemb.parts import Count, Positive

Tensor = Any


class Comparison(Configured, keras.layers.Layer):
    """Base class of comparisons: rows of two concepts -> energy >= 0, small for a true pair.

    Call args:
        specific: (n, width) rows of the lower concepts.
        general: (n, width) rows of the higher concepts.

    Returns:
        (n,) float32 energies.
    """

    #: Margin of `MaxMargin` for the scale of these energies.
    margin = 1.0

    def width(self, dim: int) -> int:
        """Return the width of a concept's row for `dim` dimensions."""
        return dim

    def matrix(self, specific: Tensor, general: Tensor) -> Tensor:
        """Compute the energy of every specific concept with every general one.

        Args:
            specific: (n, width) float.
            general: (m, width) float.

        Returns:
            (n, m) float32.
        """
        raise NotImplementedError

    def build(self, specific_shape: Any, general_shape: Any) -> None:
        """Do nothing; most comparisons have no weights."""

    def compute_output_shape(self, specific_shape: Any, general_shape: Any) -> tuple[Any, ...]:
        return (specific_shape[0],)


@keras.saving.register_keras_serializable("vsemb")
class OrderComparison(Comparison):
    """E = ||max(0, |general| - |specific|)||² (Vendrov et al. 2016, equation 2)."""

    def call(self, specific: Tensor, general: Tensor) -> Tensor:
        return order_violation(ops.abs(specific), ops.abs(general))

    def matrix(self, specific: Tensor, general: Tensor) -> Tensor:
        return order_violation_matrix(ops.abs(specific), ops.abs(general))


@keras.saving.register_keras_serializable("vsemb")
class SymmetricComparison(Comparison):
    """E = 1 - cosine (Vendrov et al. 2016, table 1, "symmetric"); it does not depend on the direction."""

    def call(self, specific: Tensor, general: Tensor) -> Tensor:
        return 1.0 - ops.sum(self._unit(specific) * self._unit(general), axis=-1)

    def matrix(self, specific: Tensor, general: Tensor) -> Tensor:
        return 1.0 - ops.matmul(self._unit(specific), ops.transpose(self._unit(general)))

    def _unit(self, rows: Tensor) -> Tensor:
        return l2_normalize(ops.abs(rows))


@keras.saving.register_keras_serializable("vsemb")
class ConeComparison(Comparison):
    """E = the angle by which a concept lies outside the hyperbolic cone of the general one (Ganea et al. 2018, MERU).

    A row is the tangent vector of the concept's point at the root, see `vsemb.ops.lorentz`.
    """

    margin = 0.5

    def call(self, specific: Tensor, general: Tensor) -> Tensor:
        return cone_violation(specific, general)

    def matrix(self, specific: Tensor, general: Tensor) -> Tensor:
        return cone_violation_matrix(specific, general)


@keras.saving.register_keras_serializable("vsemb")
class BilinearComparison(Comparison):
    """E = softplus(-specificᵀ W general), the bilinear model of Socher et al. 2013, section 3.1.

    Socher et al. use the score specificᵀ W general. The loss of Vendrov et al. 2016, equation 4, needs an energy with a
    lower bound; otherwise the loss of true pairs decreases without limit.
    """

    def build(self, specific_shape: Any, general_shape: Any) -> None:
        width = specific_shape[-1]
        self.bilinear = self.add_weight(shape=(width, width), initializer="identity", name="bilinear")

    def call(self, specific: Tensor, general: Tensor) -> Tensor:
        return ops.softplus(-ops.sum(ops.matmul(specific, self.bilinear) * general, axis=-1))

    def matrix(self, specific: Tensor, general: Tensor) -> Tensor:
        return ops.softplus(-ops.matmul(ops.matmul(specific, self.bilinear), ops.transpose(general)))


@keras.saving.register_keras_serializable("vsemb")
class GaussianComparison(Comparison):
    """E = KL(specific || general) of diagonal Gaussians (Vilnis & McCallum 2015, section 3.2.2).

    A concept's row holds `dim` means and `dim` numbers that a sigmoid maps to log-variances. General concepts have
    large variances.

    Args:
        least_variance: minimum variance, > 0; default 0.1.
        most_variance: maximum variance, > least_variance; default 10.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    margin = 7.0

    def __init__(self, least_variance: float = 0.1, most_variance: float = 10.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 < least_variance < most_variance < math.inf:
            raise invalid_argument(
                "most_variance", most_variance, f"a finite number > least_variance = {least_variance} > 0"
            )
        self.keep_arguments(locals())

    def width(self, dim: int) -> int:
        return 2 * dim

    def call(self, specific: Tensor, general: Tensor) -> Tensor:
        mean, log_variance = self._density(specific)
        other_mean, other_log_variance = self._density(general)
        ratio = log_variance - other_log_variance
        away = ops.square(mean - other_mean) * ops.exp(-other_log_variance)
        return 0.5 * ops.sum(ops.exp(ratio) - 1.0 - ratio + away, axis=-1)

    def matrix(self, specific: Tensor, general: Tensor) -> Tensor:
        mean, log_variance = self._density(specific)
        other_mean, other_log_variance = self._density(general)
        precision = ops.exp(-other_log_variance)
        # One matrix product computes all terms that depend on both concepts.
        both = ops.matmul(
            ops.concatenate([ops.exp(log_variance) + ops.square(mean), mean], axis=-1),
            ops.transpose(ops.concatenate([precision, -2.0 * other_mean * precision], axis=-1)),
        )
        own = ops.sum(log_variance + 1.0, axis=-1, keepdims=True)
        others = ops.sum(other_log_variance + ops.square(other_mean) * precision, axis=-1)
        return 0.5 * ops.relu(both - own + others)

    def _density(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        mean, free = ops.split(rows, 2, axis=-1)
        low, high = math.log(self.least_variance), math.log(self.most_variance)
        return mean, low + (high - low) * ops.sigmoid(free)


COMPARISONS: dict[str, type[Comparison]] = {
    "order": OrderComparison,
    "cone": ConeComparison,
    "symmetric": SymmetricComparison,
    "bilinear": BilinearComparison,
    "gaussian": GaussianComparison,
}


@keras.saving.register_keras_serializable("vsemb")
class HypernymModel(Configured, ReplicatedModel):
    """A vector per concept, and energies of "is a kind of" for pairs (Vendrov et al. 2016, section 3).

    Args:
        concepts: number of concepts, >= 1.
        dim: dimensions of a concept's vector, >= 1; default 50.
        comparison: `"order"`, `"cone"`, `"symmetric"`, `"bilinear"`, `"gaussian"` or a `Comparison`; default `"order"`.
        scale: standard deviation of the initial vectors, > 0; default 0.1.
        seed: seed of the initial vectors; None for a random seed.
        **kwargs: arguments of `keras.Model`.

    Call args:
        pairs: (n, 2) int concept numbers, the specific concept first.
        training: whether a gradient will be computed.

    Returns:
        (n,) float32 energies >= 0, small for true pairs.

    Raises:
        InvalidArgumentError: for an argument out of range or an unknown comparison.

    Example: three concepts in a chain.

    >>> from vsemb.losses.max_margin import MaxMargin
    >>> model = HypernymModel(concepts=3, dim=2, seed=1)
    >>> model.compile("adam", loss=MaxMargin(model.comparison.margin))
    >>> pairs, labels = ops.array([[0, 1], [1, 2], [0, 2], [2, 0]]), ops.array([1, 1, 1, 0])
    >>> history = model.fit(pairs, labels, verbose=0)
    >>> model(pairs).shape
    TensorShape([4])
    """

    def __init__(
        self,
        concepts: Count,
        dim: Count = 50,
        comparison: str | Comparison = "order",
        *,
        scale: Positive = 0.1,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        if isinstance(comparison, str):
            if comparison not in COMPARISONS:
                raise unknown_name("comparison", comparison, COMPARISONS)
            comparison = COMPARISONS[comparison]()
        self.comparison = comparison
        self.vectors = self.add_weight(
            shape=(concepts, comparison.width(dim)),
            initializer=keras.initializers.RandomNormal(stddev=scale, seed=seed),
            name="vectors",
        )
        if not comparison.built:
            comparison.build(self.vectors.shape, self.vectors.shape)
        self.built = True

    def build(self, input_shape: Any = None) -> None:
        """Do nothing: the constructor creates all weights."""

    def call(self, pairs: Tensor, training: bool = False) -> Tensor:
        pairs, vectors = ops.cast(pairs, "int32"), self.vectors
        if training:
            # A concept that occurs twice in a batch has two rows in the gradient of `take`, and Keras' Adam adds
            # their squares in place of squaring their sum. The gradient of a product has one row per concept.
            vectors = ops.multiply(vectors, 1.0)
        return self.comparison(*(ops.take(vectors, pairs[:, end], axis=0) for end in (0, 1)))

    def energies_to_all(self, concepts: Tensor) -> Tensor:
        """Compute the energies of concepts with every concept as the general one.

        Args:
            concepts: (n,) int concept numbers.

        Returns:
            (n, concepts) float32; column j has concept j as the general one.
        """
        rows = ops.take(self.vectors, ops.cast(concepts, "int32"), axis=0)
        return self.comparison.matrix(rows, ops.convert_to_tensor(self.vectors))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return (input_shape[0],)
