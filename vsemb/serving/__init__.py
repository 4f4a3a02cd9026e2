"""Serving room: TensorFlow Serving's gRPC and REST API over SavedModels, and a client of it.

The server is `vsemb.serving.server.Server`; a client needs no TensorFlow.
"""

from vsemb.serving.client import Client

__all__ = ["Client"]
