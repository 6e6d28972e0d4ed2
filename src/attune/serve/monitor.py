"""What the server counts, for Prometheus: requests by status, audio, batches, what waits, and how long answers take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SIZES = (1, 2, 4, 8, 16, 32, 64)
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Monitor:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("attune_requests", "Requests answered.", ["path", "status"], registry=self.registry)
        self.latency = Histogram(
            "attune_request_seconds", "From request to answer.", ["path"], buckets=SECONDS, registry=self.registry
        )
        self.audio = Counter("attune_audio_seconds", "Audio decoded.", ["model"], registry=self.registry)
        self.busy = Counter("attune_decoding_seconds", "Time spent decoding.", ["model"], registry=self.registry)
        self.batches = Histogram(
            "attune_batch_size", "Chunks decoded together.", ["model"], buckets=SIZES, registry=self.registry
        )
        self.waiting = Gauge("attune_waiting", "Chunks in the queue.", ["model"], registry=self.registry)
        self.open = Gauge("attune_open_requests", "Requests and sockets open now.", registry=self.registry)

    @contextmanager
    def batch(self, model: str, size: int, seconds: float) -> Iterator[None]:
        """Count a batch while it is decoded."""
        began = time.perf_counter()
        yield
        self.busy.labels(model).inc(time.perf_counter() - began)
        self.audio.labels(model).inc(seconds)
        self.batches.labels(model).observe(size)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self.requests.labels(path, str(status)).inc()
        self.latency.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)
