"""Analysis `root-distances` of `vsemb.analyze`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vsemb.errors import invalid_argument
from vsemb.parts import PathName
from vsemb.printing import table
from vsemb.results import Table
from vsemb.runs.analyses import Analysis

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run

_SHARES = {
    "nearer": "texts nearer to the root than their image",
    "in_own": "texts whose cone contains their image",
    "in_other": "texts whose cone contains the next image",
}
_ANGLES = {
    "outside_own": "of a text's image outside its cone",
    "outside_other": "of the next image outside the cone",
}


@dataclass(frozen=True)
class RootDistances(Analysis, kind="root-distances"):
    """Measure distances of images and texts to the root, and where images lie in the cones of texts.

    The run must have the similarity lorentz, such as one of the recipe meru. The image of a text is compared with
    another image, the next one of the split.

    Attributes:
        out: histograms of the distances, as .png or .jpg.
    """

    out: PathName | None = None

    def analyze(self, runs: Sequence[Run], data: StoredDataset, split: str) -> Table:
        import numpy as np

        from vsemb.drawing.pictures import check_picture_path, save_picture
        from vsemb.runs.measure import embedded
        from vsemb.systems.hyperbolic.distances import measure_distances
        from vsemb.systems.hyperbolic.drawing import draw_histograms
        from vsemb.systems.hyperbolic.traversal import cone_radius

        if len(runs) > 1:
            raise invalid_argument("runs", [str(run.path) for run in runs], "one run for root-distances")
        radius = cone_radius(runs[0])
        if self.out is not None:
            check_picture_path(self.out)
        measured = measure_distances(*embedded(runs[0], data, split), radius)
        of_texts = measured.of_texts()
        kinds = {"images": measured.images, "texts": measured.texts}
        summary = {
            name: {"count": len(values), "mean": float(values.mean()), "deviation": float(values.std())}
            | {f"p{share}": float(np.percentile(values, share)) for share in (5, 50, 95)}
            for name, values in kinds.items()
        }
        header = ["distance to the root", *next(iter(summary.values()))]
        rows = [
            [name, f"{values['count']:,}", *(f"{value:.3f}" for value in list(values.values())[1:])]
            for name, values in summary.items()
        ]
        blocks = [
            table(header, rows),
            table(["share", "%"], [[title, f"{100 * of_texts[key]:.1f}"] for key, title in _SHARES.items()]),
            table(["mean angle", "degrees"], [[title, f"{of_texts[key]:.1f}"] for key, title in _ANGLES.items()]),
        ]
        if self.out is not None:
            save_picture(draw_histograms(kinds), self.out)
            blocks.append(str(self.out))
        return Table("\n\n".join(blocks), {"split": split, **summary, **of_texts})
