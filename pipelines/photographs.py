"""Draw the photographs of scikit-image that a run finds for some queries.

python -m pipelines.photographs RUN [--out docs/pictures/photographs.png]   # pip install scikit-image

All photographs are in the public domain, or their authors have waived their rights (CC0); their sources are in
`skimage.data`.
"""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path

from PIL import Image

import vsemb
from pipelines.picture import BEST, Line, draw
from pipelines.running import main_of, parser_of
from vsemb.errors import VsembError

FILES = (
    "astronaut.png",
    "brick.png",
    "camera.png",
    "chelsea.png",
    "clock_motion.png",
    "coffee.png",
    "grass.png",
    "gravel.png",
    "hubble_deep_field.jpg",
    "moon.png",
    "retina.jpg",
    "rocket.jpg",
    "text.png",
)
QUERIES = (
    "a woman in an orange uniform",
    "a man with a camera",
    "a brown cat",
    "a rocket in the sky",
    "a brick wall",
)


def lines_of(run: Path) -> list[Line]:
    """Return the lines of the picture.

    Raises:
        VsembError: if scikit-image is not installed, or the run does not embed images and texts.
    """
    package = util.find_spec("skimage")
    if package is None or package.origin is None:
        raise VsembError("scikit-image must be installed: pip install scikit-image")
    files = [str(Path(package.origin).parent / "data" / name) for name in FILES]
    model = vsemb.load(run)
    images = model.encode_images(files)
    found = [(query, vsemb.search(model, query, images, k=BEST, items=files)) for query in QUERIES]
    return [Line(query, [Image.open(hit.item).convert("RGB") for hit in hits]) for query, hits in found]


def main() -> int:
    """Draw the picture."""
    parser = parser_of("photographs", __doc__)
    parser.add_argument("run", type=Path, help="run, SavedModel or other model that vsemb.load opens")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/photographs.png"))
    arguments = parser.parse_args()

    def job() -> int:
        picture = draw(lines_of(arguments.run))
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        picture.save(arguments.out, optimize=True)
        print(arguments.out)
        return 0

    return main_of("photographs", job, resumes=False)


if __name__ == "__main__":
    sys.exit(main())
