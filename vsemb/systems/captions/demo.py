"""What the demonstration of a run that writes captions computes: captions of dropped and stored images."""

from __future__ import annotations

from vsemb.data.store import Dataset
from vsemb.demo.images import ShownImages
from vsemb.errors import DataError
from vsemb.runs.indexing import ALL, split_names
from vsemb.systems.captions.caption_writer import CaptioningRun, CaptionWriter, Written
from vsemb.systems.captions.captioning import CaptionOptions, captioner_of


class CaptionDemo(ShownImages):
    """A run that writes captions of images, opened once and asked often.

    An image is given as bytes, of any format that a dataset takes, or as the key of one of the dataset's.

    Args:
        run: the run.
        dataset: whose images are offered.
        split: its split, or `all`.
        options: how captions are looked for.

    Raises:
        VsembError: if run and dataset do not fit, or the split is not there.

    Example:

        demo = CaptionDemo(open_captioning_run("runs/captions"), Dataset.open("data/flickr8k"), "val")
        text, log_prob = demo.captions(demo.items[0].key)[0]
    """

    def __init__(
        self, run: CaptioningRun, dataset: Dataset, split: str = ALL, options: CaptionOptions | None = None
    ) -> None:
        super().__init__(dataset, split_names(dataset, split))
        self.run = run
        self._writer = CaptionWriter(run, captioner_of(run, options or CaptionOptions()))

    def captions(self, image: bytes | str) -> tuple[Written, ...]:
        """Writes captions of an image, best first.

        Args:
            image: its bytes or key.

        Raises:
            InvalidArgumentError: for an unknown key.
            DataError: if it cannot be decoded.
        """
        return captions_of(self._writer, self, image)


def captions_of(writer: CaptionWriter, images: ShownImages, image: bytes | str) -> tuple[Written, ...]:
    """Writes captions of bytes, or of the image with a key; see `CaptionDemo.captions`."""
    if isinstance(image, str):
        return tuple(writer.of_split_row(images.dataset, *images.place(images.place_of(image))))
    (found,) = writer.of_bytes([images.as_stored(image)])
    if found is None:
        raise DataError("The image does not decode as JPEG or PNG.")
    return tuple(found)
