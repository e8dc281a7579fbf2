"""Queues that cannot be listed are never answered as empty, and are served again as soon as they can be listed.

Each test hides the queues of one store in one of the ways that were seen in practice, asks for them with every request
that reads queues, and brings them back. Tests may run as root, who may read everything, so the operating system's
refusals are simulated.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from asking import Asker
from draining import pull_of
from protocol.codes import RequestCode, ResponseCode
from store_writer import StoreWriter

MESSAGES = 5
TOPIC, BATCHES = "Orders", "Batches"
UNCONFIGURED = "Archived"
"""A topic that has queues, and no entry in topics.json."""

Hiding = Callable[[Path, pytest.MonkeyPatch], contextlib.AbstractContextManager[str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = StoreWriter(tmp_path / "store")
    for number in range(MESSAGES):
        writer.append(TOPIC, b"%d" % number)
        writer.append(UNCONFIGURED, b"%d" % number)
        writer.append_inner_batch(BATCHES, [(b"a", {}), (b"b", {})])
    writer.topic_attributes.pop(UNCONFIGURED)
    writer.close()
    return writer.root


def refusing(number: int, *names: str) -> Hiding:
    """Listing a directory of that name, or one of the queues in it, fails with this error of the operating system."""

    @contextlib.contextmanager
    def hide(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        listed = os.scandir

        def scandir(path: "str | os.PathLike[str]") -> object:
            if Path(path).name in names:
                raise OSError(number, os.strerror(number), os.fspath(path))
            return listed(path)

        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", scandir)
            yield os.strerror(number)

    return hide


def replaced_by(kind: str) -> Hiding:
    """The tree of queues is gone, and something else or nothing has its name."""

    @contextlib.contextmanager
    def hide(root: Path, _: pytest.MonkeyPatch) -> Iterator[str]:
        tree, aside = root / "consumequeue", root / "aside"
        tree.rename(aside)
        if kind == "a file":
            tree.write_bytes(b"no directory")
        elif kind == "an empty directory":
            tree.mkdir()
        yield ""
        if kind == "a file":
            tree.unlink()
        elif kind == "an empty directory":
            tree.rmdir()
        aside.rename(tree)

    return hide


LOST = ("a file", "nothing", "an empty directory")


def no_directory(*names: str) -> Hiding:
    """The directories of that name are replaced by a file, or by a link whose target is not mounted."""

    @contextlib.contextmanager
    def hide(root: Path, _: pytest.MonkeyPatch) -> Iterator[str]:
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


WAYS: dict[str, Hiding] = {
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
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
)
LISTS = (
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
)


@pytest.mark.parametrize("topic", [TOPIC, UNCONFIGURED])
@pytest.mark.parametrize("hide", WAYS.values(), ids=WAYS)
def test_queues_that_cannot_be_listed_are_not_answered_as_empty(
    hide: Hiding, topic: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hide(root, monkeypatch) as reason:
        asker = Asker(root)
        for code in PULLS:
            answer = asker.ask(code, fields(topic))
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert reason in (answer.remark or "")
            assert not answer.ext_fields
        for code in OFFSETS:
            answer = asker.ask(code, fields(topic))
            assert answer.code == ResponseCode.SYSTEM_ERROR, code.name
            assert reason in (answer.remark or ""), code.name
    asker.store.renew()
    for code in PULLS:
        answer = asker.ask(code, fields(topic))
        assert (answer.code, answer.ext_fields and answer.ext_fields["nextBeginOffset"]) == (0, str(MESSAGES))
    assert (asker.ask(RequestCode.GET_MAX_OFFSET, fields(topic)).ext_fields or {})["offset"] == str(MESSAGES)


WHOLE_TREE = {name: way for name, way in WAYS.items() if "that may not" not in name}


@pytest.mark.parametrize("hide", WHOLE_TREE.values(), ids=WHOLE_TREE)
def test_topics_of_queues_that_cannot_be_listed_are_not_answered_as_unknown(
    hide: Hiding, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = RequestCode.GET_ROUTEINFO_BY_TOPIC
    with hide(root, monkeypatch) as reason:
        asker = Asker(root)
        for answer in (*map(asker.ask, LISTS), asker.ask(route, {"topic": UNCONFIGURED})):
            assert (answer.code, reason in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        # What the configuration says is known all the same.
        assert [asker.ask(route, {"topic": each}).code for each in (TOPIC, BATCHES)] == [0, 0]
    asker.store.renew()
    assert {asker.ask(code, {"topic": UNCONFIGURED}).code for code in (*LISTS, route)} == {ResponseCode.SUCCESS}


@pytest.mark.parametrize("are_batches_lost", [False, True])
@pytest.mark.parametrize("kind", LOST)
def test_queues_whose_directories_are_all_lost_have_the_messages_of_the_log(
    kind: str, are_batches_lost: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replaced_by(kind)(root, monkeypatch):
        if are_batches_lost:
            shutil.rmtree(root / "batchconsumequeue")
        asker = Asker(root)
        assert len([each for each in asker.store.problems if "queues are derived from the log" in each]) == 1
        for topic, count in ((TOPIC, MESSAGES), (UNCONFIGURED, MESSAGES), (BATCHES, 2 * MESSAGES)):
            answer = asker.ask(RequestCode.PULL_MESSAGE, fields(topic) | {"queueOffset": "0"})
            assert (answer.code, answer.ext_fields and answer.ext_fields["nextBeginOffset"]) == (0, str(count))
            bounds = [asker.ask(code, fields(topic)).ext_fields for code in (OFFSETS[1], OFFSETS[0])]
            assert bounds == [{"offset": "0"}, {"offset": str(count)}]
        assert [asker.ask(code).code for code in LISTS] == [ResponseCode.SUCCESS] * len(LISTS)
        assert asker.ask(RequestCode.PULL_MESSAGE, fields("Unknown")).code == ResponseCode.TOPIC_NOT_EXIST
    asker.store.renew()
    assert not asker.store.queues.is_lost
    assert (asker.ask(RequestCode.GET_MAX_OFFSET, fields(TOPIC)).ext_fields or {})["offset"] == str(MESSAGES)


def gone(root: Path, _: pytest.MonkeyPatch) -> contextlib.AbstractContextManager[str]:
    """The directory of the topic is gone, though a group has consumed from its queue."""
    shutil.rmtree(root / "consumequeue" / TOPIC)
    offsets = {f"{TOPIC}@G": {0: 2}, "Deleted@G": {0: 2}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return contextlib.nullcontext("")


@pytest.mark.parametrize("lose", [no_directory("0"), gone], ids=["something else has its name", "gone"])
def test_a_queue_whose_directory_is_lost_has_the_messages_of_the_log(
    lose: Hiding, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lose(root, monkeypatch):
        asker = Asker(root)
        answer = asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC) | {"queueOffset": "0"})
        assert (answer.code, answer.ext_fields and answer.ext_fields["nextBeginOffset"]) == (0, str(MESSAGES))
        bounds = [asker.ask(code, fields(TOPIC)).ext_fields for code in (OFFSETS[1], OFFSETS[0])]
        assert bounds == [{"offset": "0"}, {"offset": str(MESSAGES)}]
        assert TOPIC in asker.store.queues.topics()
        assert "Deleted" not in asker.store.queues.topics()


def test_topics_that_were_found_before_are_served_while_the_tree_cannot_be_listed_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = Asker(root)
    with refusing(errno.EMFILE, "consumequeue")(root, monkeypatch):
        asker.store.refresh()
        assert asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC)).code == ResponseCode.SUCCESS
        assert asker.ask(RequestCode.PULL_MESSAGE, fields("Newcomer")).code == ResponseCode.SYSTEM_BUSY


def test_a_topic_without_messages_is_empty_where_all_topics_hold_batches(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append_inner_batch(BATCHES, [(b"a", {})])
    writer.set_topic(TOPIC)
    writer.close()
    asker = Asker(writer.root)
    answer = asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC) | {"queueOffset": "0"})
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert (asker.ask(RequestCode.GET_MAX_OFFSET, fields(TOPIC)).ext_fields or {})["offset"] == "0"


@pytest.mark.parametrize("number", [0, 1, -1])
def test_messages_of_a_segment_that_cannot_be_read_are_not_passed_over(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
            assert (answer.code, (answer.ext_fields or {})["nextBeginOffset"]) == (0, str(lost[0]))
        for offset in lost[:2]:
            answer = asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC) | {"queueOffset": str(offset)})
            if number != -1 or offset != lost[0]:  # a queue may well end there: that pull waits
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert str(path) in (answer.remark or "")
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET, RequestCode.GET_TOPIC_STATS_INFO):
            assert asker.ask(code, fields(TOPIC)).code == (0 if number == 1 else ResponseCode.SYSTEM_ERROR)
        asker.store.renew()
    asker.store.renew()
    answer = asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC) | {"queueOffset": str(lost[0])})
    assert answer.code == ResponseCode.SUCCESS
    assert (asker.ask(RequestCode.GET_MAX_OFFSET, fields(TOPIC)).ext_fields or {})["offset"] == "20"
