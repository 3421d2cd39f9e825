"""Readings over HTTP, as Prometheus scrapes them, or in a file, as node_exporter collects them."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from geartrain.telemetry import METRICS, Metric
from geartrain.telemetry.readings import Readings, Sample

_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 10.0


class Endpoint:
    """An HTTP server in threads of this process; close it."""

    def __init__(self, readings: Readings, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Start to answer.

        Raises:
            OSError: the port is taken, or may not be used.
        """
        self._collector = _Collector(readings)
        app = make_wsgi_app(_registry(self._collector))
        self._server = make_server(host, port, app, server_class=_Server, handler_class=_Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    def close(self, *, linger: float = 0.0) -> None:
        """Answer one more scrape, if it comes within `linger` seconds; then close the port, and what was begun ends."""
        if linger > 0:
            self._collector.wait_for_scrape(linger)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def write_text(readings: Readings, path: Path) -> None:
    """Write what is known now to a file in Prometheus' text format, whole or not at all."""
    registry = CollectorRegistry()
    registry.register(_Collector(readings))
    write_to_textfile(str(path), registry)


class _Server(ThreadingWSGIServer):
    daemon_threads = False
    """So that closing waits for the answer that is under way."""


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_SECONDS
    """Of a connection that says nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of each scrape."""


class _Collector(Collector):
    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._scraped = threading.Event()

    def wait_for_scrape(self, seconds: float) -> None:
        self._scraped.clear()
        self._scraped.wait(seconds)

    def collect(self) -> Iterable[Family]:
        samples = self._readings.samples()
        families = [_family(METRICS[name], found) for name, found in samples.items() if found]
        self._scraped.set()
        return families


def _registry(collector: _Collector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    names = [label.name for label in metric.labels]
    names = names if metric.of == "" else ["stage", *names]
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=names)
        edges = [*map(str, metric.buckets), "+Inf"]
        for sample in samples:
            histogram.add_metric(sample.labels, list(zip(edges, sample.counts, strict=True)), sample.value)
        return histogram
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(metric.name, metric.help, labels=names)
    for sample in samples:
        family.add_metric(sample.labels, sample.value)
    return family
