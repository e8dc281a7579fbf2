"""A client that pulls a queue until its end gets exactly the chosen messages, in order, wherever it begins."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from asking import Asker
from draining import pull_of
from examples import examples
from oracles import java_hash
from protocol.codes import RequestCode
from protocol.message import decode_messages
from store_writer import StoreWriter

SUBSCRIPTION, SUSPEND = 4, 2
FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21
TAGS = (None, "A", "B", "Aa", "BB", "标签", "f5a5a608")
"""Aa and BB have one hash, f5a5a608 that of no tag."""


@dataclass(frozen=True)
class Choice:
    """A subscription, and by hand what it chooses of a message's tag and number."""

    text: str
    kind: str
    chooses: Callable[[str | None, int], bool]


def by_tags(tags: tuple[str, ...]) -> Choice:
    hashes = {java_hash(tag) for tag in tags}
    return Choice(" || ".join(tags), "TAG", lambda tag, _number: java_hash(tag or "") in hashes)


def by_number(lowest: int, remainder: int) -> Choice:
    text = f"number >= {lowest} AND rest = '{remainder}'"
    return Choice(text, "SQL92", lambda _tag, number: number >= lowest and number % 7 == remainder)


CHOICES = st.one_of(
    st.just(Choice("*", "TAG", lambda _tag, _number: True)),
    st.lists(st.sampled_from(["A", "Aa", "标签", "f5a5a608", "none"]), min_size=1, max_size=3).map(
        lambda tags: by_tags(tuple(tags))
    ),
    st.builds(by_number, st.integers(0, 60), st.integers(0, 7)),
)


@dataclass(frozen=True)
class Pull:
    """How a client pulls: from where, how much at once, and whether it polls."""

    queue_id: int
    begin: int
    maximum: int
    flags: int


def write(
    root: Path, messages: list[tuple[int, str | None]], first_offset: int
) -> dict[int, list[tuple[int, str | None]]]:
    """A store of the messages; each queue's numbers and tags by queue offset, from `first_offset` on in queue 1."""
    writer = StoreWriter(root, segment_size=1 << 14, queue_file_size=400)
    queues: dict[int, list[tuple[int, str | None]]] = {0: [], 1: []}
    for number, (queue_id, tag) in enumerate(messages):
        offset = len(queues[queue_id]) + (first_offset if queue_id else 0)
        properties = {"number": str(number), "rest": str(number % 7)}
        writer.append("T", b"%d" % number, tags=tag, queue_id=queue_id, queue_offset=offset, properties=properties)
        queues[queue_id].append((number, tag))
    writer.close()
    return queues


def pulled(asker: Asker, pull: Pull, choice: Choice) -> list[int]:
    """The numbers of all messages that a client gets that follows the answers."""
    found: list[int] = []
    offset = pull.begin
    for _ in range(300):
        chosen = {"subscription": choice.text, "expressionType": choice.kind}
        flags = pull.flags | SUBSCRIPTION
        fields = pull_of("T", pull.queue_id, offset, maxMsgNums=pull.maximum, sysFlag=flags, **chosen)
        answer = asker.ask(RequestCode.PULL_MESSAGE, fields)
        fields = answer.ext_fields or {}
        following = int(fields["nextBeginOffset"])
        if answer.code == NOT_FOUND:
            return found
        assert answer.code in (FOUND, RETRY, MOVED)
        assert following != offset, "nobody gets on"
        found += [int(bytes(message.body)) for message in decode_messages(answer.body)]
        offset = following
    raise AssertionError("no end")


@settings(max_examples=examples(20))
@given(
    messages=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(TAGS)), min_size=2, max_size=70),
    first_offset=st.sampled_from([0, 1, 19, 20, 333]),
    pull=st.builds(Pull, st.integers(0, 1), st.integers(-3, 420), st.integers(1, 40), st.sampled_from([0, SUSPEND])),
    choice=CHOICES,
)
def test_a_pull_until_the_end_brings_what_a_scan_of_everything_chooses(
    messages: list[tuple[int, str | None]], first_offset: int, pull: Pull, choice: Choice
) -> None:
    messages = [(0, None), (1, None), *messages]  # both queues are there
    with TemporaryDirectory() as folder:
        queues = write(Path(folder) / "store", messages, first_offset)
        asker = Asker(Path(folder) / "store")
        start = first_offset if pull.queue_id else 0
        expected = [
            number
            for offset, (number, tag) in enumerate(queues[pull.queue_id], start)
            if offset >= pull.begin and choice.chooses(tag, number)
        ]
        assert pulled(asker, pull, choice) == expected
