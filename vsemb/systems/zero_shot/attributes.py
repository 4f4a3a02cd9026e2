"""Attributes of classes: a vector of the same named properties for every class of a dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.files import read_json, sha256_bytes, write_json

FILE = "classes.json"
"""The file in a dataset's directory."""


@dataclass(frozen=True, eq=False)
class ClassAttributes:
    """What is known of every class, as the attribute vectors of Reed et al. 2016, section 4.

    Args:
        names: of the attributes, e.g. `("petal colour: red", ...)`.
        values: class name -> (len(names),) numbers, kept as float32; usually in [0, 1].

    Raises:
        DataError: if there are no attributes or no classes, or a vector is not finite or of another length.

    Example:

    >>> birds = ClassAttributes(("wing: black", "bill: hooked"), {"crow": np.array([1, 0.25])})
    >>> birds.matrix(["crow", "crow"]).tolist()
    [[1.0, 0.25], [1.0, 0.25]]
    """

    names: tuple[str, ...]
    values: dict[str, np.ndarray]

    def __post_init__(self) -> None:
        names = tuple(self.names)
        if not names or not all(isinstance(name, str) and name.strip() for name in names):
            raise DataError(f"Attributes of classes need at least one name, none empty. Received: {names!r}.")
        if not self.values:
            raise DataError("Attributes of classes need at least one class.")
        values = {}
        for name, vector in self.values.items():
            try:
                row = np.array(vector, np.float32)
            except (TypeError, ValueError, OverflowError) as error:
                raise DataError(f"The attributes of the class {name!r} are not numbers: {error}.") from error
            if row.shape != (len(names),):
                raise DataError(
                    f"The attributes of the class {name!r} have the shape {row.shape}; expected "
                    f"({len(names)},), one number for each attribute name."
                )
            if not np.isfinite(row).all():
                at = names[int(np.argmin(np.isfinite(row)))]
                raise DataError(f"The attribute {at!r} of the class {name!r} is not finite.")
            row.flags.writeable = False
            values[name] = row
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "values", values)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the names, classes and values."""
        plain = {name: [float(value) for value in row] for name, row in sorted(self.values.items())}
        return sha256_bytes(json.dumps([self.names, plain]).encode())

    def matrix(self, names: Sequence[str]) -> np.ndarray:
        """Returns the vectors of some classes as one array.

        Args:
            names: class names; they may repeat.

        Returns:
            (len(names), attributes) float32.

        Raises:
            DataError: naming the first class that has no attributes.
        """
        for name in names:
            if name not in self.values:
                raise DataError(
                    f"The class {name!r} has no attributes; there are {len(self.values)} classes that have, "
                    f"such as {next(iter(self.values))!r}."
                )
        return np.array([self.values[name] for name in names], np.float32).reshape(-1, len(self.names))


def read_attributes(dataset: Dataset | str | os.PathLike[str]) -> ClassAttributes | None:
    """Reads the attributes of a dataset's classes.

    Args:
        dataset: the dataset, or its directory.

    Returns:
        the attributes, or None where the dataset has none.

    Raises:
        DataError: if the file is broken.
    """
    path = (dataset.path if isinstance(dataset, Dataset) else Path(dataset)) / FILE
    if not path.exists():
        return None
    content = read_json(path, "attributes of classes")
    names = content.get("attributes") if isinstance(content, dict) else None
    values = content.get("classes") if isinstance(content, dict) else None
    if not isinstance(names, list) or not isinstance(values, dict):
        raise DataError(
            f'{path} holds no attributes of classes: expected {{"attributes": [names], "classes": {{name: '
            "[numbers]}}. Prepare the dataset again."
        )
    try:
        return ClassAttributes(tuple(names), values)
    except DataError as error:
        raise DataError(f"{path} is broken: {error} Prepare the dataset again.") from error


def write_attributes(dataset_path: str | os.PathLike[str], attributes: ClassAttributes) -> None:
    """Writes the attributes of a dataset's classes, whole or not at all.

    Args:
        dataset_path: the dataset's directory.
        attributes: the attributes.

    Raises:
        DataError: if the file system refuses.

    Example:

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_attributes(folder, ClassAttributes(("hooked",), {"crow": np.array([0.1])}))
    >>> read_attributes(folder).values["crow"].dtype
    dtype('float32')
    """
    # A float32 survives the way through the shortest decimal of the double that equals it.
    classes = {name: [float(value) for value in row] for name, row in attributes.values.items()}
    write_json(Path(dataset_path) / FILE, {"attributes": list(attributes.names), "classes": classes})
