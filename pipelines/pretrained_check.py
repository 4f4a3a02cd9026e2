"""Compare the recall of pretrained models with published figures: download, evaluate, compare.

    python -m pipelines.pretrained_check --data data/flickr30k
    python -m pipelines.pretrained_check --data data/flickr30k --models hub:clip_vit_base_patch32

Prepare the 1,000 test images of Flickr30k first (`vsemb prepare`, Karpathy's split). The exit status is 1 if a recall
differs by more than a point. OpenCLIP measured the figures (docs/openclip_retrieval_results.csv of
https://github.com/mlfoundations/open_clip, read in November 2026). Each model is downloaded once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import vsemb
from pipelines.running import main_of, parser_of
from vsemb.errors import unknown_name
from vsemb.printing import table

RECALLS = ("R@1", "R@5", "R@10")
#: Model -> quoted recall at 1, 5 and 10 in percent on Flickr30k: from image to text, from text to image.
QUOTED: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "hub:clip_vit_base_patch32": ((78.9, 94.9, 98.2), (58.78, 83.56, 90.02)),
    "hf://openai/clip-vit-base-patch32": ((78.9, 94.9, 98.2), (58.78, 83.56, 90.02)),
    "hf://openai/clip-vit-base-patch16": ((82.2, 96.6, 99.0), (62.16, 85.72, 91.92)),
    "hf://facebook/metaclip-b32-fullcc2.5b": ((80.8, 95.3, 97.3), (65.1, 87.66, 92.74)),
    "hf://google/siglip-base-patch16-224": ((89.1, 98.0, 99.3), (74.68, 92.3, 95.62)),
    "hf://google/siglip-base-patch16-384": ((92.7, 99.1, 99.8), (78.48, 94.16, 97.08)),
}
#: Largest difference that is accepted, in points: image decoders and rounding differ.
TOLERANCE = 1.0


def compared(data: str, model: str, split: str) -> tuple[list[list[str]], float]:
    """Evaluate a model, and compare it with its quoted figures.

    Args:
        data: the dataset.
        model: name in `QUOTED`.
        split: split to evaluate.

    Returns:
        Rows for a table, and the largest absolute difference in points.

    Raises:
        DataError: if the model or the data cannot be opened.
    """
    rows, largest = [], 0.0
    metrics = vsemb.evaluate(model, data, split)
    directions = ("image to text", metrics.image_to_text), ("text to image", metrics.text_to_image)
    for (direction, found), wanted in zip(directions, QUOTED[model], strict=True):
        differences = [found[name] - value for name, value in zip(RECALLS, wanted, strict=True)]
        largest = max(largest, *map(abs, differences))
        numbers = zip(RECALLS, differences, strict=True)
        rows.append([direction, *(f"{found[name]:.1f} ({difference:+.1f})" for name, difference in numbers)])
    return rows, largest


def run(arguments: argparse.Namespace) -> int:
    """Compare and print each model as it is measured; return 1 if a recall differs by more than `TOLERANCE`."""
    for model in arguments.models:
        if model not in QUOTED:
            raise unknown_name("model", model, QUOTED)
    largest = 0.0
    for model in arguments.models:
        rows, difference = compared(arguments.data, model, arguments.split)
        print(table([model, *(f"{name} (difference)" for name in RECALLS)], rows), end="\n\n", flush=True)
        largest = max(largest, difference)
    verdict = "equal to" if largest <= TOLERANCE else "NOT equal to"
    print(f"{verdict} the quoted figures: the largest difference is {largest:.1f} points, {TOLERANCE:.0f} is allowed")
    return int(largest > TOLERANCE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; return the exit status."""
    parser = parser_of("pretrained_check", __doc__)
    parser.add_argument("--data", required=True, help="dataset of Flickr30k, made by `vsemb prepare`")
    parser.add_argument("--split", default="test", help="split to evaluate; default: test")
    parser.add_argument("--models", nargs="+", default=list(QUOTED), metavar="NAME", help="default: all with figures")
    arguments = parser.parse_args(argv)
    return main_of("pretrained_check", lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
