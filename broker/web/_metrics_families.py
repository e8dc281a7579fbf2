"""Every metric at `/metrics`: name, kind, labels and meaning; the site has them as a table (docs/metrics.md).

Names follow Prometheus' conventions: base units, counters end in `_total`.
"""

from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

PREFIX: Final = "rocketlens_"

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; `name` without the prefix, counters without `_total`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def full_name(self) -> str:
        """The name as queries write it."""
        return f"{PREFIX}{self.name}{'_total' * (self.kind == COUNTER)}"

    def empty(self) -> Metric:
        """A family of samples, none so far."""
        types = {COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily, HISTOGRAM: HistogramMetricFamily}
        made: Metric = types[self.kind](f"{PREFIX}{self.name}", self.meaning, labels=self.labels)
        return made


STORE: Final = ("broker",)

FAMILIES: Final = (
    Family("build_info", GAUGE, ("version",), "Always 1."),
    Family("workers", GAUGE, (), "Number of serving processes that should run."),
    Family("worker_up", GAUGE, ("worker",), "1 while a worker serves and its event loop turns."),
    Family("worker_starts", COUNTER, ("worker",), "How often a worker was started; above 1, one has died."),
    Family("worker_stuck", COUNTER, ("worker",), "How often a worker was ended because its event loop stood still."),
    Family("worker_resident_memory_bytes", GAUGE, ("worker",), "Memory of a worker, including mapped files."),
    Family("cpu_seconds", COUNTER, (), "CPU time that all workers have used, user and system."),
    Family("requests", COUNTER, (*STORE, "code", "result"), "Requests that were answered, by request code and result."),
    Family("fast_lane_requests", COUNTER, STORE, "Requests that were answered by compiled code."),
    Family(
        "turn_duration_seconds",
        HISTOGRAM,
        STORE,
        "Time from a read until all answers to it that could be given at once were passed to the kernel.",
    ),
    Family(
        "request_duration_seconds",
        HISTOGRAM,
        (*STORE, "code"),
        "Time for each request that was not answered by compiled code, including waiting, but without held pulls.",
    ),
    Family("grpc_calls", COUNTER, (*STORE, "method", "result"), "Calls by gRPC that ended, by method and result."),
    Family(
        "grpc_call_duration_seconds",
        HISTOGRAM,
        (*STORE, "method"),
        "Time for each call by gRPC, including waiting; of a stream, until it ended.",
    ),
    Family("received_bytes", COUNTER, STORE, "Bytes of requests, without TLS."),
    Family("sent_bytes", COUNTER, STORE, "Bytes of answers, without TLS."),
    Family("connections", GAUGE, STORE, "Connections that are open."),
    Family("connections_accepted", COUNTER, STORE, "Connections that were accepted."),
    Family("connections_dropped", COUNTER, STORE, "Connections that were closed because a limit was reached."),
    Family("long_polls", GAUGE, STORE, "Pulls that are held until messages arrive."),
    Family("long_polls_held", COUNTER, STORE, "Pulls that were held."),
    Family("waiting_bytes", GAUGE, STORE, "Bytes that waiting requests hold, counted as for in_flight_bytes."),
    Family("unfinished_bytes", GAUGE, STORE, "Bytes received of requests that are not complete yet."),
    Family("unsent_bytes", GAUGE, STORE, "Bytes of answers that their clients have not read."),
    Family("pool_work", GAUGE, STORE, "Look-ups and parsing work on a thread or waiting for one."),
    Family(
        "registry_bytes",
        GAUGE,
        STORE,
        ("Bytes that are remembered about clients, counted as for registry_bytes."),
    ),
    Family("registry_refusals", COUNTER, STORE, "How often something was not remembered because of that limit."),
    Family("pool_wait_seconds", COUNTER, STORE, "How long requests have waited for a thread."),
    Family("waited_requests", COUNTER, (*STORE, "reason"), "Requests that could not be answered at once, by reason."),
    Family("slow_queries", COUNTER, (*STORE, "reason"), "Requests that took longer than --slow-query."),
    Family("key_queries", COUNTER, STORE, "Look-ups by key, unique key or tag."),
    Family("chain_steps", COUNTER, STORE, "Index entries that look-ups have walked."),
    Family("collisions_refused", COUNTER, STORE, "Index entries with the right hash and the wrong message."),
    Family(
        "damage_met",
        COUNTER,
        (*STORE, "kind"),
        "Index entries that point outside their file or to no record, met by look-ups.",
    ),
    Family(
        "mask_hidden_whole",
        COUNTER,
        STORE,
        "Bodies and property values that the page hid whole because a pattern or path did not come to an end.",
    ),
    Family(
        "acl_refusals",
        COUNTER,
        (*STORE, "account", "lacks", "add"),
        "Requests that --acl refused, by account, what it lacks, and what to add to the file of accounts.",
    ),
    Family("queue_holes_searching", GAUGE, STORE, "Runs of damaged queue units whose messages are being searched for."),
    Family(
        "queue_search_left_bytes",
        GAUGE,
        STORE,
        "Bytes of log that are still to be read for these messages, and where queues are derived from the log.",
    ),
    Family(
        "queue_hole_messages",
        COUNTER,
        (*STORE, "outcome"),
        "Messages of damaged or lost queue units, by whether the log has them.",
    ),
    Family("name_servers", GAUGE, STORE, "Name servers that --register names."),
    Family("name_servers_registered", GAUGE, STORE, "Name servers of --register that are connected and list us."),
    Family("commit_log_min_offset_bytes", GAUGE, STORE, "Physical offset at which the log begins."),
    Family("commit_log_max_offset_bytes", GAUGE, STORE, "Physical offset at which the log ends."),
    Family("commit_log_first_timestamp_seconds", GAUGE, STORE, "When the first message of the log was stored."),
    Family("commit_log_last_timestamp_seconds", GAUGE, STORE, "When the newest message that can be found was stored."),
    Family("commit_log_segments", GAUGE, STORE, "Number of files of the log."),
    Family("index_files", GAUGE, STORE, "Number of index files in use."),
    Family("index_last_timestamp_seconds", GAUGE, STORE, "The end timestamp of the newest index file."),
    Family("index_covered_ratio", GAUGE, STORE, "Part of the log whose keys are in index files."),
    Family("index_lag_bytes", GAUGE, STORE, "Bytes of log behind the last record that an index file knows."),
    Family("index_unscanned_bytes", GAUGE, STORE, "Bytes of log whose keys are in no index file and not scanned yet."),
    Family("index_scanned_entries", GAUGE, STORE, "Entries that were scanned from the log, in memory."),
    Family("damage", GAUGE, (*STORE, "kind"), "Known places of damage in the store."),
    Family("unread_part", GAUGE, (*STORE, "part"), "Parts of the store that are not read, 1 for each that is there."),
    Family("store_live", GAUGE, STORE, "1 while a running broker holds the store."),
    Family("topics", GAUGE, STORE, "Topics that have queues."),
    Family("consumer_group_lag_messages", GAUGE, (*STORE, "group", "topic"), "Messages that a group has not consumed."),
    Family(
        "consumer_group_lag_seconds",
        GAUGE,
        (*STORE, "group", "topic"),
        "Age of the oldest message that a group has not consumed, 0 without any.",
    ),
    Family("consumer_group_pairs_left_out", GAUGE, STORE, "Pairs of group and topic beyond those that are shown."),
)
"""All of them, in the order in which they are served."""


class Samples:
    """Families that are being filled."""

    def __init__(self) -> None:
        self._families = {family.name: family.empty() for family in FAMILIES}

    def put(self, name: str, value: float, *labels: str) -> None:
        """Add a sample of a counter or gauge."""
        family = self._families[name]
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
        family.add_metric(labels, value)

    def put_histogram(self, name: str, buckets: list[tuple[str, float]], total: float, *labels: str) -> None:
        """Add the cumulated buckets of a histogram, the last one being `+Inf`."""
        family = self._families[name]
        assert isinstance(family, HistogramMetricFamily)
        family.add_metric(labels, buckets, total)

    def all(self) -> list[Metric]:
        """All families, those without a sample too."""
        return list(self._families.values())
