"""What the margin losses over rows share: which negatives count, and the way from all to the hardest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from keras import ops

from vsemb.losses.in_batch import InBatchLoss, Tensor
from vsemb.parts import NonNegative, Part, at_least

Which = Literal["all", "hardest"]


class HingeLoss(InBatchLoss):
    """Base of the losses that want a margin between a query's own pair and its negatives.

    A subclass computes a row's loss over all negatives and over the hardest one; `choose` takes one of
    them or, in a warm-up, both.

    Args:
        margin: the margin, in units of the score, >= 0.
        negatives: `"all"` or `"hardest"`.
        warmup_steps: optimizer steps before `"hardest"` is fully on; 0 starts with it. Its weight rises
            linearly from 0 to 1 over the second half of the warm-up, and all negatives have the rest.
        reduction: over queries.
        name: name of the loss.

    Raises:
        InvalidArgumentError: for a negative margin or warm-up, or unknown `negatives`.
    """

    def __init__(
        self,
        margin: NonNegative,
        negatives: Which,
        warmup_steps: Annotated[int, at_least(0)],
        *,
        reduction: str | None,
        name: str | None,
    ) -> None:
        super().__init__(reduction=reduction, name=name)
        self.keep_arguments(locals())

    def choose(self, over_all: Callable[[], Tensor], hardest: Callable[[], Tensor]) -> Tensor:
        """Returns each query's loss, (queries,), from one or both of two ways to compute it.

        Args:
            over_all: the loss over all negatives.
            hardest: the loss over the hardest one.
        """
        if self.negatives == "all":
            return over_all()
        if self.warmup_steps == 0 or self.step is None:
            return hardest()
        weight = hardest_weight(self.step, self.warmup_steps)
        return weight * hardest() + (1.0 - weight) * over_all()


def hardest_weight(step: Tensor, warmup_steps: int) -> Tensor:
    """Returns the weight of the hardest negative after `step` optimizer steps of a warm-up, in [0, 1]."""
    return ops.clip(2.0 * ops.cast(step, "float32") / max(warmup_steps, 1) - 1.0, 0.0, 1.0)


@dataclass(frozen=True)
class Negatives(Part, family="negatives"):
    """Which negatives of a query count; base of the family `negatives`.

    Class attributes:
        name: argument `negatives` of `HingeLoss`.
    """

    name: ClassVar[Which]

    def warmup_steps(self, steps_per_epoch: int) -> int:
        """Returns argument `warmup_steps` of `HingeLoss`."""
        del steps_per_epoch
        return 0


@dataclass(frozen=True)
class All(Negatives, kind="all"):
    """All negatives of the batch, added up."""

    name: ClassVar[Which] = "all"


@dataclass(frozen=True)
class Hardest(Negatives, kind="hardest"):
    """The hardest negative of the batch (VSE++).

    Attributes:
        warmup_epochs: epochs in which the sum over all negatives passes into the hardest one.
    """

    name: ClassVar[Which] = "hardest"

    warmup_epochs: NonNegative = 0.0

    def warmup_steps(self, steps_per_epoch: int) -> int:
        return round(self.warmup_epochs * steps_per_epoch)
