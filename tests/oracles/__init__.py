"""Hand-computed inputs and expected outputs; every number can be redone with pencil and paper."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

_ORACLES = json.loads((Path(__file__).parent / "oracles.json").read_text(encoding="utf-8"))

#: The file gives ten decimals and the code computes in float32: 1e-5 of a value of order 1 to 10.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def oracle(name: str) -> SimpleNamespace:
    """Returns one entry as an object with `inputs` and `expected`, both dicts."""
    entry = _ORACLES[name]
    return SimpleNamespace(inputs=entry["inputs"], expected=entry["expected"], note=entry["note"])
