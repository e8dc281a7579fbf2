"""The judge of trials: what a store has to answer after damage, against what a server answers; none of ours."""

import contextlib
import json
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from damage_oracle import intact
from oracles import signed
from trial_stores import Allowance, Queue

PULL, QUERY_CONSUMER_OFFSET, QUERY, VIEW = 11, 14, 12, 33
TIME_SEARCH, MAXIMUM, MINIMUM = 29, 30, 31
SUCCESS, BUSY, NOT_FOUND, RETRY, MOVED = 0, 2, 19, 20, 21
WINDOW = 64
"""Requests that are under way at a time."""


@dataclass(frozen=True)
class Answer:
    code: int
    remark: str
    fields: Mapping[str, str]
    body: bytes

    def number(self, name: str) -> int:
        return int(self.fields.get(name, -1))


class Closed(Exception):
    """The server closed the connection, or did not answer in time."""


class TrialClient:
    """One connection; `seconds` is how long an answer may take."""

    def __init__(self, address: tuple[str, int], seconds: float = 60.0) -> None:
        self._socket = socket.create_connection(tuple(address), 60)
        self._socket.settimeout(seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._opaque = 0
        self.asked = 0

    def close(self) -> None:
        self._socket.close()

    def ask(self, code: int, **fields: object) -> Answer:
        (answer,) = self.ask_all([(code, fields)])
        return answer

    def ask_all(self, requests):
        """Answers in the order of the requests, of which many are sent at a time."""
        waiting = list(requests)
        for start in range(0, len(waiting), WINDOW):
            window = waiting[start : start + WINDOW]
            first = self._opaque + 1
            self._socket.sendall(b"".join(self._frame(code, fields) for code, fields in window))
            found: dict[int, Answer] = {}
            while len(found) < len(window):
                opaque, answer = self._receive()
                if opaque >= first:
                    found[opaque] = answer
            yield from (found[first + number] for number in range(len(window)))

    def _frame(self, code: int, fields: Mapping[str, object]) -> bytes:
        self._opaque += 1
        self.asked += 1
        texts = {name: str(value) for name, value in fields.items()}
        command = {"code": code, "flag": 0, "language": "JAVA", "opaque": self._opaque, "version": 453}
        header = json.dumps(command | {"extFields": texts}, ensure_ascii=False).encode()
        return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header

    def _receive(self) -> tuple[int, Answer]:
        size = int.from_bytes(self._take(4), "big")
        frame = self._take(size)
        length = int.from_bytes(frame[1:4], "big")
        header = json.loads(frame[4 : 4 + length])
        if not header["flag"] & 1:
            return -1, Answer(-1, "", {}, b"")
        fields = header.get("extFields") or {}
        return header["opaque"], Answer(header["code"], header.get("remark") or "", fields, frame[4 + length :])

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                piece = self._socket.recv(1 << 18)
            except TimeoutError as error:
                raise Closed("no answer in time") from error
            if not piece:
                raise Closed("the server closed the connection")
            self._received += piece
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


PATIENCE_SECONDS = 60.0
"""How long an answer may be put off: SYSTEM_BUSY, or what says that it is not complete."""

MOST_PULLS = 4000
MOST_TIMES = 30
SIZE_OF_PAGE = 64
EXPRESSION = "n >= 20 AND n < 2000 AND color = 'red'"
END_OF_TIME = 2**63 - 1


def passes_expression(message):
    """What `EXPRESSION` says of a message."""
    properties = message.properties
    return "n" in properties and 20 <= int(properties["n"]) < 2000 and properties.get("color") == "red"


def is_green_or_blue(message):
    return message.tag in ("green", "blue")


@dataclass
class Verdict:
    """What came of a trial. `failures` has sentences, each with its kind in front; counts are of messages."""

    asked: int = 0
    requests: int = 0
    missed: int = 0
    strangers: int = 0
    damaged: int = 0
    other: int = 0
    failures: list[str] = field(default_factory=list)
    excused: set[Queue] = field(default_factory=set)

    def __iadd__(self, other: "Verdict") -> "Verdict":
        for name in ("asked", "requests", "missed", "strangers", "damaged", "other"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures += other.failures
        return self

    @property
    def is_good(self) -> bool:
        return not self.failures

    def line(self, variants: int) -> str:
        return (
            f"{variants} variants, {self.asked} records asked ({self.requests} requests): {self.missed} missed, "
            f"{self.strangers} strangers, {self.damaged} damaged returned, {self.other} other failures"
        )


class Judge:
    """Asks one server for all messages of one store.

    Of the messages one in `every`, beginning with number `phase`, and those around damage are asked for by themselves;
    queues are always drained as a whole.
    """

    def __init__(
        self, client, good, disk, allowed=None, *, every=1, phase=0, patience_seconds=PATIENCE_SECONDS
    ) -> None:
        self.client, self.good, self.disk, self.allowed = client, good, disk, allowed or Allowance()
        self.every, self.phase = every, phase
        self.patience_seconds = patience_seconds
        self.unlisted = {place for _, place in self.allowed.unqueued}
        self.unlisted |= {
            message.physical_offset for message in good.messages if self.allowed.unknown & set(message.places)
        }
        self.verdict = Verdict()
        self.by_offset = {message.physical_offset: message for message in good.messages}
        self.stale = {each.physical_offset for each in good.stale}
        self.intact = {message.physical_offset for message in good.messages if disk.has(message)}

    def judge(self) -> Verdict:
        """Ask for everything."""
        for way in (self.ask_by_offset, self.ask_by_keys, self.ask_queues):
            try:
                way()
            except Closed as error:
                self.fail("other", way.__name__, str(error))
        self.verdict.requests = self.client.asked
        return self.verdict

    def fail(self, kind: str, where: str, what: str, count: int = 1) -> None:
        setattr(self.verdict, kind, getattr(self.verdict, kind) + count)
        self.verdict.failures.append(f"{kind}: {where}: {what}")

    def is_intact(self, message):
        return message.physical_offset in self.intact

    def _some(self, messages):
        """Some of them, one in `every`, with all that are damaged and those beside them."""
        whole = [True, *map(self.is_intact, messages), True]
        return [
            message for number, message in enumerate(messages)
            if (number + self.phase) % self.every == 0 or not all(whole[number : number + 3])
        ]  # fmt: skip

    def messages_of(self, body, where):
        """The true messages among the records of an answer; whatever else is there is a failure."""
        position = 0
        while position < len(body):
            size = signed(body, position, 4)
            if not 91 <= size <= len(body) - position:
                self.fail("damaged", where, f"bytes that are no record: {body[position : position + 40].hex()}")
                return
            message = self.message_of(body[position : position + size], where)
            if message is not None:
                yield message
            position += size

    def message_of(self, record, where):
        """The message of a record, if it is a true one.

        None for one that was changed in a way that no checksum shows, and for one that is a failure.
        """
        physical_offset = signed(record, 28, 8)
        message = self.by_offset.get(physical_offset)
        if message is not None and message.record == record:
            if self.is_intact(message):
                return message
            self.fail("strangers", where, f"the record at {physical_offset}, which is not on the disk any more")
        elif intact(record, 0, physical_offset) is None:
            self.fail("damaged", where, f"the record at {physical_offset} is returned, though it is damaged")
        elif physical_offset in self.stale:
            self.fail("strangers", where, f"the record at {physical_offset} is left over from a log that was cut")
        elif message is None or self.disk.bytes_at(physical_offset, len(record)) != record:
            self.fail("strangers", where, f"a record that says it is at {physical_offset}")
        return None

    def ask_by_offset(self) -> None:
        """Every message by its physical offset; none that is damaged or left over."""
        chosen = self._some(self.good.messages)
        places = [message.physical_offset for message in chosen] + sorted(self.stale)
        answers = self.client.ask_all((VIEW, {"offset": place}) for place in places)
        for place, answer in zip(places, answers, strict=True):
            where = f"by offset {place}"
            if answer.code == SUCCESS:
                found = [message.physical_offset for message in self.messages_of(answer.body, where)]
                if found not in ([place], []):
                    self.fail("strangers", where, f"found {found}")
            else:
                found = []
            if place in self.intact and place not in self.stale:
                self.verdict.asked += 1
                if found != [place]:
                    self.fail("missed", where, f"code {answer.code}, {answer.remark}")

    def ask_by_keys(self) -> None:
        """Every key, unique key and tag of intact messages."""
        wanted: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for message in self.good.messages:
            if self.is_intact(message):
                for key in message.keys:
                    wanted[message.topic, "K", key].append(message.physical_offset)
                if message.unique_key:
                    wanted[message.topic, "U", message.unique_key].append(message.physical_offset)
                if message.tag:
                    wanted[message.topic, "T", message.tag].append(message.physical_offset)
        some = {message.physical_offset for message in self._some(self.good.messages)}
        few = [each for each, places in wanted.items() if len(places) > 1 or places[0] in some]
        answers = self.client.ask_all((QUERY, self._question(*each)) for each in few)
        for (topic, kind, key), answer in zip(few, list(answers), strict=True):
            self._check_key(topic, kind, key, wanted[topic, kind, key], answer)

    def _question(self, topic: str, kind: str, key: str, before: str = "") -> dict[str, object]:
        fields: dict[str, object] = {
            "topic": topic, "key": key, "maxNum": SIZE_OF_PAGE, "beginTimestamp": 0, "endTimestamp": END_OF_TIME,
            "indexType": kind,
        }  # fmt: skip
        if kind == "U":
            fields["_UNIQUE_KEY_QUERY"] = "true"
        return fields | ({"lastKey": before} if before else {})

    def _check_key(self, topic, kind, key, wanted, answer) -> None:
        """Take what is lacking of unqueued messages for said, where an answer says that it lacks something.

        An index without tags leaves tags to the queues.
        """
        where, until = f"by {kind} {topic} {key}", time.monotonic() + self.patience_seconds
        self.verdict.asked += len(wanted)
        while True:
            found, is_put_off = self._pages(topic, kind, key, answer, where)
            lacking = sorted(set(wanted) - set(found))
            if lacking and is_put_off and set(lacking) <= self.unlisted:
                return
            if not lacking or not is_put_off or time.monotonic() > until:
                break
            answer = self.client.ask(QUERY, **self._question(topic, kind, key))
        if lacking:
            self.fail("missed", where, f"{shown(lacking)}; code {answer.code}, {answer.remark[:200]}", len(lacking))
        if len(found) != len(set(found)):
            self.fail("other", where, "a message twice")

    def _pages(self, topic: str, kind: str, key: str, answer: Answer, where: str) -> tuple[list[int], bool]:
        """Physical offsets that an answer, and the pages after it, hold; and whether they say that they lack some."""
        found: list[int] = []
        while True:
            page = list(self.messages_of(answer.body, where)) if answer.code == SUCCESS else []
            for message in page:
                carried = {"K": message.keys, "U": (message.unique_key,), "T": (message.tag,)}[kind]
                if message.topic != topic or key not in carried:
                    self.fail("strangers", where, f"the message at {message.physical_offset} is another")
            found += [message.physical_offset for message in page]
            cursor = answer.fields.get("rocketlensCursor")
            is_put_off = answer.code == BUSY or "rocketlensIncomplete" in answer.fields
            if not cursor or not page:
                return found, is_put_off
            answer = self.client.ask(QUERY, **self._question(topic, kind, key, cursor))

    def ask_queues(self) -> None:
        """Every queue: its ends, its messages in order, by tag, by expression, one by one, and by time."""
        for queue in self.good.queues:
            messages = [message for message in self.good.of_queue(queue) if self.is_intact(message)]
            if not messages:
                continue
            minimum = self._check_ends(queue, messages)
            if minimum is None:
                continue
            self._drain(queue, minimum, messages, "*", "all", lambda message: True)
            if queue[0] != "Batches":
                self._drain(queue, minimum, messages, "red", "tag red", lambda message: message.tag == "red")
                self._drain(queue, minimum, messages, "green || blue", "two tags", is_green_or_blue)
                self._drain(queue, minimum, messages, EXPRESSION, "SQL92", passes_expression)
            self._pull_one_by_one(queue, messages)
            if self.allowed.has_true_times:
                self._check_times(queue, messages)

    def _expected(self, queue, messages):
        """The messages that must come from a queue."""
        return [message for message in messages if (queue, message.physical_offset) not in self.allowed.unqueued]

    def _check_ends(self, queue, messages):
        """The queue's first offset, once it is plausible as the last one is; None where it stays unknown."""
        ends = []
        for code, name in ((MINIMUM, "minimum"), (MAXIMUM, "maximum")):
            answer = self._patiently(code, {"topic": queue[0], "queueId": queue[1]})
            if answer.code != SUCCESS:
                if queue not in self.allowed.unknown or not answer.remark:
                    self.fail("other", f"{name} of {queue}", f"code {answer.code}, {answer.remark}")
                return None
            ends.append(answer.number("offset"))
        expected = self._expected(queue, messages)
        if expected and ends[0] > expected[0].places[queue][0]:
            self.fail("other", f"minimum of {queue}", f"{ends[0]}, but {expected[0].places[queue][0]} is there")
        highest = self.good.of_queue(queue)[-1].places[queue][1]
        lowest = expected[-1].places[queue][1] if expected else 0
        if not lowest <= ends[1] <= highest:
            self.fail("other", f"maximum of {queue}", f"{ends[1]}, expected {lowest} to {highest}")
        return min(ends[0], expected[0].places[queue][0]) if expected else ends[0]

    def _patiently(self, code: int, fields: dict[str, object]) -> Answer:
        """The answer once it is not put off any more."""
        until = time.monotonic() + self.patience_seconds
        while True:
            answer = self.client.ask(code, **fields)
            if answer.code != BUSY or time.monotonic() > until:
                return answer
            time.sleep(0.01)

    def _pull(self, queue: Queue, offset: int, expression: str, count: int = 32) -> tuple[int, dict[str, object]]:
        return PULL, {
            "consumerGroup": "readers", "topic": queue[0], "queueId": queue[1], "queueOffset": offset,
            "maxMsgNums": count, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
            "subscription": expression, "expressionType": "SQL92" if expression == EXPRESSION else "TAG",
        }  # fmt: skip

    def _drain(self, queue, offset, messages, expression, name, is_chosen) -> None:
        where = f"drain of {queue} by {name}"
        wanted = {message.physical_offset for message in messages if is_chosen(message)}
        found = []
        may_be_others = "tag" in name and not self.allowed.has_tags
        remarks: Counter[str] = Counter()
        for _ in range(MOST_PULLS):
            answer = self._patiently(*self._pull(queue, offset, expression))
            following = answer.number("nextBeginOffset")
            remarks[f"{answer.code} {answer.remark}"] += 1
            if answer.code == SUCCESS:
                for message in self.messages_of(answer.body, where):
                    if queue not in message.places or not (is_chosen(message) or may_be_others):
                        self.fail("strangers", where, f"the message at {message.physical_offset}")
                    else:
                        found.append(message)
                if following <= offset:
                    self.fail("other", where, f"found at {offset}, to go on at {following}")
                    break
            elif answer.code == BUSY and queue in self.allowed.unknown and answer.remark:
                return
            elif answer.code not in (NOT_FOUND, RETRY, MOVED):
                self.fail("other", where, f"code {answer.code} at {offset}: {answer.remark}")
                break
            elif following == offset:
                break
            elif following < offset:
                self.fail("other", where, f"led back from {offset} to {following}, code {answer.code}, {answer.remark}")
                break
            offset = following
        self._check_drained(queue, where, wanted, found, remarks)

    def _check_drained(self, queue, where, wanted, found, remarks) -> None:
        self.verdict.asked += len(wanted)
        offsets = [message.places[queue][0] for message in found]
        if offsets != sorted(offsets if self.allowed.repeats else set(offsets)):
            self.fail("other", where, "messages twice, or in another order than the queue's")
        lacking = sorted(wanted - {message.physical_offset for message in found})
        if any((queue, place) in self.allowed.unqueued for place in lacking):
            self.verdict.excused.add(queue)
        lacking = [place for place in lacking if (queue, place) not in self.allowed.unqueued]
        if lacking:
            lost = [self.by_offset[place].places[queue][0] for place in lacking]
            text = "; ".join(f"{count} times {remark[:160]}" for remark, count in remarks.most_common(4))
            self.fail("missed", where, f"queue offsets {shown(lost)} ({text})", len(lacking))

    def _pull_one_by_one(self, queue, messages) -> None:
        """Every message by a pull that starts at it."""
        some = {message.physical_offset for message in self._some(self.good.of_queue(queue))}
        chosen = [each for each in self._expected(queue, messages) if each.physical_offset in some]
        answers = self.client.ask_all(self._pull(queue, each.places[queue][0], "*", 1) for each in chosen)
        for message, answer in zip(chosen, list(answers), strict=True):
            offset = message.places[queue][0]
            where = f"pull at {queue} {offset}"
            if answer.code == BUSY:
                answer = self._patiently(*self._pull(queue, offset, "*", 1))
            if answer.code == BUSY and queue in self.allowed.unknown and answer.remark:
                continue
            self.verdict.asked += 1
            found = list(self.messages_of(answer.body, where)) if answer.code == SUCCESS else []
            if not found or found[0] is not message:
                text = f"code {answer.code}, next {answer.number('nextBeginOffset')}, {answer.remark[:160]}"
                self.fail("missed", where, text)

    def _check_times(self, queue, messages) -> None:
        """Where reading starts for a time: at no message before it, and at none too late."""
        last, step = -1, max(1, len(messages) * self.every // MOST_TIMES)
        asked: list[tuple[dict[str, object], int, int]] = []
        for number, message in enumerate(messages):
            offset, before = message.places[queue][0], last
            last = message.places[queue][1] - 1
            if number % step == 0 and (queue, message.physical_offset) not in self.allowed.unqueued:
                fields = {"topic": queue[0], "queueId": queue[1], "timestamp": message.store_timestamp}
                asked.append((fields, before, offset))
        answers = list(self.client.ask_all((TIME_SEARCH, fields) for fields, _, _ in asked))
        for (fields, before, offset), first in zip(asked, answers, strict=True):
            answer = self._patiently(TIME_SEARCH, fields) if first.code == BUSY else first
            if answer.code == BUSY and queue in self.allowed.unknown and answer.remark:
                continue
            if answer.code != SUCCESS or not before < answer.number("offset") <= offset:
                text = f"code {answer.code}, {answer.number('offset')}, expected {before + 1} to {offset}"
                self.fail("other", f"time of {queue} {offset}", text)

    def judge_offsets(self) -> Verdict:
        """Ask what groups have committed: the truth, or no answer at all, never another number or `no offset`."""
        for name, queues in self.good.offsets.items():
            topic, group = name.split("@")
            for queue_id, offset in queues.items():
                fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
                with contextlib.suppress(Closed):
                    answer = self.client.ask(QUERY_CONSUMER_OFFSET, **fields)
                    self.verdict.asked += 1
                    if (answer.code, answer.number("offset")) != (SUCCESS, offset):
                        text = f"code {answer.code}, {answer.number('offset')}, {answer.remark}; it is {offset}"
                        self.fail("other", f"offset of {group} in {topic} {queue_id}", text)
        return self.verdict


def shown(numbers):
    """Some numbers, shortened."""
    if len(numbers) > 6:
        return f"{', '.join(map(str, numbers[:3]))} … {numbers[-1]} ({len(numbers)})"
    return ", ".join(map(str, numbers))
