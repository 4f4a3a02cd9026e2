"""What the server counts and measures, for Prometheus."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import prometheus_client as prometheus

from vsemb.serving.versions import ModelVersions

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The server's metrics in a registry of their own, so that a process may hold several servers.

    Args:
        models: name -> versions.
    """

    def __init__(self, models: Mapping[str, ModelVersions]) -> None:
        self._models = models
        self.registry = prometheus.CollectorRegistry()
        counter = functools.partial(prometheus.Counter, registry=self.registry)
        gauge = functools.partial(prometheus.Gauge, registry=self.registry)
        histogram = functools.partial(prometheus.Histogram, registry=self.registry)
        labels = ["model", "signature", "protocol"]
        self.requests = counter("vsemb_requests", "Predict requests answered.", [*labels, "code"])
        answering = "Time from a request's arrival to its answer."
        self.seconds = histogram("vsemb_request_seconds", answering, labels, buckets=_SECONDS)
        self.rows = histogram("vsemb_batch_rows", "Rows of each batch that ran.", labels[:2], buckets=_ROWS)
        self.in_flight = gauge("vsemb_requests_in_flight", "Requests being answered.")
        self.waiting = gauge("vsemb_requests_waiting", "Requests that wait for a thread.")
        self._versions = gauge("vsemb_model_available", "1 for each version that is served.", ["model", "version"])

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        self._versions.clear()
        for name, model in self._models.items():
            for number in model.available:
                self._versions.labels(name, str(number)).set(1)
        return prometheus.generate_latest(self.registry)
