"""What a monitoring system asks a PS over HTTP: Prometheus metrics at `/metrics`, the state of health at `/health`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fedslot import __version__
from fedslot.rounds.round import Round
from fedslot.rounds.trace import Event
from fedslot.runs.callbacks import Callback
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

if TYPE_CHECKING:
    from fedslot.deployment.server import ParameterServer

LOOPBACK = "127.0.0.1"
SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # ends of the classes of the histogram of rounds
QUIET = 10  # rounds of the longest length so far without a word, after which something is wrong
LEAST_QUIET = 120.0  # seconds


class Metrics(Callback):
    """Counts rounds and updates as a callback of a `ParameterServer`, and answers over HTTP.

    metrics = Metrics()
    server = ParameterServer(..., callbacks=[metrics])
    with metrics.serving(server, "9464"):
        ...
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: Any = {"registry": self.registry}
        Gauge("fedslot_info", "1, with the version of fedslot as a label", ["version"], **own).labels(__version__).set(
            1
        )
        self._rounds = Counter("fedslot_rounds", "Rounds that were closed since the start of the process", **own)
        self._updates = Counter("fedslot_updates", "Updates that were received", ["way"], **own)
        self._collided = Counter("fedslot_collided", "UEs that pushed and were not received", **own)
        self._wasted = Counter("fedslot_wasted", "UEs that were pulled and sent nothing in time", **own)
        self._seconds = Histogram("fedslot_round_seconds", "Time of a round", buckets=SECONDS, **own)
        self._round = Gauge("fedslot_round", "The round to come, from 0", **own)
        self._of = Gauge("fedslot_rounds_wanted", "Rounds of the scenario", **own)
        score = "Accuracy of the global model on the test set, or the other score of the task"
        self._accuracy = Gauge("fedslot_test_accuracy", score, **own)
        self._loss = Gauge("fedslot_validation_loss", "Loss of the global model on the validation set", **own)
        self._slots = Gauge("fedslot_slots_spent", "Slots spent since the first round", **own)
        self._last = Gauge("fedslot_last_round_timestamp_seconds", "When the last round was closed", **own)
        for way in ("pulled", "pushed"):
            self._updates.labels(way)
        self.registry.register(self)
        self._server: ParameterServer | None = None
        self._news, self._longest, self._over = time.monotonic(), 0.0, False

    def collect(self) -> Iterable[Metric]:
        """Return what is asked of the server whenever somebody looks: presence and faults."""
        server = self._server
        if server is None:
            return
        presence = server.presence
        yield GaugeMetricFamily("fedslot_ues", "Number of UEs of the cell", presence.ues)
        yield GaugeMetricFamily("fedslot_ues_present", "UEs whose device is here", len(presence.here))
        yield GaugeMetricFamily("fedslot_broker_connected", "Whether devices can be reached", presence.connected)
        faults = CounterMetricFamily("fedslot_faults", "Rows of faults.csv by their reason", labels=["reason"])
        for reason, count in sorted(server.faults.counts.items()):
            faults.add_metric([reason], count)
        yield faults

    def on_start(self, scenario: Scenario, done: int, folder: Path | None) -> None:
        self._round.set(done)
        self._of.set(scenario.rounds)
        self._news = time.monotonic()

    def on_round(self, round: Round, frame: Sequence[Event]) -> None:
        self._rounds.inc()
        self._updates.labels("pulled").inc(round.pulled)
        self._updates.labels("pushed").inc(round.push_received)
        self._collided.inc(round.collided)
        self._wasted.inc(round.wasted)
        self._seconds.observe(round.seconds)
        for gauge, value in (
            (self._round, round.round + 1),
            (self._accuracy, round.score),
            (self._loss, round.val_loss),
            (self._slots, round.slots_spent),
        ):
            gauge.set(value)
        self._last.set_to_current_time()
        self._news, self._longest = time.monotonic(), max(self._longest, round.seconds)

    def on_end(self, result: object) -> None:
        self._over = True

    def health(self) -> tuple[bool, dict[str, object]]:
        """Return whether all is well, and how things are."""
        server, quiet = self._server, time.monotonic() - self._news
        assert server is not None
        presence = server.presence
        if self._over:
            state = "over"
        elif not presence.connected:
            state = "broker lost"
        elif not presence.here:
            state = "no devices"
        else:
            state = "quiet" if quiet > max(LEAST_QUIET, QUIET * self._longest) else "training"
        facts = {
            "state": state,
            "round": getattr(getattr(server, "now", None), "round", 0),
            "rounds": server.scenario.rounds,
            "ues": presence.ues,
            "present": len(presence.here),
            "seconds since the last round": round(quiet, 1),
            "version": __version__,
        }
        return state in ("training", "over"), facts

    def serving(self, server: ParameterServer, address: str) -> Listener:
        """Return a context that serves the metrics of a server. address: PORT, on the loopback, or HOST:PORT."""
        self._server = server
        return Listener(self, address)


class Listener:
    """Serves metrics at an address inside of a `with` block; `port` is where."""

    def __init__(self, metrics: Metrics, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdecimal() or not 0 <= int(port) <= 65535:
            raise InputError("metrics", address, "PORT, or HOST:PORT for others than this machine")
        self._metrics, self._pages = metrics, make_wsgi_app(metrics.registry)
        try:
            self._http = make_server(host.strip("[]") or LOOPBACK, int(port), self._answer, _Server, _Silent)
        except OSError as error:
            raise InputError("metrics", address, f"an address that is free here ({error.strerror})") from None
        self.port = int(self._http.server_port)

    def __enter__(self) -> Listener:
        threading.Thread(target=self._http.serve_forever, daemon=True, name="metrics").start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self.close()

    def close(self) -> None:
        """Leave the port to others."""
        self._http.server_close()

    def _answer(self, environment: dict[str, Any], start: Any) -> Iterator[bytes] | list[bytes]:
        path = environment.get("PATH_INFO")
        if path == "/metrics":
            return self._pages(environment, start)  # type: ignore[no-any-return]
        if path != "/health":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/metrics and /health are here\n"]
        well, facts = self._metrics.health()
        status = "200 OK" if well else "503 Service Unavailable"
        start(status, [("Content-Type", "application/json"), ("Cache-Control", "no-store")])
        return [json.dumps(facts).encode() + b"\n"]


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread of its own, so that nobody waits for a slow one."""

    daemon_threads = True


class _Silent(WSGIRequestHandler):
    """Writes no line for each request, and waits for none for long."""

    timeout = 5.0

    def log_message(self, *words: object) -> None: ...
