"""Which files a store has, its layouts, and the parts that are not read."""

import json
import shutil
from functools import partial

import pytest

from broker_harness import service_of, serving_in_a_thread
from command_line import rocketlens
from golden_store import CASES, unpack
from protocol.codes import RequestCode
from protocol.errors import NotAStore
from spark_jobs.read.absent_topics import unread_of_store
from spark_jobs.read.log_ranges import find_ranges
from spark_jobs.scan.source import find_source
from storage.diff._log_pieces import open_log
from storage.doctor._opened_store import OpenedStore
from storage.layout.store_config import StoreConfig
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


@pytest.mark.parametrize(
    ("path", "content"),
    [("checkpoint", b"endIndex=5\ncommittedIndex=4\n"), (f"index/{SEGMENT}", b"\0\0\0\1" + bytes(28))],
)
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
