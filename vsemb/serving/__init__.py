"""TensorFlow Serving's gRPC and REST API over SavedModels, and a client.

The server is `vsemb.serving.server.Server`. The client needs no TensorFlow.
"""

from vsemb.serving.client import Client

__all__ = ["Client"]
