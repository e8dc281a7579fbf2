"""Append again and again beside a store that grows, and count for Prometheus what was done."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from protocol.errors import ConfigError, RocketLensError
from spark_jobs.run.report import Report
from spark_jobs.tables.table_request import TableDetails

COMMITTED: Final = "committed"
EMPTY: Final = "empty"
FAILED: Final = "failed"


class TableMetrics:
    """Metrics of one table since the start of this process."""

    def __init__(self) -> None:
        """All of them are 0."""
        self.registry = CollectorRegistry()
        self._runs = Counter("rocketlens_table_runs", "Runs by what came of them.", ["result"], registry=self.registry)
        self._messages = self._counter("rocketlens_table_messages", "Messages that were appended.")
        self._log_bytes = self._counter("rocketlens_table_log_bytes", "Bytes of the log that were read.")
        self._file_bytes = self._counter("rocketlens_table_file_bytes", "Bytes of the files that were appended.")
        self._damage = self._counter(
            "rocketlens_table_damaged_places", "Places of the log that hold no message that counts."
        )
        self._gap_bytes = self._counter(
            "rocketlens_table_gap_bytes", "Bytes of the log that had expired when a run came to them."
        )
        self._position = self._gauge(
            "rocketlens_table_position", "Physical offset up to which the table has the messages."
        )
        self._last = self._gauge(
            "rocketlens_table_last_success_timestamp_seconds", "When the last run ended that did not fail."
        )
        self._seconds = self._gauge(
            "rocketlens_table_last_run_seconds", "How long the last run that did not fail took."
        )
        for result in (COMMITTED, EMPTY, FAILED):
            self._runs.labels(result)

    def take(self, report: Report[TableDetails]) -> None:
        """Count a run."""
        details = report.details
        self._runs.labels(EMPTY if details.is_empty else COMMITTED).inc()
        self._messages.inc(report.messages)
        self._log_bytes.inc(report.bytes)
        self._file_bytes.inc(details.file_bytes)
        gap = details.gap
        self._damage.inc(len(report.damages) + report.more_damages - (gap is not None))
        self._gap_bytes.inc(0 if gap is None else gap[1] - gap[0])
        self._position.set(details.stop)
        self._last.set(time.time())
        self._seconds.set(report.seconds)

    def take_failure(self) -> None:
        """Count a run that failed."""
        self._runs.labels(FAILED).inc()

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(name, meaning, registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, registry=self.registry)


@contextlib.contextmanager
def served(metrics: TableMetrics, host: str, port: int) -> Iterator[int]:
    """Answer `/metrics` by HTTP; yields the port, a free one for 0. Raises ConfigError if that is impossible."""
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        raise ConfigError(f"--metrics {host}:{port}: {error.strerror}") from error
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def append_every(
    run: Callable[[], Report[TableDetails]],
    seconds: float,
    metrics: TableMetrics,
    show: Callable[[Report[TableDetails] | RocketLensError], None],
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Run at once, then so many seconds after each start, later where a run takes longer; for ever.

    `show` gets each report, and what made a run fail: the next one may succeed. But what is wrong with the options, or
    with the table or the log for good, is raised as ConfigError.
    """
    while True:
        began = time.monotonic()
        try:
            report = run()
        except ConfigError:
            raise
        except RocketLensError as error:
            metrics.take_failure()
            show(error)
        else:
            metrics.take(report)
            show(report)
        wait(max(seconds - (time.monotonic() - began), 0))
