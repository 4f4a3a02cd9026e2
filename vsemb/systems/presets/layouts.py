"""Layouts of checkpoints: names of files, settings and tensors, in terms of the transformers library.

    library         settings                                  weights
    transformers    config.json, preprocessor_config.json     model.safetensors
    open_clip       open_clip_config.json                     open_clip_model.safetensors

The files of the tokenizer have the same names in both. open_clip's layout is `vsemb.systems.presets.open_clip`.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from vsemb.files import read_json

#: Files with the preprocessing of pixels in the transformers library, the newer one first.
PROCESSORS = ("processor_config.json", "preprocessor_config.json")
#: Field of an image processor with the field `even_offset` of `vsemb.image.resizing.Resizing`.
EVEN_OFFSET = "even_offset"


class Place(NamedTuple):
    """Where a tensor is.

    Attributes:
        names: tensors of the file whose rows, one below the other, are the tensor.
        third: the third of these rows that is the tensor, 0 to 2; None for all rows.
        transposed: whether rows and columns are exchanged.
    """

    names: tuple[str, ...]
    third: int | None = None
    transposed: bool = False


@dataclass(frozen=True)
class Layout(ABC):
    """A layout with the settings that a directory has in it.

    Attributes:
        config: the settings, with the names of a `config.json` of the transformers library.

    Class attributes:
        config_file: file of the settings.
        weights_file: file of the weights.
        files: files of settings.
    """

    config: dict[str, Any]

    config_file: ClassVar[str]
    weights_file: ClassVar[str]
    files: ClassVar[Sequence[str]]

    @classmethod
    @abstractmethod
    def open(cls, directory: Path, source: str) -> Self | None:
        """Read the settings of a directory; None for a directory without them.

        Args:
            directory: the directory.
            source: its name in errors.

        Raises:
            DataError: for malformed settings.
        """

    @classmethod
    def index_file(cls) -> str:
        """Return the name of the file that says which of several files has a tensor."""
        return f"{cls.weights_file}.index.json"

    @classmethod
    def has_weights(cls, directory: Path) -> bool:
        """Return whether a directory has weights with the names of this layout."""
        return any((directory / name).is_file() for name in (cls.weights_file, cls.index_file()))

    @abstractmethod
    def place(self, name: str) -> Place:
        """Return where the tensor is that the transformers library calls `name`."""

    @abstractmethod
    def write_processor(self, directory: Path, folder: Path) -> bool:
        """Write the image processor into `folder`, and return whether the directory has one."""

    def tokenizer(self, described: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration of a tokenizer for `PresetText`, from the one for the transformers library."""
        return described


@dataclass(frozen=True)
class TransformersLayout(Layout):
    """Files that `save_pretrained` of the transformers library wrote."""

    config_file = "config.json"
    weights_file = "model.safetensors"
    files = (config_file, *PROCESSORS)

    @classmethod
    def open(cls, directory: Path, source: str) -> Self | None:
        if not (directory / cls.config_file).is_file():
            return None
        config = read_json(directory / cls.config_file, "checkpoint")
        return cls(config) if isinstance(config, dict) else None

    def place(self, name: str) -> Place:
        return Place((name,))

    def write_processor(self, directory: Path, folder: Path) -> bool:
        for name in PROCESSORS:
            if (directory / name).is_file():
                shutil.copyfile(directory / name, folder / name)
                return True
        return False
