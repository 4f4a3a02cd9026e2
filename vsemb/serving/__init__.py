"""Serving room: TensorFlow Serving's gRPC and REST API over SavedModels, and a client of it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.serving.client import Client
    from vsemb.serving.server import Server

__all__ = ["Client", "Server"]

# A client needs no TensorFlow, so neither class is imported before it is asked for.
_WHERE = {"Client": "vsemb.serving.client", "Server": "vsemb.serving.server"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
