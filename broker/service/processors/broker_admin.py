"""Requests about the broker itself: runtime figures, configuration, statistics, replication.

A figure that a server that only reads does not have is 0, in the form that the tools parse: with a missing or odd value
they leave out whole rows. Source: remoting-protocol §2.2, §2.3, §4.2, §4.16.
"""

import os
import shutil
import time

from broker.service.broker_service import BrokerService
from broker.service.consumers.consume_rates import Rate
from broker.service.dispatcher import Request, handles
from broker.service.processors.name_server import encode_properties_text
from protocol.bodies import BrokerStatsData, BrokerStatsItem, HARuntimeInfo, KVTable, encode_json
from protocol.codes import BROKER_FIGURE, CLUSTER_FIGURE, STATE_FIGURE, RequestCode, ResponseCode
from protocol.command import Response
from protocol.errors import StoreError
from protocol.headers import EmptyRequestHeader, ViewBrokerStatsDataRequestHeader
from protocol.system_topics import SCHEDULE_TOPIC, TRACE_TOPIC
from storage.files.waiting import Lookup
from storage.layout.store_config import DELAY_OFFSETS
from storage.store.file_sizes import file_sizes
from storage.store.topic_catalog import READ_ONLY_PERM, find_topic

NOTHING_A_SECOND = "0.0 0.0 0.0"
"""Rates of 0 per second over 10, 60 and 600 seconds."""

POOLS = ("ack", "litePull", "pull", "query", "send")
"""Thread pools of a Java broker, whose queues the tools print; here these queues are always empty."""

PUT_SPANS = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)
"""Ranges of durations by which a broker counts its writes."""

DAYS = ("YesterdayMorning", "TodayMorning", "TodayNow")

GROUP_GET_NUMS = "GROUP_GET_NUMS"
"""The statistic of the number of messages that a group consumes."""

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""A broker's default; the levels that a store was written with are not in the store."""


BROKER_COUNTS = frozenset({"BROKER_PUT_NUMS", "BROKER_GET_NUMS"})
"""Statistics of a whole broker, under the name of its cluster; the Prometheus exporter for RocketMQ asks for them."""


class BrokerAdminProcessor:
    """Answers requests for figures and configuration of this server, in a broker's form."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._store = service.store

    @handles(RequestCode.GET_BROKER_RUNTIME_INFO, EmptyRequestHeader)
    def get_runtime_info(self, _header: EmptyRequestHeader) -> Lookup[Response]:
        """The table that clusterList and brokerStatus print."""
        table = _idle_figures() | self._figures_of_process()
        table |= yield from self._figures_of_store()
        table |= yield from self._schedule_offsets()
        return Response(body=encode_json(KVTable(dict(sorted(table.items())))))

    def _figures_of_process(self) -> dict[str, str]:
        disk = shutil.disk_usage(self._store.layout.root)
        evaluations = self._service.subscriptions.evaluations
        ratio = str(disk_ratio(disk.used, disk.free))
        # That in our headers is another one: clients conclude from it which requests are supported (`protocol.codes`).
        release = self._store.config.release
        return {
            "bootTimestamp": str(self._service.started_timestamp),
            "brokerActive": "true",
            # Brokers of 5.x no longer send the number, but the exporter fails without it.
            "brokerVersion": str(release.number),
            "brokerVersionDesc": release.name,
            "commitLogDirCapacity": f"Total : {_gibibytes(disk.total)}, Free : {_gibibytes(disk.free)}.",
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,
            "rocketlensBitmapEvaluations": str(evaluations.done),
            "rocketlensBitmapEvaluationsSkipped": str(evaluations.skipped),
            BROKER_FIGURE: self._service.broker_name,
            CLUSTER_FIGURE: self._service.cluster,
            STATE_FIGURE: self._store.snapshot.state.word,
            "runtime": _format_duration(time.time_ns() // 1_000_000 - self._service.started_timestamp),
        }

    def _figures_of_store(self) -> Lookup[dict[str, str]]:
        log = self._store.commit_log
        first = yield from log.first_timestamp_lookup()
        return {
            "commitLogMinOffset": str(log.minimum),
            "commitLogMaxOffset": str(log.end),
            "earliestMessageTimeStamp": str(first),
        }

    def _schedule_offsets(self) -> Lookup[dict[str, str]]:
        """For each delay level, the offset of the next message to deliver and the end of its queue, as far as known."""
        figures = {}
        for level, offset in self._store.config.delay_offsets.items():
            try:
                queue = yield from self._store.queues.queue_lookup(SCHEDULE_TOPIC, level - 1)
                end = 0 if queue is None else queue.max_offset
            except StoreError:
                continue
            figures[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return figures

    @handles(RequestCode.GET_BROKER_CONFIG, EmptyRequestHeader)
    def get_broker_config(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """The parts of a broker's configuration that apply to us, as Java properties; exporters need all of these."""
        address, options = request.connection.local_address, self._service.options
        broker_id = options.register.registered_id
        properties = {
            "autoCreateSubscriptionGroup": "true",
            "autoCreateTopicEnable": "false",
            "brokerClusterName": self._service.cluster,
            "brokerIP1": address.host,
            "brokerId": str(broker_id),
            "brokerName": self._service.broker_name,
            "brokerPermission": str(READ_ONLY_PERM),
            "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
            # exportMetrics prints this as the number of processors.
            "clientCallbackExecutorThreads": str(os.cpu_count() or 1),
            "enablePropertyFilter": "true",
            "fileReservedTime": "72",
            "filterServerNums": "0",
            "flushDiskType": "ASYNC_FLUSH",
            "listenPort": str(address.port),
            "maxMessageSize": str(4 * 1024 * 1024),
            "messageDelayLevel": DELAY_LEVELS,
            "msgTraceTopicName": TRACE_TOPIC,
            "slaveReadEnable": _java_boolean(broker_id > 0),
            "storePathRootDir": str(self._store.layout.root),
            "traceOn": "true",
            "traceTopicEnable": _java_boolean(TRACE_TOPIC in self._store.config.topics),
            "useTLS": _java_boolean(options.tls.mode == "enforcing"),
            **{name: str(size) for name, size in file_sizes(self._store.snapshot).items()},
        }
        version = {"counter": 0, "stateVersion": 0, "timestamp": self._service.started_timestamp}
        return Response(
            ext_fields={"version": encode_json(version).decode("ascii")}, body=encode_properties_text(properties)
        )

    @handles(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader)
    def view_stats(self, header: ViewBrokerStatsDataRequestHeader) -> Lookup[Response]:
        """The rates of messages put and got lately: none are put; got are those that groups consumed, by their commits.

        A broker has such a statistic only once it has counted something, so there is none for puts into a topic.
        """
        name, key = header.stats_name, header.stats_key
        rates = self._service.offsets.rates
        topic, _, group = key.partition("@")
        yield from self._store.queues.listed()
        if name in BROKER_COUNTS and key == self._service.cluster:
            found = rates.total() if name == "BROKER_GET_NUMS" else (Rate(), Rate(), Rate())
        elif name.startswith("GROUP_GET_") and self._has_group(topic, group):
            found = rates.rates(group if name == GROUP_GET_NUMS else "", topic)
        else:
            return Response(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        minute, hour, day = (BrokerStatsItem(sum=rate.total, tps=rate.per_second) for rate in found)
        return Response(body=encode_json(BrokerStatsData(day, hour, minute)))

    def _has_group(self, topic: str, group: str) -> bool:
        """Whether a group consumes a topic, here or when the store was written."""
        return find_topic(self._store, topic) is not None and topic in self._service.offsets.topics_of(group)

    @handles(RequestCode.GET_BROKER_HA_STATUS, EmptyRequestHeader)
    def get_ha_status(self, _header: EmptyRequestHeader) -> Response:
        """A master without slaves, at the end of the log."""
        return Response(body=encode_json(HARuntimeInfo(master_commit_log_max_offset=self._store.commit_log.end)))

    @handles(RequestCode.GET_BROKER_EPOCH_CACHE, EmptyRequestHeader)
    def get_epoch_cache(self, _header: EmptyRequestHeader) -> Response:
        """Refuse with the words of a broker that is not run by a controller."""
        return Response(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")

    @handles(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, EmptyRequestHeader)
    def get_cold_data_flow(self, _header: EmptyRequestHeader) -> Response:
        """Report that no group is slowed down for cold data; the thresholds are a broker's defaults."""
        body = {
            "runtimeTable": {},
            "configTable": {},
            "cgColdReadThreshold": 3 * 1024 * 1024,
            "globalColdReadThreshold": 100 * 1024 * 1024,
            "globalAcc": 0,
        }
        return Response(body=encode_json(body))

    @handles(RequestCode.GET_ALL_DELAY_OFFSET, EmptyRequestHeader)
    def get_all_delay_offsets(self, _header: EmptyRequestHeader) -> Response:
        """The offsets up to which delayed messages were delivered, by delay level."""
        self._store.config.refuse_unknown(DELAY_OFFSETS)
        offsets = {str(level): offset for level, offset in sorted(self._store.config.delay_offsets.items())}
        return Response(body=encode_json({"offsetTable": offsets}))


def _idle_figures() -> dict[str, str]:
    """The figures of writing, which are 0 for a server that only reads."""
    figures = {
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "0",
        "dispatchBehindBytes": "0",
        "dispatchMaxBuffer": "0",
        "getFoundTps": NOTHING_A_SECOND,
        "getMessageEntireTimeMax": "0",
        "getMissTps": NOTHING_A_SECOND,
        "getTotalTps": NOTHING_A_SECOND,
        # Clients up to 4.9 know the name with one r.
        "getTransferedTps": NOTHING_A_SECOND,
        "getTransferredTps": NOTHING_A_SECOND,
        "pageCacheLockTimeMills": "0",
        "putLatency99": "0.00",
        "putLatency999": "0.00",
        "putMessageAverageSize": "0.0",
        "putMessageDistributeTime": "".join(f"[{span}]:0 " for span in PUT_SPANS),
        "putMessageEntireTimeMax": "0",
        "putMessageFailedTimes": "0",
        "putMessageSizeTotal": "0",
        "putMessageTimesTotal": "0",
        "putTps": NOTHING_A_SECOND,
        "remainHowManyDataToFlush": "0 B",
        "remainTransientStoreBufferNumbs": "2147483647",
        "startAcceptSendRequestTimeStamp": "0",
        "timerCongestNum": "0",
        "timerDequeueTps": "0.0",
        "timerEnqueueTps": "0.0",
        "timerOffsetBehind": "0",
        "timerReadBehind": "0",
    }
    for pool in POOLS:
        figures |= {f"{pool}ThreadPoolQueue{figure}": "0" for figure in ("Capacity", "HeadWaitTimeMills", "Size")}
    figures |= {f"msg{what}Total{day}": "0" for what in ("Get", "Put") for day in DAYS}
    return figures


def disk_ratio(used: int, free: int) -> float:
    """Return the used part of a disk as a broker reports it: between 0 and 1, rounded up to hundredths.

    `used` and `free` are in bytes; `free` counts those that are free for all users.
    """
    return -(-100 * used // (used + free)) / 100 if used + free else 0.0


def _java_boolean(value: bool) -> str:
    return "true" if value else "false"


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _format_duration(milliseconds: int) -> str:
    seconds = max(milliseconds, 0) // 1000
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
