"""What is not read: `unread_answers` lists it, and the answers that it names there say so."""

import json
from functools import partial

import pytest

from broker_harness import service_of, serving_in_a_thread
from command_line import rocketlens
from golden_store import CASES, unpack
from protocol.codes import RequestCode
from spark_jobs.read.absent_topics import unread_of_store
from storage.layout.store_config import StoreConfig
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from trial_oracle import TrialClient
from unread_answers import UNREAD
from web_questions import ApiOf

OF_NOTHING = ["doctor", "info", "serve", "page", "metrics"]
LISTED = {each.name: [*OF_NOTHING, *each.said_by] for each in UNREAD}


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
    writer = StoreWriter(tmp_path / "store")
    writer.append("T", b"x", keys="k", unique_key="U")
    writer.set_topic("Other")
    writer.consumer_offsets = {"T@g": {0: 1}}
    writer.close()
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
        "store": {},
        "topics": {},
        "topic": {"topic": "T"},
        "find": {"text": "nowhere"},
        "search": {"topic": "T", "contains": "x"},
        "message/life": {"uniqueKey": "U"},
    }
    return json.dumps([api.ask(f"/{path}", **parameters).json for path, parameters in asked.items()])


ASKED: dict[str, tuple[str, ...]] = {
    "tail": ("T",),
    "search": ("T", "--contains", "x"),
    "life": ("U",),
    "space": ("--by", "topic"),
}


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
