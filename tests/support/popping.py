"""A store as a broker leaves it behind for a group that pops, and a plain model of what the group has."""

import json
import struct
from dataclasses import dataclass, field

from store_writer import START_TIMESTAMP

TIMER, REVIVE = "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster"
ACK_INTERVAL = 1_000
"""Before its time is over a checkpoint comes to the revive topic, in ms."""


@dataclass
class Delivered:
    """One record that a group pops: of a topic, or of the retry topic. `state` is unread, out, acknowledged or back."""

    key: str
    topic: str
    queue_offset: int
    retries: int
    state: str = "unread"
    until: int | None = None
    pop: tuple[int, int] = (0, 0)


@dataclass
class OpenPop:
    """A checkpoint, the records it is of, and when their time is over; `acknowledged` are queue offsets."""

    pop: tuple[str, int, int]
    records: list[Delivered]
    until: int
    acknowledged: set[int] = field(default_factory=set)


class PoppingBroker:
    """Writes the messages of one topic and of one group's retry topic, and all that is noted of the group's pops."""

    def __init__(self, writer, *, topic="T", group="g", has_origin=True) -> None:
        self.writer, self.topic, self.group, self.has_origin = writer, topic, group, has_origin
        self.retry_topic = f"%RETRY%{group}_{topic}"
        self.now = START_TIMESTAMP
        self.queues: dict[str, list[Delivered]] = {topic: [], self.retry_topic: []}
        self.next: dict[str, int] = {}
        self.checkpoints: dict[tuple[str, int, int], OpenPop] = {}
        self._timer: list[tuple[int, str, dict[str, object]]] = []
        self._revive: list[tuple[str, dict[str, object]]] = []
        self._revived = 0
        self.timer_read = 0

    def _append(self, topic: str, body: bytes, **more: object) -> int:
        self.now += 1
        written = self.writer.append(topic, body, store_timestamp=self.now, **more)  # type: ignore[arg-type]
        return written.queue_offset

    def send(self, key: str) -> None:
        offset = self._append(self.topic, key.encode(), unique_key=key, born_timestamp=self._born(key))
        self.queues[self.topic].append(Delivered(key, self.topic, offset, 0))

    def _born(self, key: str) -> int:
        return START_TIMESTAMP + sum(map(ord, key))

    def pop(self, topic: str, count: int, invisible: int) -> None:
        first = self.next.get(topic, 0)
        records = self.queues[topic][first : first + count]
        if records:
            self.next[topic] = first + len(records)
            self._check(records, records[0].queue_offset, invisible)

    def _check(self, records: list[Delivered], start: int, invisible: int) -> None:
        self.now += 1
        pop = (records[0].topic, start, self.now)
        self.checkpoints[pop] = OpenPop(pop, list(records), self.now + invisible)
        for record in records:
            record.state, record.until, record.pop = "out", self.now + invisible, (start, self.now)
        differences = [record.queue_offset - start for record in records]
        note = {"bm": 0, "bn": "broker-a", "c": self.group, "d": differences, "it": invisible, "n": len(records)}
        note |= {"pt": pop[2], "q": 0, "ro": 0, "so": start, "sp": False, "t": records[0].topic}
        self._note("ck", note, pop[2] + invisible - ACK_INTERVAL)

    def _note(self, tag: str, note: dict[str, object], due: int) -> None:
        if due <= self.now:  # it is not stored in the timer topic
            self._to_revive(tag, note)
            return
        properties = {"REAL_TOPIC": REVIVE, "REAL_QID": "0", "TIMER_OUT_MS": str(due // 1000 * 1000)}
        self._append(TIMER, json.dumps(note).encode(), tags=tag, properties=properties)
        self._timer.append((due // 1000 * 1000, tag, note))

    def _to_revive(self, tag: str, note: dict[str, object]) -> None:
        properties = {"REAL_TOPIC": REVIVE, "REAL_QID": "0"}
        self._append(REVIVE, json.dumps(note).encode(), tags=tag, properties=properties)
        self._revive.append((tag, note))

    def acknowledge(self, records: list[Delivered]) -> None:
        for pop in {(record.topic, *record.pop) for record in records if record.state == "out"}:
            own = [each for each in records if each.state == "out" and (each.topic, *each.pop) == pop]
            self._acknowledge(pop, own)
            for record in own:
                record.state, record.until = "acknowledged", None

    def _acknowledge(self, pop: tuple[str, int, int], records: list[Delivered]) -> None:
        note: dict[str, object] = {"bn": "broker-a", "c": self.group, "pt": pop[2], "q": 0, "so": pop[1], "t": pop[0]}
        offsets = [record.queue_offset for record in records]
        self.checkpoints[pop].acknowledged.update(offsets)
        tag, more = ("ack", {"ao": offsets[0]}) if len(offsets) == 1 else ("bAck", {"ao": -1, "aol": offsets})
        self._note(tag, note | more, self.checkpoints[pop].until)

    def extend(self, record: Delivered, invisible: int) -> None:
        """Give the group more time for a message that is out: a new checkpoint, and the old one is acknowledged."""
        if record.state == "out":
            before = (record.topic, *record.pop)
            self._check([record], record.queue_offset, invisible)
            self._acknowledge(before, [record])

    def pass_time(self, milliseconds: int) -> None:
        """Let the timer deliver what is due by then."""
        self.now += milliseconds
        due = [each for each in self._timer if each[0] <= self.now]
        self._timer = [each for each in self._timer if each[0] > self.now]
        self.timer_read = self.now
        for _, tag, note in due:
            self._to_revive(tag, note)

    def revive(self) -> None:
        for tag, note in self._revive[self._revived :]:
            if tag == "ck":
                checkpoint = self.checkpoints[str(note["t"]), int(str(note["so"])), int(str(note["pt"]))]
                if checkpoint.until > self.now:
                    return
                for record in checkpoint.records:
                    if record.queue_offset not in checkpoint.acknowledged:
                        self._put_back(record)
            self._revived += 1

    def _put_back(self, record: Delivered) -> None:
        origin = {"ORIGIN_GROUP": self.group} if self.has_origin else {}
        more = {"properties": {"1ST_POP_TIME": str(self.now), **origin}, "unique_key": record.key}
        more |= {"born_timestamp": self._born(record.key), "reconsume_times": record.retries + 1}
        offset = self._append(self.retry_topic, record.key.encode(), **more)
        record.state, record.until = "back", None
        self.queues[self.retry_topic].append(Delivered(record.key, self.retry_topic, offset, record.retries + 1))

    def records(self) -> list[Delivered]:
        return [record for records in self.queues.values() for record in records]

    def last(self, key: str) -> Delivered:
        return [record for record in self.records() if record.key == key][-1]

    def close(self) -> None:
        self.writer.close()
        config = self.writer.root / "config"
        config.mkdir(exist_ok=True)
        table = {f"{topic}@{self.group}": {"0": offset} for topic, offset in self.next.items()}
        if self.queues[self.retry_topic]:
            table.setdefault(f"{self.retry_topic}@{self.group}", {"0": 0})
        if self._revived:
            table[f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP"] = {"0": self._revived - 1}
        (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
        groups = {"subscriptionGroupTable": {self.group: {"groupName": self.group}}}
        (config / "subscriptionGroup.json").write_text(json.dumps(groups))
        read = sum(written.topic == TIMER for written in self.writer.written)
        check = struct.pack(">qqqqqqq", self.timer_read, 0, read, read, 0, self.now, 1)
        (config / "timercheck").write_bytes(check.ljust(4096, b"\0"))
