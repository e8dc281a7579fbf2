"""Which files a store has, its layouts, the parts that are not read, and its small files."""

import errno
import json
import lzma
import os
import re
import shutil
import struct
import sys
import time
import zlib
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_harness import service_of, serving_in_a_thread
from command_line import rocketlens
from giant_files import make_giant
from golden_frames import parse_java_json
from golden_store import CASES, GOLDEN, unpack
from oracles import DEFAULT_DELAY_LEVELS as RECORDED_LEVELS
from oracles import delay_milliseconds
from protocol.codes import RequestCode
from protocol.errors import ConfigError, NotAStore, StoreError, TruncatedFile
from read_only import state_of
from spark_jobs.read.absent_topics import unread_of_store
from spark_jobs.read.log_ranges import find_ranges
from spark_jobs.scan.source import find_source
from storage.diff._log_pieces import open_log
from storage.doctor._opened_store import OpenedStore
from storage.extras import install_line
from storage.layout import store_config
from storage.layout.checkpoint import Checkpoint
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from storage.layout.dledger import uncommitted_from, uncommitted_problem
from storage.layout.epochs import Epoch, parse_epochs
from storage.layout.store_config import StoreConfig
from storage.layout.timer_check import TimerCheck
from storage.layout.timer_log import TIMER_UNIT, TIMER_UNIT_DTYPE, are_units
from storage.store.message_store import MessageStore
from storage.store.store_state import recognise_store
from store_writer import StoreWriter
from trial_oracle import TrialClient
from unread_answers import UNREAD
from web_questions import ApiOf

SEGMENT = "0" * 20


def make_store(root):
    with StoreWriter(root) as writer:
        writer.append("T", b"hello", keys="k")
    return root


def refusal(root, *directories):
    with pytest.raises(NotAStore) as refused:
        recognise_store(root, directories)
    text = str(refused.value)
    assert "\n" not in text
    assert text.startswith(f"{root} is no store that can be served: found ")
    assert ", expected " in text
    return text


def test_what_is_no_store_is_refused_with_what_it_is(tmp_path) -> None:
    whole = make_store(tmp_path / "above" / "store")
    (tmp_path / "file").write_text("x")
    for name in ("empty", "letters", "named", "named/commitlog-a", "named/commitlog-b", "named/consumequeue"):
        (tmp_path / name).mkdir()
    for name in "fedcbag":
        (tmp_path / "letters" / name).touch()
    (tmp_path / "bare" / "commitlog" / "not a segment").mkdir(parents=True)
    for root, found in (
        (tmp_path / "no", "found nothing there, expected a RocketMQ store: a directory with commitlog/"),
        (tmp_path / "file", "found a file"),
        (tmp_path / "empty", "found an empty directory"),
        (tmp_path / "letters", "found no commitlog/ among a, b, c, d, e, …"),
        (tmp_path / "named", "but commitlog-a/: the directories of a log that has other names go to --commit-log"),
        (whole / "commitlog", "found segments, as if it were a store's commitlog/ itself"),
        (tmp_path / "above", f"but a store in {whole}"),
        (tmp_path / "bare", f"found no segment in {tmp_path}/bare/commitlog"),
    ):
        assert found in refusal(root)
    for log, found in ((tmp_path / "file", "a file"), (tmp_path / "no", "nothing there")):
        assert f"found {found}, expected a directory of the commit log in {log}" in refusal(whole, log)


@pytest.mark.parametrize(
    ("directory", "file"),
    [("consumequeue", "CURRENT"), ("consumequeue_rocksdb", "MANIFEST-000005"), ("consumequeue", "000010.sst")],
)
def test_a_rocksdb_of_queues_is_known_by_any_of_its_files(directory, file, tmp_path) -> None:
    make_store(tmp_path)
    assert recognise_store(tmp_path).rocksdb_queues is None
    (tmp_path / directory).mkdir(exist_ok=True)
    (tmp_path / directory / file).write_text("MANIFEST-000005\n")
    layout = recognise_store(tmp_path)
    assert layout.rocksdb_queues == tmp_path / directory
    assert "consumequeue" not in layout.missing


def converted(root):
    """A plain store whose log goes on as DLedger's, as that of a broker that becomes a group's member; the latter."""
    with StoreWriter(root, segment_size=1024) as writer:
        writer.append("T", b"plain", keys="k")
        writer.roll()
    with StoreWriter(root.parent / "other", segment_size=1024, start=1024, is_ledger=True) as ledger:
        ledger.append("T", b"in an entry", keys="k", queue_offset=1)
    directory = root / "dledger-n0" / "data"
    directory.parent.mkdir()
    (root.parent / "other" / "dledger-n0" / "data").rename(directory)
    return directory


@pytest.mark.parametrize(("path", "content"),
    [("checkpoint", b"endIndex=5\ncommittedIndex=4\n"), (f"index/{SEGMENT}", b"\0\0\0\1" + bytes(28))])  # fmt: skip
def test_entries_that_lie_elsewhere_are_missed_until_their_directory_is_given(tmp_path, path, content) -> None:
    root = tmp_path / "store"
    ledger = converted(root)
    elsewhere = tmp_path / "elsewhere"
    ledger.rename(elsewhere)
    assert MessageStore.open(root).problems == []
    (root / "dledger-n0" / path).parent.mkdir(exist_ok=True)
    (root / "dledger-n0" / path).write_bytes(content)
    (problem,) = MessageStore.open(root).problems
    assert "--commit-log" in problem
    assert str(root / "dledger-n0") in problem
    assert recognise_store(root, [root / "commitlog", elsewhere]).problems == []


def test_a_log_that_goes_on_as_dledgers_is_read_as_one_and_nothing_of_it_left_out(tmp_path) -> None:
    root = tmp_path / "store"
    ledger = converted(root)
    logs = (root / "commitlog", ledger)
    assert recognise_store(root).commit_log_directories == logs
    assert recognise_store(root).ledgers == (ledger,)
    assert recognise_store(root, logs).commit_log_directories == logs
    assert recognise_store(root, logs).ledgers == (ledger,)
    assert f"found messages in a DLedger log in {ledger}" in refusal(root, root / "commitlog")
    # What the commands begin with: rebuild, compact and verify; export of a directory and of a URL; doctor; diff.
    bases = [0, 1024]
    assert [place.base_offset for place in find_source(root, ()).segments] == bases
    assert [each.base_offset for each in find_ranges(str(root)).ranges] == bases
    assert [each.base_offset for each in find_ranges(root.as_uri().replace("file:", "local:")).ranges] == bases
    assert [segment.base_offset for segment in OpenedStore.open(root).commit_log.segments] == bases
    assert [segment.base_offset for segment in open_log(root).log.segments] == bases
    # A copy of several members' ledgers is refused with their names.
    shutil.copytree(ledger.parent, root / "dledger-n1")
    text = refusal(root)
    assert f"found DLedger logs of several members: {ledger}, {root / 'dledger-n1' / 'data'}" in text
    with pytest.raises(NotAStore, match="DLedger logs of several members"):
        find_ranges(root.as_uri().replace("file:", "local:"))


LISTED = {each.name: ["doctor", "info", "serve", "page", "metrics", *each.said_by] for each in UNREAD}


def written(root, name, content) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(content if isinstance(content, str) else json.dumps(content))


def with_database(root, name) -> None:
    written(root, f"{name}/CURRENT", "MANIFEST-000005\n")


MADE = {
    "compaction/": lambda root: written(root, "compaction/compactionLog/T/0/00000000000000000000", ""),
    "config/topicQueueMapping.json": lambda root: written(
        root, "config/topicQueueMapping.json", {"topicQueueMappingInfoMap": {"T": {"bname": "b", "hostedQueues": {}}}}
    ),
    "config/users": lambda root: with_database(root, "config/users"),
    "config/acls": lambda root: with_database(root, "config/acls"),
    "config/consumerOrderInfo.json": lambda root: written(
        root, "config/consumerOrderInfo.json", {"table": {"T@g": {"0": {"popTime": 1, "o": [1]}}}}
    ),
    "config/messageRequestMode.json": lambda root: written(
        root, "config/messageRequestMode.json", {"messageRequestModeMap": {"T": {"g": {"mode": "POP"}}}}
    ),
    "kvStore/": lambda root: with_database(root, "kvStore"),
    "rocksdbstore/": lambda root: written(root, "rocksdbstore/000012.sst", "rows"),
    "epochFileCheckpoint": lambda root: written(root, "epochFileCheckpoint", "1\n0\n1-0\n"),
}
"""How each part comes into a store, whose topic is T and whose group is g."""


@pytest.fixture
def root(tmp_path):
    with StoreWriter(tmp_path / "store") as writer:
        writer.append("T", b"x", keys="k", unique_key="U")
        writer.set_topic("Other")
        writer.consumer_offsets = {"T@g": {0: 1}}
    return tmp_path / "store"


def listed_users(root):
    with serving_in_a_thread(service_of(MessageStore.open(root))) as address:
        client = TrialClient(address)
        remarks = [client.ask(code).remark for code in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL)]
        client.close()
    return " ".join(map(str, remarks))


def figures(root):
    from broker.metrics.metrics_rows import MetricsRows
    from broker.web.metrics_collector import Exposition, ServerCollector
    from broker.web.metrics_store import StoreFigures

    store = StoreFigures(service_of(MessageStore.open(root)))
    return Exposition(ServerCollector(MetricsRows(), [store])).render("")[0].decode()


def page(root):
    api = ApiOf(root)
    asked: dict[str, dict[str, str]] = {
        "store": {}, "topics": {}, "topic": {"topic": "T"}, "find": {"text": "nowhere"},
        "search": {"topic": "T", "contains": "x"}, "message/life": {"uniqueKey": "U"},
    }  # fmt: skip
    return json.dumps([api.ask(f"/{path}", **parameters).json for path, parameters in asked.items()])


ASKED: dict[str, tuple[str, ...]] = {
    "tail": ("T",), "search": ("T", "--contains", "x"), "life": ("U",), "space": ("--by", "topic"),
}  # fmt: skip


def said_by(name: str, source: object) -> str:
    """The lines of a command about what is not read, without those that are others each time."""
    outcome = rocketlens(name, source, *ASKED[name])
    assert outcome.code == 0, outcome.errors
    return "".join(line for line in outcome.errors.splitlines(keepends=True) if "is not read" in line)


ANSWERS = {
    "topics": lambda root: rocketlens("topics", root).errors,
    "queues": lambda root: rocketlens("topics", root, "T").errors,
    "groups": lambda root: rocketlens("groups", root).errors,
    "find": lambda root: rocketlens("find", root, "nowhere").errors,
    "query": lambda root: rocketlens("query", root, "--topic", "T", "--key", "nowhere").errors,
    "pending": lambda root: rocketlens("pending", root).errors,
    **{name: partial(said_by, name) for name in ASKED},
    "export": lambda root: "".join(unread_of_store(str(root), "", ["T"])),  # which it reports, as is shown below
    "doctor": lambda root: rocketlens("doctor", root, "--json").text,
    "info": lambda root: rocketlens("info", root).errors,
    "serve": lambda root: "\n".join(MessageStore.open(root).problems),  # which it logs (test_serve_state.py)
    "page": page,
    "metrics": figures,
    "listUser": listed_users,
}


def test_each_part_is_listed_with_the_answers_that_concern_it() -> None:
    assert set(LISTED) == set(MADE)
    assert {answer for said in LISTED.values() for answer in said} == set(ANSWERS)


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=[pytest.mark.soak] if number % 4 != 1 else []) for number, part in enumerate(MADE)],
)
def test_each_answer_that_is_listed_says_what_it_lacks_and_no_other_does(part, root) -> None:
    before = {name: ask(root) for name, ask in ANSWERS.items() if name != "listUser"}
    MADE[part](root)
    (unread,) = StoreConfig.load(root).unread
    assert unread.name == part
    for name, ask in ANSWERS.items():
        said = ask(root)
        if name == "listUser":
            assert "users and policies of ACL 2.0, where the store has any, are not read" in said
        elif name in LISTED[part]:
            assert part.rstrip("/") in said, name
            assert unread.meaning() in said or name in ("metrics", "pending"), name  # which has other words
            assert part.rstrip("/") not in before[name], name
            if name == "page" and unread.topics:
                assert said.count(unread.sentence()) == (2 if unread.about_groups else 6)
        else:
            assert said == before[name], name


def test_a_recorded_broker_with_a_compacted_topic_and_users_is_not_said_to_have_none(tmp_path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "B7-compaction")
    said = rocketlens("topics", store, "states").errors
    assert "compaction/ is not read: of topic states a broker gives the newest message of each key from there" in said
    assert "compaction/ is not read" in rocketlens("find", store, "account-99").errors
    exports = ("--out", tmp_path / "out", "--format", "jsonl")
    assert "compaction/ is not read" in rocketlens("export", store, "--topic", "states", *exports).text
    assert [each.name for each in StoreConfig.load(store).unread] == ["compaction/", "config/users", "config/acls"]


def test_a_recorded_static_topic_is_named_as_one(tmp_path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "B16-static-topic")
    said = "config/topicQueueMapping.json is not read: the queues of topic static1 are static: queues and offsets here"
    assert said in rocketlens("topics", store, "static1").errors
    assert [each.name for each in StoreConfig.load(store).unread] == ["config/topicQueueMapping.json"]


def write(root: Path, name: str, text: str | bytes) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def test_the_recorded_configuration_is_read_with_all_its_fields(g1_store: Path) -> None:
    config = store_config.StoreConfig.load(g1_store)
    assert (config.problems, config.forbidden) == ([], {})
    topics, groups = (
        parse_java_json((g1_store / "config" / name).read_text()) for name in ("topics.json", "subscriptionGroup.json")
    )
    assert json.loads(msgspec.json.encode(config.topics)) == topics["topicConfigTable"]
    assert json.loads(msgspec.json.encode(config.topics_version)) == topics["dataVersion"]
    assert json.loads(msgspec.json.encode(config.subscription_groups)) == groups["subscriptionGroupTable"]
    assert config.subscription_groups_version == store_config.DataVersion(3, 0, 1795243535056)
    assert config.consumer_offsets["CG_SQL", "TopicTest"] == {0: 10, 1: 15, 2: 11, 3: 12}
    assert config.consumer_offsets["CG_FAIL", "TopicBatch"] == {1: 10}
    assert config.pull_offsets["TOOLS_CONSUMER", "TopicTest"] == {0: 3, 1: 15, 2: 13, 3: 12}
    assert (len(config.consumer_offsets), len(config.pull_offsets)) == (5, 5)
    assert config.consumer_offsets_version == store_config.DataVersion(0, 0, 1795243492604)
    assert config.delay_offsets == {1: 1, 3: 10}
    expression, bits = "a > 10 AND a <= 30 AND region = 'hz'", store_config.BloomFilterData(112, [22, 91, 50])
    times = 1795243523265, 1795243531253, 1795243523725
    sql = store_config.ConsumerFilter("CG_SQL", "TopicTest", expression, "SQL92", *times, bits)
    assert config.filters == {"TopicTest": {"CG_SQL": sql}}


@pytest.mark.parametrize(("name", "release"),
    [("g1/store", "V5_5_0"), ("g2/g2-queues/store", "V5_5_0"), ("g2/g2-queues-5.5.1/store", "V5_5_1")])  # fmt: skip
def test_the_release_of_a_store_is_that_of_the_broker_that_wrote_it(name: str, release: str, tmp_path: Path) -> None:
    root = unpack(Path(name).name, tmp_path, archives=(GOLDEN / name).parent)
    assert store_config.StoreConfig.load(root).release.name == release


@pytest.mark.parametrize(("newer", "offset"), [("consumerOffset.json", 9), ("lmqConsumerOffset.json", 4)])
def test_the_newer_of_two_files_of_offsets_counts_and_the_other_for_the_rest(tmp_path, newer, offset) -> None:
    write(tmp_path, "consumerOffset.json", b'{"offsetTable":{"T@G":{0:9},"T@Plain":{0:1}}}')
    write(tmp_path, "lmqConsumerOffset.json", b'{"offsetTable":{"T@G":{0:4},"T@Light":{0:2}}}')
    for number, name in enumerate(("consumerOffset.json", "lmqConsumerOffset.json")):
        stamp = 2_000_000_000 + 1_000 * number + 5_000 * (name == newer)
        os.utime(tmp_path / "config" / name, (stamp, stamp))
    offsets = store_config.StoreConfig.load(tmp_path).consumer_offsets
    assert offsets == {("G", "T"): {0: offset}, ("Plain", "T"): {0: 1}, ("Light", "T"): {0: 2}}


NAMES = ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json"]
TABLES_OF = dict(zip(NAMES, ["topicConfigTable", "subscriptionGroupTable", *["offsetTable"] * 3], strict=True))


def is_known(config: store_config.StoreConfig, name: str, entry: str | None = None) -> bool:
    try:
        config.refuse_unknown(name, entry)
    except StoreError as error:
        assert name in str(error)  # noqa: PT017 - it names the file
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_holds_nothing_that_is_known(name: str, tmp_path: Path) -> None:
    for content in ("", " \n", "{", "null", "[]", "\0" * 64, '{"TABLE":[]}', '{"TABLE":{"T":'):
        write(tmp_path, name, content.replace("TABLE", TABLES_OF[name]))
        config = store_config.StoreConfig.load(tmp_path)
        assert [other for other in NAMES if not is_known(config, other)] == [name]
        assert any(name in problem for problem in config.problems)
        write(tmp_path, name, "{}")
        assert is_known(store_config.StoreConfig.load(tmp_path, config), name)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_an_older_file_says_nothing_while_the_system_refuses_the_newer_one(tmp_path, monkeypatch, number) -> None:
    write(tmp_path, "consumerOffset.json", '{"offsetTable":{"T@G":{0:7},"T@New":{0:5}}}')
    write(tmp_path, "consumerOffset.json.bak", '{"offsetTable":{"T@G":{0:3}}}')
    opened = os.open

    def refuse(path, *more, **options):
        if str(path).endswith("consumerOffset.json"):
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, *more, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        unknown = store_config.StoreConfig.load(tmp_path)
        for group in ("G", "New"):
            with pytest.raises(StoreError, match="consumerOffset"):
                unknown.refuse_unknown_offsets(group, "T")
    known = store_config.StoreConfig.load(tmp_path, unknown)
    known.refuse_unknown_offsets("New", "T")
    assert known.consumer_offsets["G", "T"] == {0: 7}


def test_of_a_damaged_entry_it_is_not_known_what_it_said(tmp_path: Path) -> None:
    write(tmp_path, "consumerOffset.json", '{"offsetTable":{"T@G":{0:"x"},"T@H":{0:3}}}')
    write(tmp_path, "topics.json", '{"topicConfigTable":{"T":{"perm":"x"},"U":{}}}')
    config = store_config.StoreConfig.load(tmp_path)
    config.refuse_unknown_offsets("H", "T")
    assert config.has_unknown_offsets
    with pytest.raises(StoreError, match="T@G"):
        config.refuse_unknown_offsets("G", "T")
    assert is_known(config, "topics.json", "U")
    assert not is_known(config, "topics.json", "T")


@given(st.one_of(st.binary(max_size=200), st.text(alphabet='{}[]":,0123456789abT@\\ut', max_size=80).map(str.encode)))
def test_any_bytes_give_a_configuration(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    root = tmp_path_factory.mktemp("config")
    for name in ("topics", "subscriptionGroup", "consumerOffset", "lmqConsumerOffset", "delayOffset", "consumerFilter"):
        write(root, f"{name}.json", content)
    assert isinstance(store_config.StoreConfig.load(root).problems, list)


def test_a_change_in_the_same_instant_is_seen(tmp_path: Path) -> None:
    """Of one size, with the times of the one before: a young file is read again whatever its times say."""
    write(tmp_path, "consumerOffset.json", b'{"offsetTable":{"T@G":{0:5}}}')
    times = time.time_ns()
    os.utime(tmp_path / "config" / "consumerOffset.json", ns=(times, times))
    config = store_config.StoreConfig.load(tmp_path)
    assert config.consumer_offsets[("G", "T")] == {0: 5}
    write(tmp_path, "consumerOffset.json", b'{"offsetTable":{"T@G":{0:7}}}')
    os.utime(tmp_path / "config" / "consumerOffset.json", ns=(times, times))
    assert store_config.StoreConfig.load(tmp_path, config).consumer_offsets[("G", "T")] == {0: 7}


G2 = GOLDEN / "g2"
FRAMES = {"g2-rocksdb": "frames.jsonl.xz", "g2-rocksdb-killed": "frames.jsonl.xz", "g2-rocksdb-v2": "answers.jsonl.xz"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: unpack("store", tmp_path_factory.mktemp(name), archives=G2 / name) for name in FRAMES}


def answered_offsets(name: str) -> dict[tuple[str, str, int], int]:
    asked: dict[int, tuple[str, str, int]] = {}
    found = {}
    for line in lzma.decompress((G2 / name / FRAMES[name]).read_bytes()).splitlines():
        header = json.loads(line)["header"]
        if header["flag"] & 1 == 0:
            if header["code"] == 14:  # QUERY_CONSUMER_OFFSET
                fields = header["extFields"]
                asked[header["opaque"]] = (fields["consumerGroup"], fields["topic"], int(fields["queueId"]))
        elif header["opaque"] in asked and header["code"] == 0:
            found[asked[header["opaque"]]] = int(header["extFields"]["offset"])
    return found


@pytest.mark.parametrize("name", FRAMES)
def test_committed_offsets_are_what_the_broker_answered_and_nothing_is_written(name, stores) -> None:
    before = state_of(stores[name] / "config")
    config = store_config.StoreConfig.load(stores[name])
    assert state_of(stores[name] / "config") == before
    config.refuse_unknown_offsets()
    # Where a group has none, a broker answers 0 for a queue that begins with 0.
    known = {place: offset for place, offset in answered_offsets(name).items() if offset}
    assert len(known) >= 3
    for (group, topic, queue_id), offset in known.items():
        assert config.consumer_offsets[group, topic][queue_id] == offset
    assert "NoSuchGroup" not in {group for group, _ in config.consumer_offsets}


@pytest.mark.parametrize("name", FRAMES)
def test_topics_and_groups_are_those_that_were_made(name: str, stores: dict[str, Path]) -> None:
    config = store_config.StoreConfig.load(stores[name])
    queues = {"LedgerTopic": 2, "LedgerDelay": 1, "LedgerFails": 1, "LedgerTransactions": 1, "LightParent": 2}
    assert {topic: config.topics[topic].read_queue_nums for topic in queues} == queues
    assert config.topics_version.counter > 0
    if name != "g2-rocksdb-v2":  # which writes only what administrators made
        assert {"CG_REPLAY", "TOOLS_CONSUMER"} < set(config.subscription_groups)
        assert config.subscription_groups["CG_REPLAY"].retry_max_times == 16
    assert not [problem for problem in config.problems if "RocksDB" in problem]


@pytest.mark.parametrize("name", ["g2-rocksdb", "g2-rocksdb-v2"])
def test_without_the_extra_offsets_are_unknown_and_it_is_said_once(name, stores, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    config = store_config.StoreConfig.load(stores[name])
    with pytest.raises(StoreError, match=re.escape(install_line("rocksdb"))):
        config.refuse_unknown_offsets()
    config.refuse_unknown(store_config.TOPICS)
    assert config.is_unknown(store_config.GROUPS)
    assert config.is_unknown(store_config.OFFSETS)
    (said,) = [problem for problem in config.problems if "RocksDB" in problem]
    assert "topics are those of the log, groups and how far they have come are not known" in said


@pytest.mark.parametrize("giant", ["CURRENT", "000015.sst"])
def test_a_file_of_a_database_that_is_a_giant_is_named_and_not_read(giant, stores, tmp_path) -> None:
    """The library would take its apparent size of memory, and end the process, or read for hours."""
    shutil.copytree(stores["g2-rocksdb"] / "config", tmp_path / "config")
    path = tmp_path / "config" / "topics" / giant
    path.touch()
    make_giant(path)
    config = store_config.StoreConfig.load(tmp_path)
    with pytest.raises(StoreError, match=rf"{path}: .*1,099,511,627,776 bytes long"):
        config.refuse_unknown(store_config.TOPICS)
    config.refuse_unknown_offsets()
    assert len(config.consumer_offsets) >= 5


@pytest.mark.parametrize("each", [29, pytest.param(5, marks=pytest.mark.soak)])
def test_wherever_a_manifest_is_cut_no_row_is_missed_in_silence(stores, tmp_path, each) -> None:
    """RocksDB takes what is cut for a crash, and opens an older state with fewer rows or none."""
    shutil.copytree(stores["g2-rocksdb"] / "config", tmp_path / "config")
    manifest = tmp_path / "config" / "topics" / "MANIFEST-000005"
    whole, named = manifest.read_bytes(), 0
    topics = store_config.StoreConfig.load(tmp_path).topics
    assert len(topics) > 10
    for cut in range(0, len(whole), each):
        manifest.write_bytes(whole[:cut])
        config = store_config.StoreConfig.load(tmp_path)
        if config.topics == topics:
            continue
        named += 1
        with pytest.raises(StoreError, match=f"{tmp_path}/config/topics"):
            config.refuse_unknown(store_config.TOPICS)
    assert named > 500 / each


def test_the_recorded_checkpoint_speaks_of_the_recorded_log(g1_store) -> None:
    checkpoint = Checkpoint.read(g1_store / "checkpoint")
    assert checkpoint == Checkpoint(
        physic_msg_timestamp=0x01A1FCDA9506, logics_msg_timestamp=0x01A1FCDA9506, index_msg_timestamp=0x01A1FCDA0D20,
        master_flushed_offset=0, confirm_physical_offset=0, logics_physical_offset=0x02601E,
    )  # fmt: skip
    assert checkpoint.min_timestamp == 0x01A1FCDA9506 - 3000


@pytest.mark.parametrize("size", [0, 1, 40, 47])
def test_a_short_checkpoint_is_refused_with_its_length(size, tmp_path) -> None:
    (tmp_path / "checkpoint").write_bytes(bytes(size))
    with pytest.raises(TruncatedFile, match=f"needs 48 bytes, but only {size} are there"):
        Checkpoint.read(tmp_path / "checkpoint")


def test_the_default_levels_are_rocketmqs_and_junk_is_refused() -> None:
    # The default levels are rocketmqs.
    assert DEFAULT_DELAY_LEVELS == RECORDED_LEVELS
    levels = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    assert levels == tuple(delay_milliseconds(level) for level in range(1, 19))
    assert (levels[0], levels[4], levels[17]) == (1000, 60_000, 7_200_000)
    # Junk is refused with its level.
    for text, complaint in [
        ("", "level 1 is ''"), (" 1s", "level 1 is ''"), ("1s  5s", "level 2 is ''"), ("1s 5", "level 2 is '5'"),
        ("1s\t5s", r"level 1 is '1s\\t5s'"), ("1S", "level 1 is '1S'"), ("s", "level 1 is 's'"),
        ("1.5s", "level 1 is '1.5s'"), ("-1s", "level 1 is '-1s'"), ("1ms", "level 1 is '1ms'"),
        ("١s", "level 1 is '١s'"), ("9223372036854775s 9223372036854776s", "level 2 is '9223372036854776s'"),
        ("1" * 100 + "s", "level 1 is '1111"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=complaint):
            parse_delay_levels(text)


@pytest.mark.parametrize(
    ("number", "form"), [(-1, "#a comment\n committedIndex : {} \n"), (17, "endIndex=81\ncommittedIndex={}\n")]
)
def test_what_lies_behind_the_committed_index_is_served_with_a_word(tmp_path, number, form) -> None:
    ledger = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-dledger") / "dledger-n0" / "data"
    (ledger.parent / "checkpoint").write_text(form.format(number))
    with (ledger.parent / "index" / ("0" * 20)).open("rb") as file:
        place = int.from_bytes(file.read(1 << 16)[number * 32 + 36 : number * 32 + 44], "big")
    assert uncommitted_from(ledger) == place
    store = MessageStore.open(ledger.parents[1])
    (problem,) = store.problems
    assert f"the entries from physical offset {place} on lie behind the committedIndex" in problem
    assert store.record_at(place + 48) is not None
    assert uncommitted_problem([ledger], place) is None


def test_what_is_not_whole_or_does_not_ascend_is_no_list_of_epochs() -> None:
    for data in [
        b"", b"2\n", b"3\n773307083\n7-7000\n8-8000\n", b"2\n773307084\n7-7000\n8-8000\n", b"2\n0\n7-7000\n8-x\n",
        b"2\n0\n8-7000\n7-8000\n", b"2\n0\n7-8000\n8-8000\n",
    ]:  # fmt: skip
        assert parse_epochs(data) == []


@given(st.sets(st.integers(0, 2**31 - 1)), st.sets(st.integers(0, 2**63 - 1)), st.sampled_from(["\n", "\r\n"]))
def test_what_a_broker_writes_is_read(numbers: set[int], starts: set[int], separator: str) -> None:
    entries = list(map(Epoch, sorted(numbers), sorted(starts)))
    body = "".join(f"{number}-{start}{separator}" for number, start in entries).encode()
    head = f"{len(entries)}{separator}{zlib.crc32(body) & 0x7FFFFFFF}{separator}".encode()
    assert parse_epochs(head + body) == entries


def test_a_recorded_broker_has_read_its_whole_timer_topic(tmp_path) -> None:
    store = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-queues")
    check = TimerCheck.read(store / "config" / "timercheck")
    # Seven timer messages were sent; the last one that was delivered was due at 1795253924000.
    assert check.last_queue_offset == 7
    assert 1795253924000 < check.last_read_timestamp < 1795253924000 + 60_000


def test_a_file_that_is_cut_or_negative_is_refused_by_name(tmp_path) -> None:
    path = tmp_path / "timercheck"
    path.write_bytes(bytes(20))
    with pytest.raises(TruncatedFile, match="timercheck"):
        TimerCheck.read(path)
    path.write_bytes(struct.pack(">7q", -5, 0, 3, 3, 0, 0, 0))
    with pytest.raises(StoreError, match=r"timercheck.*a time and a queue offset"):
        TimerCheck.read(path)


def test_blanks_and_what_was_never_written_are_no_units() -> None:
    rows = [(52, -1, 1, 1, 1, 0, 9, 0, 0), (52, -1, 7, 1, 1, 99, 9, 0, 0), (104, 0, -875286124, 0, 0, 0, 0, 0, 0),
            (0, 0, 0, 0, 0, 0, 0, 0, 0), (52, -1, 8, 1, 1, 0, 9, 0, 0), (52, -1, 1, 1, 1, -1, 9, 0, 0)]  # fmt: skip
    units = np.frombuffer(b"".join(TIMER_UNIT.pack(*row) for row in rows), TIMER_UNIT_DTYPE)
    assert are_units(units).tolist() == [True, True, False, False, False, False]
