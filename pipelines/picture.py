"""Draw the picture of the README from a quickstart: queries and the best test images.

python -m pipelines.picture [--quickstart quickstart] [--out docs/pictures/search.png]
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from pipelines.running import parser_of
from vsemb.data.store import Split, StoredDataset
from vsemb.evaluation import Embedder
from vsemb.runs.run import Run

QUERIES = (
    "a large blue shape on a black background",
    "two yellow shapes",
    "a red shape in the top left corner",
)
BEST, SIDE, GAP, TEXT = 4, 112, 10, 390


class Line(NamedTuple):
    """A line of a picture.

    Attributes:
        label: the query.
        best: the images that it finds, best first.
        image: the image of the query; None for a text.
    """

    label: str
    best: list[Image.Image]
    image: Image.Image | None = None


def lines_of(run: Run, dataset: StoredDataset, split: Split) -> list[Line]:
    """Return the lines of the picture of the README."""
    embedder = Embedder(run.model)
    images = embedder.images(run.images_of(dataset, split), len(split))
    texts = embedder.texts(*run.tokenizer.encode([*QUERIES, "blue", "red"]))

    def best(order: np.ndarray) -> list[Image.Image]:
        return [_image(split, int(row)) for row in order[:BEST]]

    lines = [Line(query, best(np.argsort(-images @ text))) for query, text in zip(QUERIES, texts, strict=False)]
    single = [row for row, objects in enumerate(split.objects) if len(objects) == 1]
    start = next(row for row in single if (split.class_names[row] or "").startswith("blue"))
    moved = images[start] - texts[-2] + texts[-1]
    order = np.array([row for row in np.argsort(-images @ moved) if row != start])
    return [*lines, Line("this image - blue + red", best(order), _image(split, start))]


def draw(lines: Sequence[Line]) -> Image.Image:
    """Draw the lines of a picture."""
    width = TEXT + BEST * (SIDE + GAP) + GAP
    picture = Image.new("RGB", (width, len(lines) * (SIDE + GAP) + GAP), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=18)
    for number, line in enumerate(lines):
        top = GAP + number * (SIDE + GAP)
        if line.image is not None:
            picture.paste(_square(line.image, SIDE // 2), (GAP, top + SIDE // 4))
        left = GAP if line.image is None else 2 * GAP + SIDE // 2
        pen.text((left, top + SIDE // 2), line.label, fill="black", font=font, anchor="lm")
        for place, image in enumerate(line.best):
            picture.paste(_square(image, SIDE), (TEXT + place * (SIDE + GAP), top))
    return picture


def _square(image: Image.Image, side: int) -> Image.Image:
    return ImageOps.pad(image, (side, side), Image.Resampling.LANCZOS, color="white")


def _image(split: Split, row: int) -> Image.Image:
    return Image.open(io.BytesIO(split.read_image(row))).convert("RGB")


def main() -> None:
    """Draw the picture."""
    parser = parser_of("picture", __doc__)
    parser.add_argument("--quickstart", type=Path, default=Path("quickstart"))
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/search.png"))
    arguments = parser.parse_args()
    run, dataset = Run.open(arguments.quickstart / "run"), StoredDataset.open(arguments.quickstart / "scenes")
    split = dataset.split("test")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    draw(lines_of(run, dataset, split)).save(arguments.out, optimize=True)
    print(arguments.out)


if __name__ == "__main__":
    main()
