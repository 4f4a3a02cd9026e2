"""What the server counts and measures, for Prometheus."""

from __future__ import annotations

from vsemb.errors import needs_extra

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The server's metrics in a registry of their own, so that a process may hold several servers.

    Raises:
        MissingExtraError: if prometheus-client is not installed.
    """

    def __init__(self) -> None:
        with needs_extra("prometheus-client", "serving"):
            import prometheus_client as prometheus
        self._text = prometheus.generate_latest
        registry = prometheus.CollectorRegistry()
        self.registry = registry
        labels = ["model", "signature", "protocol"]
        self.requests = prometheus.Counter(
            "vsemb_requests", "Predict requests answered.", [*labels, "code"], registry=registry
        )
        self.seconds = prometheus.Histogram(
            "vsemb_request_seconds",
            "Time from a request's arrival to its answer.",
            labels,
            buckets=_SECONDS,
            registry=registry,
        )
        self.rows = prometheus.Histogram(
            "vsemb_batch_rows",
            "Rows of each batch that ran.",
            ["model", "signature"],
            buckets=_ROWS,
            registry=registry,
        )
        self.in_flight = prometheus.Gauge("vsemb_requests_in_flight", "Requests being answered.", registry=registry)
        self.waiting = prometheus.Gauge("vsemb_requests_waiting", "Requests that wait for a thread.", registry=registry)
        self.versions = prometheus.Gauge(
            "vsemb_model_available",
            "1 for each version that is served.",
            ["model", "version"],
            registry=registry,
        )

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return self._text(self.registry)
