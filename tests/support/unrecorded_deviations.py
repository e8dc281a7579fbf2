"""Where our answers differ on purpose in what no replayed session shows: rows of docs/deviations.md in the site.

What damage does to a broker's own start is in docs/rescue.md. The tests of the named modules cover each difference.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Unrecorded:
    """One difference: in what, what RocketLens does, what a Java broker does (empty: likewise, or no answer at all)."""

    what: str
    ours: str
    theirs: str
    modules: tuple[str, ...]


REQUESTS = (
    Unrecorded(
        "address of a broker on IPv6, in routes and lists",
        "in brackets (`[::1]:10911`), because clients split it at the last colon",
        "its `brokerIP1`, as it is written there",
        ("broker.config.Endpoint",),
    ),
    Unrecorded(
        "figures of the broker as a whole, `BROKER_PUT_NUMS`, `BROKER_GET_NUMS` (315)",
        "exist from the start, so that exporters show 0",
        "has none until a message was produced or consumed",
        ("broker.service.processors.broker_admin",),
    ),
    Unrecorded(
        "a pull (11, 361) whose own expression does not compile, or is of an unknown type",
        "SUBSCRIPTION_PARSE_FAILED (23), the place marked under the text",
        "sends everything",
        ("broker.service.processors.pull_message",),
    ),
    Unrecorded(
        "times of a key query (12)",
        "compared with the store time, to the millisecond",
        "with those of the index entry, whole seconds behind the file's first message: it misses a message in the "
        "first second",
        ("storage.kernels.lookups",),
    ),
    Unrecorded(
        "who subscribes to lite topics (`getParentTopicInfo` and the like)",
        "not answered; what a store has of them is in `/api/v1/light-topics`",
        "answers, from memory",
        ("storage.store.light_topics",),
    ),
    Unrecorded(
        "`brokerVersionDesc`",
        "the newest release that leaves such files: V4_9_8 where no topic in `topics.json` has `attributes`, V5_5_0 "
        "where offsets of pulls are kept (`pullOffsetTable`), else V5_5_1. Every store is answered for as by 5.5.1",
        "its own",
        ("storage.layout.store_config",),
    ),
    Unrecorded(
        "tags of a heartbeat's subscription",
        "are read from its expression",
        "trusts the hashes that the client sends",
        ("broker.service.consumers.subscriptions",),
    ),
    Unrecorded(
        "a group's current expression",
        "takes precedence over that of `consumerFilter.json`",
        "ignores one that is not newer by its clock",
        ("broker.service.consumers.subscriptions",),
    ),
    Unrecorded(
        "a message of a retry topic that does not name the topic it came from, with `--filter-support-retry`",
        "is delivered",
        "SYSTEM_ERROR (1) with a `NullPointerException` to every pull that meets it",
        ("storage.filter.retry",),
    ),
    Unrecorded(
        "a header that is no valid command (`opaque` of 2^31)",
        "SYSTEM_ERROR (1) with the name of the member; the connection lives. An unknown ordinal of `language` counts "
        "as OTHER",
        "its decoder fails, and the connection is closed",
        ("protocol.command",),
    ),
    Unrecorded(
        "a view (33) that names a topic",
        "the record if it names that topic as its own: stored under, waits for (`REAL_TOPIC`), first sent to "
        "(`RETRY_TOPIC`, `DLQ_ORIGIN_TOPIC`), or a light queue it was dispatched to; else NO_PERMISSION (16), `The "
        "topic does not match the message`. Without a topic, or with white space, any record that starts there, as "
        "clients up to 4.9 ask",
        "5.5.0 looks at the offset alone. 5.5.1 refuses more: a waiting record unless its `REAL_TOPIC` is named, a "
        "record of a retry or dead-letter topic unless that topic is; but consumers know a redelivered message only by "
        "its first topic. Recorded beside `g2-queues-5.5.1`",
        ("broker.service.processors.query_message",),
    ),
    Unrecorded(
        "a pull that may wait, with an offset outside its queue",
        "PULL_RETRY_IMMEDIATELY (20), with the same next offset: consumers go on at once",
        "PULL_OFFSET_MOVED (21): they give up the queue for a while",
        ("broker.service.processors.pull_message",),
    ),
    Unrecorded(
        "how long a pull is held",
        "20 seconds at most: clients give up after 30",
        "as long as it allows",
        ("broker.service.long_polling",),
    ),
    Unrecorded(
        "long names, and requests that contain more than [port.md](port.md#what-one-request-may-contain) allows",
        "SYSTEM_ERROR (1)",
        "accepts everything",
        ("broker.service.consumers.report_limits",),
    ),
    Unrecorded(
        "pulls while the server stops",
        "SYSTEM_BUSY (2), `the server is stopping`: consumers ask again after one to three seconds",
        "closes connections without an answer, for which clients up to 4.9 wait 30 seconds",
        ("broker.service.long_polling",),
    ),
    Unrecorded(
        "a member that lets the server assign queues (400)",
        "is assigned pulling, even if its group popped",
        "as the group is set",
        ("broker.service.processors.query_assignment",),
    ),
    Unrecorded(
        "codes without a handler, popping among them; codes that write",
        "REQUEST_CODE_NOT_SUPPORTED (3); NO_PERMISSION (16), `this broker is read-only`; a reason follows "
        "([mqadmin.md](mqadmin.md))",
        "serves them",
        ("broker.service._refusals",),
    ),
    Unrecorded(
        "the list of topics (206) if `topics.json` is lost",
        "has the retry topics of the groups in `consumerOffset.json`, by which `mqadmin consumerProgress` finds groups",
        "has not",
        ("storage.store.topic_catalog",),
    ),
    Unrecorded(
        "request code 776001, which no release has",
        "what `rocketlens.open(HOST:PORT)` asks: a message's life, what waits, what takes the disk, what is wrong with "
        "the store (`question` life, pending, space, doctor; `fileReservedTime` and `diskMaxUsedSpaceRatio` of a "
        "forecast), what is not read (notes), the copies of a message that is gone (copies). The body is msgpack; "
        "while the store is being read, the field `rocketlensUnderWay` and no body",
        "not supported",
        ("broker.service.store_answers",),
    ),
    Unrecorded(
        "a query (12) with `rocketlensCopies=true`, which no other client sends",
        "also the copies that wait in the schedule, timer and half topics, are retried, or were given up, as they are "
        "stored",
        "ignores it",
        ("storage.life.message_copies",),
    ),
    Unrecorded(
        "the configuration of a group that the store does not have (352)",
        "a broker's defaults, not kept",
        "makes the group",
        ("broker.service.processors.consumer_manage",),
    ),
    Unrecorded(
        "routes (105) to `DefaultHeartBeatSyncerTopic` and to the topics named after broker and cluster",
        "one queue, always: a proxy does not start without the first ([port.md](port.md#rocketmqs-own-proxy))",
        "as in `topics.json`",
        ("storage.store.topic_catalog", "broker.service.served_brokers"),
    ),
    Unrecorded(
        "an offset (15, or with a pull)",
        "only from a client that joined the group on the same connection, or from the address of a proxy. One that "
        "arrives before the first heartbeat is kept for 60 seconds at most. A client that waits for the answer and did "
        "not join is a tool (`cloneGroupOffset`): NO_PERMISSION (16), since no broker ever sees it",
        "from anybody",
        ("broker.service.consumers.member_commits",),
    ),
)
"""Of requests to a sound store."""

DAMAGED_STORES = (
    Unrecorded(
        "a damaged record of the log's last segment",
        "does not end the log: intact records behind it are served, unless they are leftovers from before a broker cut "
        "its log there and wrote on: stored more than a second before the last record in front of the damage, or at a "
        "queue offset where a queue has an earlier record. Not recognized: old records of which the first starts "
        "exactly where the last new one ends, and leftovers of a broker whose clock was set back, if its queues are "
        "lost",
        "ends the log there",
        ("storage.log.segment_end",),
    ),
    Unrecorded(
        "`rocketlens find --as physical-offset` (or `offset-id`)",
        "does not look for the log's end if the next segment starts with an intact record; if intact records lead from "
        "the segment's start to the message; or if the newest index file names a later record as its last, its queue "
        "has that record at its queue offset, and neither a time in the checkpoint nor the start of a broker that has "
        "not stopped cleanly since (`abort`) is newer by more than a second. Not recognized: a copy without `abort` of "
        "a store whose broker cut its log less than a minute before",
        "",
        ("storage.query.sure_record",),
    ),
    Unrecorded(
        "a BLANK (0xCBD43194)",
        "counts only if its size leads exactly to the next segment or, in the last, to where that would start. Another "
        "is damage: what lies behind is answered and rebuilt. While the log of a running broker is followed, one whose "
        "size is not right yet, or a part of its eight bytes, means that nothing is there yet",
        "trusts any BLANK: it dispatches, indexes and recovers nothing of what lies between, but delivers it once a "
        "rebuild made units for it",
        ("storage.kernels.records", "storage.log.segment_list"),
    ),
    Unrecorded(
        "the end of a queue",
        "behind its last sound unit (its record has this topic, queue and queue offset), however many before it are "
        "damaged. If other units follow it, all of the log behind its message is searched for later ones: in one pass "
        "for all queues, SYSTEM_BUSY (2) with its progress meanwhile. Units that no broker writes (a negative offset, "
        "a size of 0 or less) count whether the log has their messages or not. Units that ascend from the log's end on "
        "are left over if 64 MiB of log behind the last message have no other. A queue whose last units are zero ends "
        "before them, unless its last file holds nothing else",
        "at the first damaged unit of its last three files",
        ("storage.queue._queue_end",),
    ),
    Unrecorded(
        "the beginning of a queue",
        "the first message that the log still has. If units before the first sound one are empty or do not ascend, the "
        "log is read from its beginning, once for all requests; until then SYSTEM_BUSY (2) with the progress. An "
        "expired message's unit is trusted if it fits those around it. For a light queue (`%LMQ%`) the log is read "
        "only if a file may be lost",
        "a binary search takes a damaged unit for that of an expired message",
        ("storage.queue._queue_begin",),
    ),
    Unrecorded(
        "a queue file that is lost at the beginning or at the end",
        "hides no messages: if the first unit's message is not expired the log is searched for earlier ones; if the "
        "last file is full or empty, or no file has a unit, once for later ones. So is the log for a queue whose "
        "directory is lost: something else has its name, or it is gone and `consumerOffset.json` has an offset above 0 "
        "in it; all such queues are searched in one pass. Where `consumequeue/` is missing, empty or no directory, all "
        "queues are derived from the log, as those of RocksDB are. Another queue without a directory is empty",
        "the bounds of the existing files",
        ("storage.queue.queue_hole", "storage.queue._queue_begin"),
    ),
    Unrecorded(
        "a unit that does not lead between the messages of the units around it",
        "is not trusted, and neither is its tag. One that does, but leads to a message of another queue or has another "
        "tag, is skipped if its tag does not pass the filter, as by a broker",
        "",
        ("storage.queue._queue_repair", "storage.queue._doubted_batches"),
    ),
    Unrecorded(
        "a hole of a queue: units that lead to no message of it, or whose file is gone",
        "a pull returns the messages that the log has for these queue offsets, in order and through its filter: a "
        "short pass at once, a longer one shared by all, SYSTEM_BUSY (2) with its progress meanwhile. Messages that "
        "the log does not have are skipped, and counted in the remark, the log and "
        "`rocketlens_queue_hole_messages_total`",
        "omits them silently; if a file is gone PULL_NOT_FOUND (19, `OFFSET_FOUND_NULL`) with the next file's offset",
        ("storage.queue.queue_holes", "broker.service.background_work"),
    ),
    Unrecorded(
        "what cannot be read (no descriptors, no right, a file in a topic's place; an unreadable segment)",
        "is never answered as empty: pulls SYSTEM_BUSY (2), offsets, statistics, lists and routes SYSTEM_ERROR (1), "
        "with the reason",
        "does not start, or takes queues for empty and sends consumers to offset 0",
        ("storage.queue.queue_store",),
    ),
    Unrecorded(
        "the offset of a group while `consumerOffset.json` cannot be read",
        "is unknown. Its `.bak` is used if the file is missing, empty or damaged, not if the system refuses access. "
        "QUERY_CONSUMER_OFFSET (14) gets no answer at all: clients up to 4.9.8 take every error there for *no offset*, "
        "start at an end of the queue and commit that; without an answer they ask again after 20 seconds. Requests for "
        "the progress of groups (208, 300, 343) get an error with the reason",
        "starts with an empty table",
        ("broker.service.dispatcher.is_better_unanswered", "storage.layout.store_config"),
    ),
    Unrecorded(
        "other files of `config/` that cannot be read",
        "are named in the errors of requests that need them; everything else is served, and a group's right to consume "
        "is a broker's default",
        "",
        ("storage.layout.store_config",),
    ),
)
"""Of a store with damage."""
