"""Draw the picture of the README from a quickstart: queries and the best test images.

python -m pipelines.picture [--quickstart quickstart] [--out docs/pictures/search.png]
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

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


def rows_of(run: Run, dataset: StoredDataset, split: Split) -> list[tuple[str, int | None, np.ndarray]]:
    """Return (label, query image or None, rows of the best images) per line of the picture."""
    embedder = Embedder(run.model)
    images = embedder.images(run.images_of(dataset, split), len(split))
    texts = embedder.texts(*run.tokenizer.encode([*QUERIES, "blue", "red"]))
    lines: list[tuple[str, int | None, np.ndarray]] = [
        (query, None, np.argsort(-images @ text)[:BEST]) for query, text in zip(QUERIES, texts, strict=False)
    ]
    single = [row for row, objects in enumerate(split.objects) if len(objects) == 1]
    start = next(row for row in single if (split.class_names[row] or "").startswith("blue"))
    moved = images[start] - texts[-2] + texts[-1]
    order = [row for row in np.argsort(-images @ moved) if row != start]
    return [*lines, ("this image - blue + red", start, np.array(order[:BEST]))]


def draw(split: Split, lines: list[tuple[str, int | None, np.ndarray]]) -> Image.Image:
    """Draw the lines of the picture."""
    width = TEXT + BEST * (SIDE + GAP) + GAP
    picture = Image.new("RGB", (width, len(lines) * (SIDE + GAP) + GAP), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=18)
    for number, (label, query, rows) in enumerate(lines):
        top = GAP + number * (SIDE + GAP)
        if query is not None:
            picture.paste(_image(split, query, SIDE // 2), (GAP, top + SIDE // 4))
        left = GAP if query is None else 2 * GAP + SIDE // 2
        pen.text((left, top + SIDE // 2), label, fill="black", font=font, anchor="lm")
        for place, row in enumerate(rows):
            picture.paste(_image(split, int(row), SIDE), (TEXT + place * (SIDE + GAP), top))
    return picture


def _image(split: Split, row: int, side: int) -> Image.Image:
    return Image.open(io.BytesIO(split.read_image(row))).convert("RGB").resize((side, side), Image.Resampling.LANCZOS)


def main() -> None:
    """Draw the picture."""
    parser = parser_of("picture", __doc__)
    parser.add_argument("--quickstart", type=Path, default=Path("quickstart"))
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/search.png"))
    arguments = parser.parse_args()
    run, dataset = Run.open(arguments.quickstart / "run"), StoredDataset.open(arguments.quickstart / "scenes")
    split = dataset.split("test")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    draw(split, rows_of(run, dataset, split)).save(arguments.out, optimize=True)
    print(arguments.out)


if __name__ == "__main__":
    main()
