"""The recipe: everything that decides a training run, frozen and JSON-able."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from vsemb.errors import DataError, VsembError, invalid_argument, unknown_name
from vsemb.recipes.plain import Given, from_plain, paths
from vsemb.recipes.ranges import check_ranges
from vsemb.recipes.towers import ImageConfig, TextConfig

__all__ = [
    "PRECISIONS",
    "TASKS",
    "BatchConfig",
    "CaptionConfig",
    "ImageConfig",
    "LossConfig",
    "OptimizerConfig",
    "Recipe",
    "TextConfig",
    "TrainingConfig",
]

TASKS = ("retrieval", "entailment", "captions", "language")
PRECISIONS = ("auto", "float32", "mixed_bfloat16")


@dataclass(frozen=True)
class CaptionConfig:
    """What writes captions, of the tasks `captions` and `language`.

    Attributes:
        decoder: of the task `captions` the network's cell, `rnn` (equation 14 of Karpathy & Fei-Fei), `gru`
            or `lstm`; of the task `language` the model, `log-bilinear`, `multiplicative` or `sc-nlm` (Kiros
            et al.).
        units: size of the recurrent state.
        image_steps: at which steps the cell sees the image: `first`, or `all`.
        heads: attention heads by which the state looks at the places of the image's map at every word, see
            `vsemb.models.AttentiveRNN`; 0 for none. They want a backbone trained from pixels, pooled `flat`.
        dropout: share of the state's entries dropped in front of the softmax in training.
        frequency_bias: whether the softmax' bias starts at the logarithm of the words' frequencies.
        init_scale: recurrent weights uniform in +- this; null for Keras' defaults.
        affinity: of `multimodal-rnn-regions`: what two neighbouring words on one region are worth when
            captions are cut into snippets; null chooses it by the scores of the alignment.
        context: words looked back at by the language models.
        structure: of `sc-nlm`, parts of speech looked ahead at beside the word's own.
        factors: of the tensor of `multiplicative` and `sc-nlm`.
        beam: hypotheses kept while a caption is searched for; 1 takes the likeliest word each time.
        length_penalty: log-probabilities are divided by the number of words to this power before
            hypotheses of different lengths are compared; 0 compares them as they are.
        max_words: longest caption that is written.
        candidates: of `sc-nlm` and `multiplicative`, captions written for an image before the best are
            chosen.
        neighbours: of the same, nearest words and sentences whose mean a caption may start from.
        stopwords: of the same, words that may be repeated without penalty: `nltk` for the list of NLTK's
            corpus, or the path of a file with one word a line.
    """

    decoder: str = "lstm"
    units: int = 512
    image_steps: str = "first"
    heads: int = 0
    dropout: float = 0.0
    frequency_bias: bool = True
    init_scale: float | None = None
    affinity: float | None = None
    context: int = 5
    structure: int = 3
    factors: int = 100
    beam: int = 7
    length_penalty: float = 0.0
    max_words: int = 20
    candidates: int = 1000
    neighbours: int = 5
    stopwords: str = "nltk"


@dataclass(frozen=True)
class LossConfig:
    """The loss.

    Attributes:
        name: `ranking`, `infonce`, `sigmoid` or `structured` (over classes); `max-margin` for entailment.
            Models that write captions have the cross entropy of the next word, and read none of these fields
            but l2.
        margin: of `ranking`, `structured` and `max-margin`.
        negatives: `all` or `hardest`, of `ranking` and `structured`.
        warmup_epochs: epochs before `hardest` is fully on.
        infonce_weight: with `ranking`, weight of InfoNCE beside it, at a fixed temperature.
        temperature: of `infonce` and `sigmoid`; the start value where it is learned.
        learn_temperature: whether it is learned, and `bias` with it.
        bias: of `sigmoid`: added to the scores over the temperature; the start value where it is learned.
        label_smoothing: of `infonce`.
        image_weight: weight of the direction whose queries are images.
        text_weight: weight of the direction whose queries are texts.
        block_size: queries whose scores are in memory at a time; null for all. With `sigmoid` and several
            devices, the candidates of one device at a time are, too. The loss stays the same.
        reduction: over queries or pairs, `sum` or `mean`; null for the loss' own.
        l2: this much times half the sum of squares of all trained matrices is added, word vectors left out.
    """

    name: str = "ranking"
    margin: float = 0.2
    negatives: str = "all"
    warmup_epochs: float = 0.0
    infonce_weight: float = 0.0
    temperature: float = 0.07
    learn_temperature: bool = True
    bias: float = -10.0
    label_smoothing: float = 0.0
    image_weight: float = 1.0
    text_weight: float = 1.0
    block_size: int | None = None
    reduction: str | None = None
    l2: float = 0.0


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its schedule.

    Attributes:
        name: `sgd`, `adam`, `adamw` or `rmsprop`.
        learning_rate: at its highest.
        schedule: `constant`; `exponential` (times `decay_rate` every `decay_epochs`, smoothly);
            `step` (the same, at once); `cosine` (to zero at the last step).
        decay_rate: see `schedule`.
        decay_epochs: see `schedule`.
        decay_steps: steps in the place of `decay_epochs`; null for those.
        warmup_epochs: linear rise from zero, for `cosine`.
        weight_decay: of `adamw`.
        lazy: of `adam` and `adamw`: whether vectors of words that a batch does not have stay as they are, so
            that the time of a step does not grow with the vocabulary; see `vsemb.training.Adam`.
        momentum: of `sgd`.
        momentum_start: of `sgd`: what momentum rises from, to `momentum`; null: it is constant.
        momentum_steps: steps after which the rise is 63 % done, see `vsemb.training.RisingMomentumSGD`.
        clip: gradients are scaled to this global norm at most; null for none.
        clip_value: each entry of a gradient is cut to +- this; null for not.
        ema: decay of an exponential moving average of the weights, which is then what is measured
            and kept; null for none.
    """

    name: str = "adam"
    learning_rate: float = 2e-4
    schedule: str = "constant"
    decay_rate: float = 0.1
    decay_epochs: float = 15.0
    decay_steps: int | None = None
    warmup_epochs: float = 0.0
    weight_decay: float = 0.0
    lazy: bool = False
    momentum: float = 0.0
    momentum_start: float | None = None
    momentum_steps: float = 2500.0
    clip: float | None = None
    clip_value: float | None = None
    ema: float | None = None


@dataclass(frozen=True)
class BatchConfig:
    """The batches.

    Attributes:
        size: pairs a batch.
        sampling: `pairs`; or `classes`: one image of each of `size` classes, with one of its captions.
        captions: `all` captions of an image an epoch, or `one` drawn anew; `classes` always draws one.
        captions_per_image: how many captions of a training image are used at all, the first ones; null
            for all.
        negatives: `batch`, or `sampled` from the whole training set each epoch.
    """

    size: int = 128
    sampling: str = "pairs"
    captions: str = "all"
    captions_per_image: int | None = None
    negatives: str = "batch"


@dataclass(frozen=True)
class TrainingConfig:
    """The training loop.

    Attributes:
        epochs: passes over the training pairs, at most.
        select: what the epoch that is kept is best at on validation: `recall` (the recall sum) or
            `zero-shot` (mean of top-1 accuracy and AP@50 over classes not trained on). For entailment it
            is accuracy, and for captions and language models `perplexity`, or `cider` of captions.
        patience: epochs without a better value of that before training ends; null: none.
        seed: of everything random.
        start: `random`, or `cca` for word vectors and an image map that canonical correlation makes
            agree from the start (`vsemb.training.cca`).
        precision: `float32`, `mixed_bfloat16`, or `auto`: training is in `mixed_bfloat16` where the processor
            multiplies that faster, and everything after it in `float32`, see `vsemb.recipes.precision`.
        chunk_size: rows of a batch that are embedded at a time, for batches whose activations do not fit into
            memory; null for all. The gradients stay the same, a step takes about half as long again, and
            word vectors are trained as with `text.dense_gradient`.
    """

    epochs: int = 30
    select: str = "recall"
    patience: int | None = None
    seed: int = 0
    start: str = "random"
    precision: str = "float32"
    chunk_size: int | None = None

    @property
    def dtype(self) -> str:
        """The precision that a model is built in: of `auto`, that of everything but training."""
        return "float32" if self.precision == "auto" else self.precision


@dataclass(frozen=True)
class Recipe:
    """A named configuration of a model and its training.

    Attributes:
        name: the recipe's name.
        variant: which variant of the recipe this is.
        paper: what it reproduces.
        task: `retrieval` (a dual encoder of images and texts), `entailment` (of pairs of sentences),
            `captions` (a network that writes them, given an image) or `language` (language models, trained
            on text alone).
        embedding_dim: size of the shared space.
        similarity: `cosine`, `dot` or `order`; or of sets of regions and words, `region-word`,
            `region-word-all`, `late-interaction`, `cross-attention` or `cross-attention-image`.
        reversed: with `order`, images above texts instead of texts above images.
        twin: whether each encoder has a column of two layers behind it, of `embedding_dim`, in place of its
            own map to the shared space, see `vsemb.encoders.TwinColumn`. `average`, `bow`, `attributes` and
            `cnn` with its kin, which are no encoders without their map, keep it before the column.
        twin_activate_first: whether a leaky ReLU follows the column's first layer too.

    Raises:
        InvalidArgumentError: for a number outside its range, see `vsemb.recipes.ranges`.

    Example:

    >>> Recipe(name="mine").with_overrides(["text.units=512"]).text.units
    512
    """

    name: str
    variant: str = "default"
    paper: str = ""
    task: str = "retrieval"
    embedding_dim: int = 1024
    similarity: str = "cosine"
    reversed: bool = False
    twin: bool = False
    twin_activate_first: bool = True
    text: TextConfig = field(default_factory=TextConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    caption: CaptionConfig = field(default_factory=CaptionConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    batches: BatchConfig = field(default_factory=BatchConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise unknown_name("task", self.task, TASKS)
        check_ranges(self)

    def to_json(self) -> dict[str, Any]:
        """Returns the recipe as nested plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Recipe:
        """Rebuilds a recipe; unknown fields are errors.

        Raises:
            DataError: if a field is missing, unknown, of the wrong type or outside its range.
        """
        try:
            return from_plain(cls, value, "")
        except VsembError as error:
            raise DataError(f"The recipe is not one of this version: {error}") from error

    def with_overrides(self, assignments: list[str]) -> Recipe:
        """Returns the recipe with fields replaced.

        Args:
            assignments: `path.to.field=value`; the value is JSON, or a plain string.

        Raises:
            InvalidArgumentError: for a field that does not exist (the nearest is suggested) or a
                value of another type or outside its range.
        """
        plain = self.to_json()
        for assignment in assignments:
            path, equals, text = assignment.partition("=")
            if not equals:
                raise invalid_argument("set", assignment, "path.to.field=value")
            *parents, leaf = path.strip().split(".")
            if path.strip() in _FIXED:
                raise invalid_argument("set", assignment, "another field", "Choose a variant with --variant.")
            node = plain
            for depth, name in enumerate([*parents, leaf]):
                if not isinstance(node, dict) or name not in node:
                    raise unknown_name("set", path, [name for name in paths(plain) if name not in _FIXED])
                if depth < len(parents):
                    node = node[name]
            if isinstance(node[leaf], dict):
                raise invalid_argument("set", path, f"one of {', '.join(paths(node[leaf], path + '.'))}")
            node[leaf] = Given(text.strip())
        return from_plain(Recipe, plain, "")


# What a recipe is called follows from where it stands, not from its fields.
_FIXED = ("name", "variant", "paper", "task")
