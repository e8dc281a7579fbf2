"""Where our answers differ from the recorded ones on purpose: one rule each; the site shows them as a table.

A rule turns a recorded answer into the one it expects of us; what it does not touch must be as recorded. It sees our
answer too, for facts that only we can know (how long we have been running), and then checks their form.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from golden_frames import Answer, Exchange, parse_java_json, value_of
from prose import rows
from protocol.codes import BROKER_FIGURE, CLUSTER_FIGURE, STATE_FIGURE, RequestCode, ResponseCode
from protocol.message import decode_messages

LARGEST_NUMBER = 12

STORE_FACTS = re.compile(r"commitLogM(in|ax)Offset|earliestMessageTimeStamp|scheduleMessageOffset_\d+|brokerActive")
"""Members of the runtime table that any server of this store knows."""

PATH_FACTS = re.compile(r"commitLogDiskRatio_.*")
"""Members of the runtime table that are named after a path."""

EXPORTED = """
autoCreateSubscriptionGroup autoCreateTopicEnable brokerClusterName brokerId brokerName brokerRole fileReservedTime
filterServerNums flushDiskType maxMessageSize messageDelayLevel msgTraceTopicName slaveReadEnable traceOn
traceTopicEnable useTLS"""
"""What exportConfigs of 4.9 needs of a broker's configuration (remoting-protocol §2.3)."""


@dataclass(frozen=True)
class Deviation:
    """One rule: for requests of `codes`, `expect(exchange, recorded, ours)` is the answer that is right for us.

    It returns the recorded answer itself where the rule does not apply, and raises `AssertionError` where our answer is
    not what the rule promises. Its docstring is a row: the request, what a broker answers, what we do, and why.
    """

    expect: Callable[[Exchange, Answer, Answer], Answer]
    codes: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.expect.__name__


DEVIATIONS: list[Deviation] = []


def deviation(*codes: int) -> Callable[..., Callable[[Exchange, Answer, Answer], Answer]]:
    def keep(expect: Callable[[Exchange, Answer, Answer], Answer]) -> Callable[[Exchange, Answer, Answer], Answer]:
        DEVIATIONS.append(Deviation(expect, codes))
        return expect

    return keep


def refusal_of(exchange: Exchange, answered: frozenset[int]) -> Answer | None:
    """How a request is refused that is not answered at all yet, None for one that is."""
    if exchange.code not in answered:
        return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {exchange.code} not supported")
    return None


def expected_of(exchange: Exchange, ours: Answer) -> tuple[Answer, list[str]]:
    assert exchange.recorded is not None
    expected, used = exchange.recorded, []
    for rule in DEVIATIONS:
        if exchange.code in rule.codes:
            mended = rule.expect(exchange, expected, ours)
            if not is_same(mended, expected):
                expected = mended
                used.append(rule.name)
    return expected, used


def is_same(one: Answer, other: Answer) -> bool:
    """Whether two answers are equal: bodies that are JSON or properties by their values, others by their bytes."""
    return replace(one, body=b"") == replace(other, body=b"") and value_of(one.body) == value_of(other.body)


def _json_answer(answer, value):
    return replace(answer, body=json.dumps(value).encode())


@deviation(RequestCode.GET_ROUTEINFO_BY_TOPIC)
def read_only_routes(_exchange: Exchange, recorded: Answer, _ours: Answer) -> Answer:
    """GET_ROUTEINFO_BY_TOPIC (105) for a topic that has a route. ‖ `perm` as configured, mostly 6 (read and write).
    ‖ `perm` 4 (read) for every topic. ‖ Producers build no queues from it and fail at once. Reading is always
    possible. The configuration itself (request codes 21 and 351) is unchanged."""
    if recorded.code != 0:
        return recorded
    route = parse_java_json(recorded.body.decode())
    for queues in route["queueDatas"]:
        queues["perm"] = 4
    return _json_answer(recorded, route)


@deviation(RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
def stored_queues(exchange: Exchange, recorded: Answer, ours: Answer) -> Answer:
    """the list of topics (206), and the route (105) of a topic that has queues in the store but no entry in
    `topics.json`: a light queue (`%LMQ%…`), or a topic that was deleted. ‖ not listed, its route is TOPIC_NOT_EXIST
    (17). ‖ listed, with as many queues as are on the disk. ‖ The messages can be read, so tools must find them."""
    if exchange.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
        topics = value_of(recorded.body)["topicList"]
        return _json_answer(recorded, {"topicList": sorted({*topics, *exchange.stored_topics})})
    topic = exchange.ext_fields["topic"]
    if recorded.code != ResponseCode.TOPIC_NOT_EXIST or topic not in exchange.stored_topics:
        return recorded
    route = value_of(ours.body)
    (broker,), (queues,) = route["brokerDatas"], route["queueDatas"]
    assert queues == {
        "brokerName": broker["brokerName"],
        "perm": 4,
        "readQueueNums": 1,
        "topicSysFlag": 0,
        "writeQueueNums": 1,
    }
    return Answer(0, body=ours.body)


@deviation(RequestCode.GET_ROUTEINFO_BY_TOPIC)
def retry_routes(exchange: Exchange, recorded: Answer, ours: Answer) -> Answer:
    """the route (105) of a consumer group's retry topic (`%RETRY%…`) that the store does not hold. ‖
    TOPIC_NOT_EXIST (17), until the group's first heartbeat has made the broker create it. ‖ a route to one empty
    queue, always. ‖ We create nothing, and consumers ask again and again for it; some log an error each time."""
    topic = exchange.ext_fields["topic"]
    if (
        recorded.code != ResponseCode.TOPIC_NOT_EXIST
        or not topic.startswith("%RETRY%")
        or topic in exchange.stored_topics
    ):
        return recorded
    route = value_of(ours.body)
    (queues,) = route["queueDatas"]
    assert (queues["readQueueNums"], queues["perm"]) == (1, 4)
    assert [broker["brokerName"] for broker in route["brokerDatas"]] == [queues["brokerName"]]
    return Answer(0, body=ours.body)


@deviation(RequestCode.REGISTER_BROKER)
def refused_registration(_exchange: Exchange, recorded: Answer, _ours: Answer) -> Answer:
    """REGISTER_BROKER (103) at the name server's address. ‖ success. ‖ NO_PERMISSION (16), `this broker is
    read-only`. ‖ The name server inside RocketLens knows only RocketLens."""
    return replace(
        recorded, code=ResponseCode.NO_PERMISSION, remark="this broker is read-only", ext_fields={}, body=b""
    )


@deviation(RequestCode.HEART_BEAT)
def heartbeat_features(_exchange: Exchange, recorded: Answer, _ours: Answer) -> Answer:
    """HEART_BEAT (34). ‖ header fields `IS_SUPPORT_HEART_BEAT_V2` and `IS_SUB_CHANGE`. ‖ no header fields. ‖ With
    these clients may omit subscriptions from later heartbeats; a server that forgets when it restarts needs
    complete ones."""
    kept = {name: text for name, text in recorded.ext_fields.items() if not name.startswith("IS_SU")}
    return replace(recorded, ext_fields=kept)


@deviation(RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID)
def explained_absence(exchange: Exchange, recorded: Answer, ours: Answer) -> Answer:
    """QUERY_MESSAGE (12) and VIEW_MESSAGE_BY_ID (33) that find nothing. ‖ code 22 with `can not find message, maybe
    time range not correct`, code 1 with `can not find message by the offset, N`. ‖ the same, followed by what was
    searched and why nothing was found. ‖ The remark is what people read in mqadmin."""
    if recorded.code not in (ResponseCode.SYSTEM_ERROR, ResponseCode.QUERY_NOT_FOUND) or recorded.remark is None:
        return recorded
    separator = ": " if exchange.code == RequestCode.VIEW_MESSAGE_BY_ID else "; "
    assert ours.remark is not None
    assert ours.remark.startswith(recorded.remark + separator)
    assert len(ours.remark) > len(recorded.remark) + 20
    return replace(recorded, remark=ours.remark)


@deviation(RequestCode.VIEW_MESSAGE_BY_ID)
def inside_a_record(exchange: Exchange, recorded: Answer, ours: Answer) -> Answer:
    """VIEW_MESSAGE_BY_ID (33) with an offset at which no record starts. ‖ success, with the bytes at that place:
    70,618 of them for offset 1 in g1. ‖ code 1, naming the record that the offset lies inside of. ‖ The bytes are
    not a message; a Java client that gets an error falls back to a query that can succeed."""
    offset = int(exchange.ext_fields["offset"])
    if recorded.code != 0 or int.from_bytes(recorded.body[28:36]) == offset:
        return recorded
    assert ours.remark is not None
    assert re.match(
        rf"can not find message by the offset, {offset}: .* inside the record that starts at \d+", ours.remark
    )
    return Answer(ResponseCode.SYSTEM_ERROR, ours.remark)


@deviation(RequestCode.QUERY_MESSAGE)
def true_keys(exchange: Exchange, recorded: Answer, _ours: Answer) -> Answer:
    """QUERY_MESSAGE (12) by key or by tag. ‖ every record whose key or tag has the same hash: `BB` for `Aa`. ‖ the
    records that carry the key (as one of the words of KEYS) or the tag. ‖ Clients drop the others, which have taken
    places in a limited answer."""
    fields = exchange.ext_fields
    if recorded.code != 0 or fields.get("_UNIQUE_KEY_QUERY") == "true":
        return recorded
    kept, position = b"", 0
    for message in decode_messages(recorded.body):
        names = [message.tags] if fields.get("indexType") == "T" else message.keys
        if fields["key"] in names and fields["topic"] == message.topic:
            kept += recorded.body[position : position + message.total_size]
        position += message.total_size
    return replace(recorded, body=kept)


@deviation(RequestCode.QUERY_MESSAGE)
def disclosed_page(exchange: Exchange, recorded: Answer, ours: Answer) -> Answer:
    """QUERY_MESSAGE (12) that more messages match than fit, or than were asked for. ‖ the newest ones, without a
    hint that there are more. ‖ the same, with header fields `rocketlensTruncated` and `rocketlensCursor` and a
    remark that names the `lastKey` of the next page. ‖ Java clients ignore fields that they do not know."""
    count = sum(1 for _ in decode_messages(recorded.body)) if recorded.code == 0 else 0
    if not count or count < int(exchange.ext_fields["maxNum"]) or "rocketlensTruncated" not in ours.ext_fields:
        return recorded
    oldest = str(int.from_bytes(recorded.body[28:36]))
    fields = {"rocketlensTruncated": "true", "rocketlensCursor": oldest}
    remark = f"older matches are left out, the next page is at lastKey {oldest}"
    return replace(recorded, remark=remark, ext_fields=recorded.ext_fields | fields)


@deviation(RequestCode.QUERY_CONSUME_QUEUE)
def plain_success(_exchange: Exchange, recorded: Answer, _ours: Answer) -> Answer:
    """QUERY_CONSUME_QUEUE (321). ‖ success with the remark `not set any response code`. ‖ success without a remark.
    ‖ The remark says the opposite of what is true."""
    return replace(recorded, remark=None) if recorded.remark == "not set any response code" else recorded


@deviation(
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.VIEW_BROKER_STATS_DATA,
)
def process_facts(exchange: Exchange, recorded: Answer, ours: Answer) -> Answer:
    """GET_BROKER_RUNTIME_INFO (28), GET_TOPIC_STATS_INFO (202), GET_ALL_TOPIC_CONFIG (21), VIEW_BROKER_STATS_DATA
    (315) for messages produced to a topic. ‖ figures of the Java process: start, run time, version, load, counters,
    disk, thread pools; the rate at which messages are produced to a topic; when the table of static topics was
    made. ‖ our own in the same forms, 0 for what a read-only server does not do, none of messages produced; also
    `getTransferedTps`, which clients up to 4.9 look for, `brokerVersion`, which exporters look for,
    `rocketlensBitmapEvaluations` and `rocketlensBitmapEvaluationsSkipped` (how often expressions of groups that the
    store's bitmaps know were evaluated, and how often a bitmap made that unnecessary), and `rocketlensBroker`,
    `rocketlensCluster`, `rocketlensState`, what `info` prints. Figures from the store are as recorded. ‖ They
    describe the process that answers."""
    if exchange.code == RequestCode.VIEW_BROKER_STATS_DATA:
        name, key = exchange.ext_fields["statsName"], exchange.ext_fields["statsKey"]
        none = Answer(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist", {}, b"")
        return none if name.startswith("TOPIC_PUT_") else recorded
    if recorded.code != 0 or ours.code != 0:
        return recorded
    body, own = parse_java_json(recorded.body.decode()), parse_java_json(ours.body.decode())
    if exchange.code == RequestCode.GET_TOPIC_STATS_INFO:
        body["topicPutTps"] = own["topicPutTps"]
        assert body["topicPutTps"] == 0.0
        return _json_answer(recorded, body)
    if exchange.code == RequestCode.GET_ALL_TOPIC_CONFIG:
        body["mappingDataVersion"] = own["mappingDataVersion"]
        assert body["mappingDataVersion"].keys() == {"counter", "stateVersion", "timestamp"}
        return _json_answer(recorded, body)
    table, own_table = body["table"], own["table"]
    # As the recorded broker says of itself, unless its files say nothing of it, as where they are in RocksDB.
    assert own_table["brokerVersionDesc"] in (table["brokerVersionDesc"], "V5_5_1")
    for name in [name for name in table if not STORE_FACTS.fullmatch(name)]:
        if PATH_FACTS.fullmatch(name):
            del table[name]
        else:
            assert _form(own_table[name]) == _form(table[name]), name
            table[name] = own_table[name]
    # The name that clients up to 4.9 know.
    table["getTransferedTps"] = own_table["getTransferredTps"]
    # What they, and exporters, know the version by; the broker that was recorded gave its name alone.
    table["brokerVersion"] = own_table["brokerVersion"]
    assert (table["brokerVersion"], table["brokerVersionDesc"]) in (("513", "V5_5_0"), ("515", "V5_5_1"))
    for name in ("rocketlensBitmapEvaluations", "rocketlensBitmapEvaluationsSkipped"):
        table[name] = own_table[name]
        assert table[name] == "0"
    for name in (BROKER_FIGURE, CLUSTER_FIGURE, STATE_FIGURE):
        table[name] = own_table[name]
    return _json_answer(recorded, body)


def _form(text: str) -> str:
    """What the first word of a figure is, which is what the tools read: a number of which kind, or no number."""
    first = text.split(" ")[0]
    return "integer" if first.isdecimal() else "decimal" if re.fullmatch(r"\d+\.\d+", first) else "text"


@deviation(RequestCode.GET_BROKER_CONFIG, RequestCode.GET_NAMESRV_CONFIG)
def own_configuration(exchange: Exchange, recorded: Answer, ours: Answer) -> Answer:
    """GET_BROKER_CONFIG (26), GET_NAMESRV_CONFIG (319). ‖ hundreds of properties of a Java broker, and of a name
    server. ‖ the properties that are true of RocketLens or of the store (the sizes of its files), and those that
    exporting tools need. ‖ The others configure parts that RocketLens does not have."""
    body, own = value_of(recorded.body), value_of(ours.body)
    assert own.keys() <= body.keys() | {*EXPORTED.split()}
    assert exchange.code != RequestCode.GET_BROKER_CONFIG or own.keys() >= {*EXPORTED.split()}
    fields = dict(recorded.ext_fields)
    if "version" in fields:
        assert json.loads(ours.ext_fields["version"]).keys() == json.loads(fields["version"]).keys()
        fields["version"] = ours.ext_fields["version"]
    return dataclasses.replace(recorded, ext_fields=fields, body=ours.body)


REQUESTS = rows("""
address of a broker on IPv6, in routes and lists ‖ in brackets (`[::1]:10911`), because clients split it at the last
  colon ‖ its `brokerIP1`, as it is written there ‖ broker.config.Endpoint
figures of the broker as a whole, `BROKER_PUT_NUMS`, `BROKER_GET_NUMS` (315) ‖ exist from the start, so that exporters
  show 0 ‖ has none until a message was produced or consumed ‖ broker.service.processors.broker_admin
a pull (11, 361) whose own expression does not compile, or is of an unknown type ‖ SUBSCRIPTION_PARSE_FAILED (23), the
  place marked under the text ‖ sends everything ‖ broker.service.processors.pull_message
times of a key query (12) ‖ compared with the store time, to the millisecond ‖ with those of the index entry, whole
  seconds behind the file's first message: it misses a message in the first second ‖ storage.kernels.lookups
who subscribes to lite topics (`getParentTopicInfo` and the like) ‖ not answered; what a store has of them is in
  `/api/v1/light-topics` ‖ answers, from memory ‖ storage.store.light_topics
`brokerVersionDesc` ‖ the newest release that leaves such files: V4_9_8 where no topic in `topics.json` has
  `attributes`, V5_5_0 where offsets of pulls are kept (`pullOffsetTable`), else V5_5_1. Every store is answered for
  as by 5.5.1 ‖ its own ‖ storage.layout.store_config
tags of a heartbeat's subscription ‖ are read from its expression ‖ trusts the hashes that the client sends ‖
  broker.service.consumers.subscriptions
a group's current expression ‖ takes precedence over that of `consumerFilter.json` ‖ ignores one that is not newer by
  its clock ‖ broker.service.consumers.subscriptions
a message of a retry topic that does not name the topic it came from, with `--filter-support-retry` ‖ is delivered ‖
  SYSTEM_ERROR (1) with a `NullPointerException` to every pull that meets it ‖ storage.filter.retry
a header that is no valid command (`opaque` of 2^31) ‖ SYSTEM_ERROR (1) with the name of the member; the connection
  lives. An unknown ordinal of `language` counts as OTHER ‖ its decoder fails, and the connection is closed ‖
  protocol.command
a view (33) that names a topic ‖ the record if it names that topic as its own: stored under, waits for (`REAL_TOPIC`),
  first sent to (`RETRY_TOPIC`, `DLQ_ORIGIN_TOPIC`), or a light queue it was dispatched to; else NO_PERMISSION (16),
  `The topic does not match the message`. Without a topic, or with white space, any record that starts there, as
  clients up to 4.9 ask ‖ 5.5.0 looks at the offset alone. 5.5.1 refuses more: a waiting record unless its
  `REAL_TOPIC` is named, a record of a retry or dead-letter topic unless that topic is; but consumers know a
  redelivered message only by its first topic. Recorded beside `g2-queues-5.5.1` ‖
  broker.service.processors.query_message
a pull that may wait, with an offset outside its queue ‖ PULL_RETRY_IMMEDIATELY (20), with the same next offset:
  consumers go on at once ‖ PULL_OFFSET_MOVED (21): they give up the queue for a while ‖
  broker.service.processors.pull_message
how long a pull is held ‖ 20 seconds at most: clients give up after 30 ‖ as long as it allows ‖
  broker.service.long_polling
long names, and requests that contain more than [port.md](port.md#what-one-request-may-contain) allows ‖ SYSTEM_ERROR
  (1) ‖ accepts everything ‖ broker.service.consumers.report_limits
pulls while the server stops ‖ SYSTEM_BUSY (2), `the server is stopping`: consumers ask again after one to three
  seconds ‖ closes connections without an answer, for which clients up to 4.9 wait 30 seconds ‖
  broker.service.long_polling
a member that lets the server assign queues (400) ‖ is assigned pulling, even if its group popped ‖ as the group is
  set ‖ broker.service.processors.query_assignment
codes without a handler, popping among them; codes that write ‖ REQUEST_CODE_NOT_SUPPORTED (3); NO_PERMISSION (16),
  `this broker is read-only`; a reason follows ([mqadmin.md](mqadmin.md)) ‖ serves them ‖ broker.service._refusals
the list of topics (206) if `topics.json` is lost ‖ has the retry topics of the groups in `consumerOffset.json`, by
  which `mqadmin consumerProgress` finds groups ‖ has not ‖ storage.store.topic_catalog
request code 776001, which no release has ‖ what `rocketlens.open(HOST:PORT)` asks: a message's life, what waits, what
  takes the disk, what is wrong with the store (`question` life, pending, space, doctor; `fileReservedTime` and
  `diskMaxUsedSpaceRatio` of a forecast), what is not read (notes), the copies of a message that is gone (copies). The
  body is msgpack; while the store is being read, the field `rocketlensUnderWay` and no body ‖ not supported ‖
  broker.service.store_answers
a query (12) with `rocketlensCopies=true`, which no other client sends ‖ also the copies that wait in the schedule,
  timer and half topics, are retried, or were given up, as they are stored ‖ ignores it ‖ storage.life.message_copies
the configuration of a group that the store does not have (352) ‖ a broker's defaults, not kept ‖ makes the group ‖
  broker.service.processors.consumer_manage
routes (105) to `DefaultHeartBeatSyncerTopic` and to the topics named after broker and cluster ‖ one queue, always: a
  proxy does not start without the first ([port.md](port.md#rocketmqs-own-proxy)) ‖ as in `topics.json` ‖
  storage.store.topic_catalog, broker.service.served_brokers
an offset (15, or with a pull) ‖ only from a client that joined the group on the same connection, or from the address
  of a proxy. One that arrives before the first heartbeat is kept for 60 seconds at most. A client that waits for the
  answer and did not join is a tool (`cloneGroupOffset`): NO_PERMISSION (16), since no broker ever sees it ‖ from
  anybody ‖ broker.service.consumers.member_commits
""")
"""What, ours, a broker's (empty: likewise, or no answer at all), and our modules: of requests to a sound store."""

DAMAGED_STORES = rows("""
a damaged record of the log's last segment ‖ does not end the log: intact records behind it are served, unless they
  are leftovers from before a broker cut its log there and wrote on: stored more than a second before the last record
  in front of the damage, or at a queue offset where a queue has an earlier record. Not recognized: old records of
  which the first starts exactly where the last new one ends, and leftovers of a broker whose clock was set back, if
  its queues are lost ‖ ends the log there ‖ storage.log.segment_end
`rocketlens find --as physical-offset` (or `offset-id`) ‖ does not look for the log's end if the next segment starts
  with an intact record; if intact records lead from the segment's start to the message; or if the newest index file
  names a later record as its last, its queue has that record at its queue offset, and neither a time in the
  checkpoint nor the start of a broker that has not stopped cleanly since (`abort`) is newer by more than a second.
  Not recognized: a copy without `abort` of a store whose broker cut its log less than a minute before ‖  ‖
  storage.query.sure_record
a BLANK (0xCBD43194) ‖ counts only if its size leads exactly to the next segment or, in the last, to where that would
  start. Another is damage: what lies behind is answered and rebuilt. While the log of a running broker is followed,
  one whose size is not right yet, or a part of its eight bytes, means that nothing is there yet ‖ trusts any BLANK:
  it dispatches, indexes and recovers nothing of what lies between, but delivers it once a rebuild made units for it ‖
  storage.kernels.records, storage.log.segment_list
the end of a queue ‖ behind its last sound unit (its record has this topic, queue and queue offset), however many
  before it are damaged. If other units follow it, all of the log behind its message is searched for later ones: in
  one pass for all queues, SYSTEM_BUSY (2) with its progress meanwhile. Units that no broker writes (a negative
  offset, a size of 0 or less) count whether the log has their messages or not. Units that ascend from the log's end
  on are left over if 64 MiB of log behind the last message have no other. A queue whose last units are zero ends
  before them, unless its last file holds nothing else ‖ at the first damaged unit of its last three files ‖
  storage.queue._queue_end
the beginning of a queue ‖ the first message that the log still has. If units before the first sound one are empty or
  do not ascend, the log is read from its beginning, once for all requests; until then SYSTEM_BUSY (2) with the
  progress. An expired message's unit is trusted if it fits those around it. For a light queue (`%LMQ%`) the log is
  read only if a file may be lost ‖ a binary search takes a damaged unit for that of an expired message ‖
  storage.queue._queue_begin
a queue file that is lost at the beginning or at the end ‖ hides no messages: if the first unit's message is not
  expired the log is searched for earlier ones; if the last file is full or empty, or no file has a unit, once for
  later ones. So is the log for a queue whose directory is lost: something else has its name, or it is gone and
  `consumerOffset.json` has an offset above 0 in it; all such queues are searched in one pass. Where `consumequeue/`
  is missing, empty or no directory, all queues are derived from the log, as those of RocksDB are. Another queue
  without a directory is empty ‖ the bounds of the existing files ‖ storage.queue.queue_hole,
  storage.queue._queue_begin
a unit that does not lead between the messages of the units around it ‖ is not trusted, and neither is its tag. One
  that does, but leads to a message of another queue or has another tag, is skipped if its tag does not pass the
  filter, as by a broker ‖  ‖ storage.queue._damaged_run, storage.queue._wrong_batches
a hole of a queue: units that lead to no message of it, or whose file is gone ‖ a pull returns the messages that the
  log has for these queue offsets, in order and through its filter: a short pass at once, a longer one shared by all,
  SYSTEM_BUSY (2) with its progress meanwhile. Messages that the log does not have are skipped, and counted in the
  remark, the log and `rocketlens_queue_hole_messages_total` ‖ omits them silently; if a file is gone PULL_NOT_FOUND
  (19, `OFFSET_FOUND_NULL`) with the next file's offset ‖ storage.queue.queue_holes, broker.service.background_work
what cannot be read (no descriptors, no right, a file in a topic's place; an unreadable segment) ‖ is never answered
  as empty: pulls SYSTEM_BUSY (2), offsets, statistics, lists and routes SYSTEM_ERROR (1), with the reason ‖ does not
  start, or takes queues for empty and sends consumers to offset 0 ‖ storage.queue.queue_store
the offset of a group while `consumerOffset.json` cannot be read ‖ is unknown. Its `.bak` is used if the file is
  missing, empty or damaged, not if the system refuses access. QUERY_CONSUMER_OFFSET (14) gets no answer at all:
  clients up to 4.9.8 take every error there for *no offset*, start at an end of the queue and commit that; without an
  answer they ask again after 20 seconds. Requests for the progress of groups (208, 300, 343) get an error with the
  reason ‖ starts with an empty table ‖ broker.service.dispatcher.is_better_unanswered, storage.layout.store_config
other files of `config/` that cannot be read ‖ are named in the errors of requests that need them; everything else is
  served, and a group's right to consume is a broker's default ‖  ‖ storage.layout.store_config
""")
"""Of a store with damage."""
