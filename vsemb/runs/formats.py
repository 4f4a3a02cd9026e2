"""Formats of `vsemb.export`, as parts with their options as fields."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vsemb.errors import invalid_argument, needs_extra
from vsemb.parts import Part

if TYPE_CHECKING:
    from vsemb.exporting import Figures
    from vsemb.exporting.formats.writing import Conversion
    from vsemb.results import Result
    from vsemb.runs.run import Run


@dataclass(frozen=True)
class ExportFormat(Part, family="export format"):
    """A format that a run is exported to, besides the SavedModel.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.
    """

    def require_library(self) -> None:
        """Check that the libraries of the format are installed.

        Raises:
            MissingExtraError: if they are not.
        """

    def write(
        self, run: Run, out: str | os.PathLike[str], tower: str | None = None, measured: Sequence[Figures] = ()
    ) -> Result:
        """Write a run.

        Args:
            run: the run.
            out: what is written; it must not exist.
            tower: name of the only tower to write; None for all.
            measured: figures for the model card, see `vsemb.runs.measure.figures`.

        Raises:
            InvalidArgumentError: for a run that the format cannot hold.
            DataError: if it cannot be written; then nothing is.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class TowerFormat(ExportFormat):
    """Base of the formats of towers, functions of numbers."""

    @property
    def conversion(self) -> Conversion:
        """The conversion of a tower to a file."""
        raise NotImplementedError

    def write(
        self, run: Run, out: str | os.PathLike[str], tower: str | None = None, measured: Sequence[Figures] = ()
    ) -> Result:
        from vsemb.runs.towers import write_towers

        return write_towers(run, out, self.label, self.conversion, tower, measured)


@dataclass(frozen=True)
class Onnx(TowerFormat, kind="onnx"):
    """ONNX, for ONNX Runtime on servers, in browsers and on phones."""

    def require_library(self) -> None:
        from vsemb.exporting.formats import onnx

        onnx.require_library()

    @property
    def conversion(self) -> Conversion:
        from vsemb.exporting.formats import onnx
        from vsemb.exporting.formats.writing import Conversion

        return Conversion("ONNX", ".onnx", onnx.convert)


@dataclass(frozen=True)
class LiteRT(TowerFormat, kind="litert"):
    """LiteRT (TensorFlow Lite), for phones and small devices."""

    #: Whether weights are int8.
    int8: ClassVar[bool] = False

    def require_library(self) -> None:
        from vsemb.exporting.formats import litert

        litert.require_library()

    @property
    def conversion(self) -> Conversion:
        from functools import partial

        from vsemb.exporting.formats import litert
        from vsemb.exporting.formats.writing import TOLERANCE, Conversion

        limits = ["A call takes one row, and a text is padded to the maximum number of tokens."]
        if self.int8:
            limits.append("Weights are stored as int8; `difference` in model.json is that of embeddings from float32.")
        convert = partial(litert.convert, int8=self.int8)
        tolerance = INT8_TOLERANCE if self.int8 else TOLERANCE
        return Conversion("LiteRT", ".tflite", convert, True, tolerance, tuple(limits))


@dataclass(frozen=True)
class LiteRTInt8(LiteRT, kind="litert-int8"):
    """LiteRT with weights of eight bits, a quarter of the size."""

    int8 = True


#: Rounded weights change an entry of a unit vector by hundredths; a wrong graph by tenths.
INT8_TOLERANCE = 0.2


@dataclass(frozen=True)
class Safetensors(ExportFormat, kind="safetensors"):
    """Weights of the model alone, as a file of safetensors; `vsemb.weights.load_safetensors` reads it."""

    def require_library(self) -> None:
        with needs_extra("safetensors", "hf"):
            import safetensors  # noqa: F401

    def write(
        self, run: Run, out: str | os.PathLike[str], tower: str | None = None, measured: Sequence[Figures] = ()
    ) -> Result:
        from vsemb.runs.towers import write_weights

        if tower is not None:
            raise invalid_argument("tower", tower, "omitted for format=safetensors, a file of all weights")
        return write_weights(run, out)
