"""Queues that cannot be listed are never answered as empty, and are served again as soon as they can be listed."""

import contextlib
import errno
import json
import os
from pathlib import Path

import pytest

from asking import Asker
from broker_harness import connected, service_of, serving
from draining import pull_of
from protocol.codes import RequestCode, ResponseCode
from protocol.command import ext_fields_of
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

MESSAGES = 5
TOPIC, GROUP, COMMITTED = "Orders", "Billing", 3
UNCONFIGURED = "Archived"
"""A topic that has queues, and no entry in topics.json."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = StoreWriter(tmp_path / "store")
    for number in range(MESSAGES):
        writer.append(TOPIC, b"%d" % number)
        writer.append(UNCONFIGURED, b"%d" % number)
    writer.topic_attributes.pop(UNCONFIGURED)
    writer.close()
    return writer.root


def refusing(number, *names):
    """Listing a directory of that name, or one of the queues in it, fails with this error of the operating system."""

    @contextlib.contextmanager
    def hide(root, monkeypatch):
        listed = os.scandir

        def scandir(path: "str | os.PathLike[str]") -> object:
            if Path(path).name in names:
                raise OSError(number, os.strerror(number), os.fspath(path))
            return listed(path)

        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", scandir)
            yield os.strerror(number)

    return hide


def no_directory(*names):
    """The directories of that name are replaced by a file, or by a link whose target is not mounted."""

    @contextlib.contextmanager
    def hide(root, _):
        (root / "consumequeue" / "Another").mkdir(exist_ok=True)  # so that not all queues are missed
        places = [path for path in (root / "consumequeue").rglob("*") if path.is_dir() and path.name in names]
        for number, path in enumerate(places):
            path.rename(root / f"aside{number}")
            if number:
                path.symlink_to(root / "not mounted")
            else:
                path.write_bytes(b"no directory")
        yield "is no directory"
        for number, path in enumerate(places):
            path.unlink()
            (root / f"aside{number}").rename(path)

    return hide


WAYS = {
    "no descriptor left": refusing(errno.EMFILE, "consumequeue"),
    "may not be read": refusing(errno.EACCES, "consumequeue"),
    "a topic that may not be read": refusing(errno.EACCES, TOPIC, UNCONFIGURED),
    "a queue that may not be read": refusing(errno.EACCES, "0"),
    "a topic that may not be told from a file": no_directory(TOPIC, UNCONFIGURED),
}


def fields(topic: str) -> dict[str, str]:
    more = {"timestamp": "1", "offset": "0", "index": "0", "count": "1", "group": "G", "boundaryType": "LOWER"}
    return pull_of(topic, 0, 3) | more


PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
OFFSETS = (
    RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.GET_TOPIC_STATS_INFO, RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.QUERY_CONSUME_TIME_SPAN
)  # fmt: skip


@pytest.mark.parametrize("topic", [TOPIC, UNCONFIGURED])
@pytest.mark.parametrize("hide", WAYS.values(), ids=WAYS)
def test_queues_that_cannot_be_listed_are_not_answered_as_empty(hide, topic, root, monkeypatch) -> None:
    with hide(root, monkeypatch) as reason:
        asker = Asker(root)
        for code in PULLS:
            answer = asker.ask(code, fields(topic))
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert reason in answer.remark
            assert not answer.ext_fields
        for code in OFFSETS:
            answer = asker.ask(code, fields(topic))
            assert answer.code == ResponseCode.SYSTEM_ERROR, code.name
            assert reason in answer.remark, code.name
    asker.store.renew()
    for code in PULLS:
        answer = asker.ask(code, fields(topic))
        assert (answer.code, answer.ext_fields and answer.ext_fields["nextBeginOffset"]) == (0, str(MESSAGES))
    assert asker.ask(RequestCode.GET_MAX_OFFSET, fields(topic)).ext_fields["offset"] == str(MESSAGES)


@pytest.mark.parametrize("number", [0, 1, -1])
def test_messages_of_a_segment_that_cannot_be_read_are_not_passed_over(number, tmp_path, monkeypatch) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=512)
    written = [writer.append(TOPIC, b"%d" % each) for each in range(20)]
    writer.close()
    path, opened = sorted((writer.root / "commitlog").iterdir())[number], os.open
    start = int(path.name)
    before = [each for each in range(20) if written[each].physical_offset < start]
    lost = [each for each in range(20) if start <= written[each].physical_offset < start + 512]

    def refuse(name: "str | os.PathLike[str]", *arguments: int, **more: int) -> int:
        if Path(name) == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        return opened(name, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        asker = Asker(writer.root)
        if before:
            answer = asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC) | {"queueOffset": "0"})
            assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (0, str(lost[0]))
        for offset in lost[:2]:
            answer = asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC) | {"queueOffset": str(offset)})
            if number != -1 or offset != lost[0]:  # a queue may well end there: that pull waits
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert str(path) in answer.remark
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET, RequestCode.GET_TOPIC_STATS_INFO):
            assert asker.ask(code, fields(TOPIC)).code == (0 if number == 1 else ResponseCode.SYSTEM_ERROR)
        asker.store.renew()
    asker.store.renew()
    answer = asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC) | {"queueOffset": str(lost[0])})
    assert answer.code == ResponseCode.SUCCESS
    assert asker.ask(RequestCode.GET_MAX_OFFSET, fields(TOPIC)).ext_fields["offset"] == "20"


OFFSETS_FILE = "consumerOffset.json"
DAMAGE = {"empty": 0, "without its end": -2}

QUERY = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
BOTH = {"consumerGroup": GROUP, "topic": TOPIC, "group": GROUP}
WITH_BOTH = ("GET_CONSUME_STATS", "QUERY_TOPIC_CONSUME_BY_WHO", "QUERY_TOPICS_BY_CONSUMER", "QUERY_CONSUME_TIME_SPAN")
PROGRESS = {RequestCode[name]: BOTH for name in WITH_BOTH} | {RequestCode.GET_ALL_CONSUMER_OFFSET: {}}
PROGRESS[RequestCode.GET_BROKER_CONSUME_STATS] = {"isOrder": "false"}


@pytest.fixture
def consumed(root: Path) -> Path:
    """The store, of which a group has consumed."""
    config = {"consumerOffset.json": {"offsetTable": {f"{TOPIC}@{GROUP}": {0: COMMITTED}}}}
    config["subscriptionGroup.json"] = {"subscriptionGroupTable": {GROUP: {"groupName": GROUP}}}
    for name, table in config.items():
        (root / "config" / name).write_text(json.dumps(table))
    return root


def damage(path: Path, how: str) -> bytes:
    whole = path.read_bytes()
    path.write_bytes(whole[: DAMAGE[how]])
    return whole


@pytest.mark.parametrize("how", DAMAGE)
def test_how_far_groups_have_come_is_an_error_and_no_zero_while_it_is_not_known(how: str, consumed: Path) -> None:
    whole = damage(consumed / "config" / OFFSETS_FILE, how)
    asker = Asker(consumed)
    for code, fields in PROGRESS.items():
        answer = asker.ask(code, fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR, code.name
        assert OFFSETS_FILE in answer.remark, code.name
    (consumed / "config" / OFFSETS_FILE).write_bytes(whole)
    asker.store.renew()
    assert [asker.ask(code, fields).code for code, fields in PROGRESS.items()] == [0] * len(PROGRESS)


@pytest.mark.parametrize("how", DAMAGE)
async def test_nobody_is_answered_an_offset_that_is_not_known(how: str, consumed: Path) -> None:
    path = consumed / "config" / OFFSETS_FILE
    whole = damage(path, how)
    async with serving(service_of(MessageStore.open(consumed))) as server, connected(server.addresses[0]) as client:
        for zero in ({}, {"setZeroIfNotFound": "false"}, {"setZeroIfNotFound": "true"}):
            client.send(RequestCode.QUERY_CONSUMER_OFFSET, QUERY | zero)
        # Answers leave in the order of the requests: this one has overtaken none.
        assert (await client.ask(RequestCode.GET_MAX_OFFSET, QUERY)).code == 0
        assert (await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, {})).code == ResponseCode.SYSTEM_ERROR
        path.write_bytes(whole)
        server._service.store.renew()
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, QUERY)
        assert (answer.code, ext_fields_of(answer)["offset"]) == (0, str(COMMITTED))


def test_other_files_that_cannot_be_read_are_named_instead_of_answered_as_empty(consumed: Path) -> None:
    for name, asked in {
        "topics.json": {
            RequestCode.GET_ALL_TOPIC_CONFIG: {},
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
            RequestCode.GET_ROUTEINFO_BY_TOPIC: {"topic": "Quiet"},
            RequestCode.GET_TOPIC_CONFIG: {"topic": "Quiet"},
        },
        "subscriptionGroup.json": {
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {},
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: {"group": GROUP},
            RequestCode.GET_BROKER_CONSUME_STATS: {"isOrder": "false"},
        },
        "delayOffset.json": {RequestCode.GET_ALL_DELAY_OFFSET: {}},
    }.items():
        (consumed / "config" / name).write_bytes(b'{"topicConfigTable":{"Quiet"')
        asker = Asker(consumed)
        for code, fields in asked.items():
            answer = asker.ask(code, fields)
            assert (answer.code, name in answer.remark) == (ResponseCode.SYSTEM_ERROR, True), code
    # What else the store knows is served.
    assert asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}).code == 0
    assert asker.ask(RequestCode.GET_MAX_OFFSET, QUERY).ext_fields == {"offset": "5"}
