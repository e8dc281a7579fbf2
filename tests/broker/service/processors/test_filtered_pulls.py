"""Which filter a pull asks: the one told last, what became of it since, the store's bits for it, and retry topics.

The steps and codes of the first part are those of a live broker 5.5.0 (filters §1.5, §3.4); what a broker answered to
pulls of retry topics is recorded beside the store g2-filters.
"""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from asking import Asker, FakeConnection
from draining import pull_of
from golden_frames import Exchange, Session
from golden_store import GOLDEN, unpack
from heartbeats import consumer, heartbeat, subscription
from protocol import bodies
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.message import decode_messages
from store_writer import StoreWriter

FOUND, SYSTEM_ERROR, NOT_FOUND, RETRY, UNPARSED, NOT_LATEST, NO_FILTER, OLD_FILTER = 0, 1, 19, 20, 23, 25, 27, 28
SUBSCRIPTION = 4
FILTERS = GOLDEN / "g2" / "g2-filters"
ONE_PERCENT = "a = 7 AND region IN ('hz', 'bj')"
MESSAGES = 1000
VALUES: list[dict[str, str]] = [{"a": "3"}, {"a": "7"}, {"a": "abc"}, {"a": "9"}, {"b": "1"}]


def ask(
    asker: Asker, topic: str, group: str, queue_id: int, queue_offset: int, version: int, **fields: str
) -> Response:
    header = pull_of(topic, queue_id, queue_offset, consumerGroup=group, sysFlag=0, subVersion=version)
    return asker.ask(RequestCode.PULL_MESSAGE, header | fields)


class Group:
    """One consumer group of topic T and what it gets."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def tell(self, version: int, text: str, kind: str = "SQL92", client: FakeConnection | None = None) -> None:
        told = heartbeat(f"c{id(client)}", consumer("G", subscription("T", text, version, kind)))
        assert self._asker.ask(RequestCode.HEART_BEAT, body=told, connection=client).code == 0

    def leave(self) -> None:
        assert self._asker.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "G"}).code == 0

    def pull(self, version: int) -> tuple[int, list[int]]:
        answer = ask(self._asker, "T", "G", 0, 0, version)
        return answer.code, [message.queue_offset for message in decode_messages(answer.body)]


@pytest.fixture
def group(tmp_path: Path) -> Group:
    writer = StoreWriter(tmp_path / "store")
    for properties in VALUES:
        writer.append("T", properties=properties)
    writer.close()
    return Group(Asker(writer.root))


# ---------------------------------------------------------------------- the filter of the latest heartbeat


def test_a_pull_is_answered_by_the_filter_of_the_latest_heartbeat(group: Group) -> None:
    group.tell(100, "a > 5")
    assert group.pull(100) == group.pull(95) == group.pull(0) == (FOUND, [1, 3])
    assert group.pull(105) == (NOT_LATEST, [])


def test_a_filter_may_be_behind_its_subscription(group: Group) -> None:
    group.tell(9, "a > 5")
    group.tell(10, "")
    assert group.pull(10) == (OLD_FILTER, [])
    assert group.pull(9) == (FOUND, [1, 3])


def test_a_group_that_is_gone_leaves_no_filter_behind(group: Group) -> None:
    group.tell(100, "a > 5")
    group.leave()
    assert group.pull(100)[0] == ResponseCode.SUBSCRIPTION_NOT_EXIST
    group.tell(50, "a < 5")
    assert group.pull(50) == (FOUND, [0])


def test_a_subscription_without_a_version_is_as_new_as_its_heartbeat(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(1_000_000_000, 1_000_000)
    monkeypatch.setattr(bodies, "time", SimpleNamespace(time_ns=lambda: next(clock)))
    for text, expected in (("a > 5", [1, 3]), ("a < 5", [0])):
        told = subscription("T", text, kind="SQL92")
        del told["subVersion"]
        group._asker.ask(RequestCode.HEART_BEAT, body=heartbeat("c", consumer("G", told)))
        assert group.pull(1) == (FOUND, expected)


# ---------------------------------------------------------------------- the store's bits


@pytest.fixture(scope="module")
def filters_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("store", tmp_path_factory.mktemp("filters"), archives=FILTERS)


def keys_of(asker: Asker, group: str, text: str) -> list[str | None]:
    """The unique keys of what a group gets of the thousand messages, when its heartbeat tells this expression."""
    asker.ask(
        RequestCode.HEART_BEAT, body=heartbeat("c", consumer(group, subscription("FilterTopic", text, 1, "SQL92")))
    )
    found = []
    for queue_id in range(2):
        queue_offset, code = 0, FOUND
        while code != NOT_FOUND:
            answer = ask(asker, "FilterTopic", group, queue_id, queue_offset, 1)
            found += [message.unique_key for message in decode_messages(answer.body)]
            assert answer.ext_fields is not None
            queue_offset, code = int(answer.ext_fields["nextBeginOffset"]), answer.code
    return found


def counted(asker: Asker) -> tuple[int, int]:
    """Evaluations done and skipped for filters with bits, as the runtime information reports them to tools."""
    table = asker.value(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    return int(table["rocketlensBitmapEvaluations"]), int(table["rocketlensBitmapEvaluationsSkipped"])


def test_a_group_that_the_broker_knew_is_spared_most_evaluations_and_gets_the_same(filters_store: Path) -> None:
    asker = Asker(filters_store)
    received = [line.split("\t")[0] for line in (FILTERS / "consumed-CG_ONE_PERCENT.tsv").read_text().splitlines()]
    assert sorted(map(str, keys_of(asker, "CG_ONE_PERCENT", ONE_PERCENT))) == sorted(received)
    done, skipped = counted(asker)
    assert done + skipped == MESSAGES
    assert skipped >= MESSAGES / 2


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ("CG_STRANGER", ONE_PERCENT),
        ("CG_TENTH", ONE_PERCENT),
        ("CG_NONE", ONE_PERCENT),
        ("CG_ONE_PERCENT", "a = 8"),
        ("CG_ONE_PERCENT", f"{ONE_PERCENT} "),
        ("CG_CHANGES", "a < 20"),
        ("CG_NONE", "a >= 0"),
    ],
    ids=lambda value: value.strip(),
)
def test_a_filter_that_the_broker_did_not_know_is_never_ruled_out_by_bits(
    group: str, text: str, filters_store: Path
) -> None:
    asker = Asker(filters_store)
    found = keys_of(asker, group, text)
    assert counted(asker) == (0, 0)
    assert found == keys_of(asker, "CG_UNKNOWN_TO_ALL", text)
    assert len(found) == {"a = 8": 10, "a < 20": 200, "a >= 0": MESSAGES}.get(text, 10)


# ---------------------------------------------------------------------- retry topics


def recorded(name: str) -> list[Exchange]:
    return Session("g2-filters", FILTERS / name, FILTERS / "store.tar.xz").exchanges()


@pytest.mark.parametrize(("name", "supports_retry"), [("pulls.jsonl.xz", False), ("pulls-retry.jsonl.xz", True)])
def test_pulls_of_retry_topics_are_answered_as_recorded(name: str, supports_retry: bool, filters_store: Path) -> None:
    """But for expressions that do not compile, and for a message at which a broker fails for ever."""
    asker = Asker(filters_store, filter_support_retry=supports_retry)
    by_expression = 0
    for exchange in recorded(name):
        answer, expected, fields = (
            asker.ask(RequestCode.PULL_MESSAGE, exchange.ext_fields),
            exchange.recorded,
            exchange.ext_fields,
        )
        assert expected is not None
        if fields["subscription"] == "a >":
            assert answer.code == UNPARSED, str(exchange)
        elif expected.code == SYSTEM_ERROR:
            assert "NullPointerException" in (expected.remark or "")
            assert (answer.code, fields["queueOffset"]) == (FOUND, "12"), str(exchange)
        else:
            assert (answer.code, answer.remark) == (expected.code, expected.remark), str(exchange)
            assert (bytes(answer.body), answer.ext_fields) == (expected.body, expected.ext_fields), str(exchange)
            by_expression += fields["expressionType"] == "SQL92"
    assert by_expression > 20


def test_the_filter_that_members_told_on_a_topic_chooses_what_failed_in_it(filters_store: Path) -> None:
    """The store's broker knew `a = 7` for the group: that is what its messages in the retry topic were chosen by."""
    asker = Asker(filters_store, filter_support_retry=True)
    fields = {"sysFlag": str(SUBSCRIPTION), "subscription": "a > 100", "expressionType": "SQL92"}

    def pulled() -> list[int]:
        answer = ask(asker, "%RETRY%CG_FAILS", "CG_FAILS", 0, 0, 0, **fields)
        return [message.queue_offset for message in decode_messages(answer.body)]

    assert pulled() == [*range(10), 11, 12]
    told = consumer("CG_FAILS", subscription("FilterTopic", "a = 8", 1, "SQL92"))
    asker.ask(RequestCode.HEART_BEAT, body=heartbeat("c", told))
    assert pulled() == [10, 11, 12]
