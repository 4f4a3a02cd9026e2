"""Train a small image network on class labels only, like the ImageNet networks of the papers.

    python -m pipelines.class_backbone DATA --out backbone.weights.h5

Only the split `train` is read, so that classes of other splits remain unseen. The file is for `vsemb features DATA
--backbone SmallConvNet --weights backbone.weights.h5`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import tensorflow as tf

from pipelines.running import main_of, parser_of
from vsemb.data.sources import PixelImages
from vsemb.data.store import StoredDataset
from vsemb.image.backbones import BackboneConfig, build_backbone, save_backbone_weights
from vsemb.systems.zero_shot.class_batches import ClassBatches
from vsemb.systems.zero_shot.class_names import ClassTokenizer
from vsemb.text.vocabulary import Vocabulary


def train_class_backbone(dataset: StoredDataset, out: Path, *, epochs: int = 20, seed: int = 0) -> float:
    """Train `SmallConvNet` on the training classes and write its weights.

    Args:
        dataset: dataset with classes in the split `train`.
        out: file to write, with suffix `.weights.h5`.
        epochs: number of passes over the training images.
        seed: random seed of weights, batches and crops.

    Returns:
        The training accuracy of the last epoch, in [0, 1].

    Raises:
        DataError: if an image has no class.
    """
    keras.utils.set_random_seed(seed)
    config = BackboneConfig("SmallConvNet")
    split = dataset.split("train")
    names, classes = split.class_ids()
    images = PixelImages(split, config.size, augment=True)
    tokenizer = ClassTokenizer(Vocabulary(names))
    named = split.with_captions([[names[place]] for place in classes])
    batches = ClassBatches(named, images, tokenizer, batch_size=min(40, len(names)), seed=seed)
    backbone = build_backbone(config, seed=seed)
    model = keras.Sequential([backbone, keras.layers.Dropout(0.3), keras.layers.Dense(len(names))])
    schedule = keras.optimizers.schedules.CosineDecay(2e-3, epochs * batches.steps_per_epoch)
    model.compile(
        keras.optimizers.AdamW(schedule, weight_decay=1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, name="cross_entropy"),
        metrics=["accuracy"],
        jit_compile=False,
    )
    pairs = batches.dataset().map(_image_and_class)
    history = model.fit(pairs, epochs=epochs, verbose=2 if sys.stderr.isatty() else 0, shuffle=False)
    save_backbone_weights(backbone, out)
    return float(history.history["accuracy"][-1])


def _image_and_class(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    return batch["image"], batch["class_id"]


def main(argv: list[str] | None = None) -> int:
    """Run the pipeline and return the exit status."""
    parser = parser_of("class_backbone", __doc__)
    parser.add_argument("data", type=Path, metavar="DATA", help="a dataset whose images have classes")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="NAME.weights.h5 to write")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the images (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    arguments = parser.parse_args(argv)
    if not arguments.out.name.endswith(".weights.h5"):
        parser.error("--out: a name that ends in .weights.h5 is needed")

    def job() -> int:
        dataset = StoredDataset.open(arguments.data)
        accuracy = train_class_backbone(dataset, arguments.out, epochs=arguments.epochs, seed=arguments.seed)
        print(f"{arguments.out}: training accuracy {100 * accuracy:.1f} %")
        return 0

    return main_of("class_backbone", job, resumes=False)


if __name__ == "__main__":
    sys.exit(main())
