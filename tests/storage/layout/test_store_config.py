"""`config/*.json`: what brokers write, what crashes leave of it, and anything else that may stand there."""

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_frames import parse_java_json
from golden_store import GOLDEN, unpack
from protocol.errors import StoreError
from storage.layout.store_config import (
    YOUNG_NS,
    BloomFilterData,
    ConsumerFilter,
    DataVersion,
    StoreConfig,
    SubscriptionGroup,
    TopicConfig,
)
from store_writer import StoreWriter


def write(root: Path, name: str, text: str | bytes) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def test_the_recorded_topics_are_read_with_all_their_fields(g1_store: Path) -> None:
    recorded = parse_java_json((g1_store / "config" / "topics.json").read_text())
    config = StoreConfig.load(g1_store)
    assert config.problems == []
    assert {name: json.loads(msgspec.json.encode(topic)) for name, topic in config.topics.items()} == recorded[
        "topicConfigTable"
    ]
    assert json.loads(msgspec.json.encode(config.topics_version)) == recorded["dataVersion"]


@pytest.mark.parametrize(
    ("name", "release"),
    [("g1/store", "V5_5_0"), ("g2/g2-queues/store", "V5_5_0"), ("g2/g2-queues-5.5.1/store", "V5_5_1")],
)
def test_the_release_of_a_store_is_that_of_the_broker_that_wrote_it(name: str, release: str, tmp_path: Path) -> None:
    root = unpack(Path(name).name, tmp_path, archives=(GOLDEN / name).parent)
    assert StoreConfig.load(root).release.name == release


def test_topics_without_attributes_are_those_of_a_release_that_knows_none(g1_store: Path, tmp_path: Path) -> None:
    """`TopicConfig` of 4.9.8 has no such member, and a broker from 5.0 on writes it of every topic."""
    text = (g1_store / "config" / "topics.json").read_text()
    assert text.count('"attributes":{},') > 3
    write(tmp_path, "topics.json", text.replace('"attributes":{},', ""))
    assert StoreConfig.load(tmp_path).release.name == "V4_9_8"
    write(tmp_path, "topics.json", text.replace('"attributes":{},', "", 3))
    assert StoreConfig.load(tmp_path).release.name == "V5_5_1"


def test_the_recorded_groups_are_read_with_all_their_fields(g1_store: Path) -> None:
    recorded = parse_java_json((g1_store / "config" / "subscriptionGroup.json").read_text())
    config = StoreConfig.load(g1_store)
    found = {name: json.loads(msgspec.json.encode(group)) for name, group in config.subscription_groups.items()}
    assert found == recorded["subscriptionGroupTable"]
    assert config.subscription_groups_version == DataVersion(3, 0, 1795243535056)
    assert config.forbidden == {}


def test_the_recorded_offsets_are_read_by_group_and_topic(g1_store: Path) -> None:
    config = StoreConfig.load(g1_store)
    assert config.consumer_offsets["CG_SQL", "TopicTest"] == {0: 10, 1: 15, 2: 11, 3: 12}
    assert config.consumer_offsets["CG_FAIL", "TopicBatch"] == {1: 10}
    assert config.pull_offsets["TOOLS_CONSUMER", "TopicTest"] == {0: 3, 1: 15, 2: 13, 3: 12}
    assert (len(config.consumer_offsets), len(config.pull_offsets)) == (5, 5)
    assert config.consumer_offsets_version == DataVersion(0, 0, 1795243492604)
    assert config.delay_offsets == {1: 1, 3: 10}


def test_the_recorded_filter_is_read(g1_store: Path) -> None:
    assert StoreConfig.load(g1_store).filters == {
        "TopicTest": {
            "CG_SQL": ConsumerFilter(
                consumer_group="CG_SQL",
                topic="TopicTest",
                expression="a > 10 AND a <= 30 AND region = 'hz'",
                expression_type="SQL92",
                born_time=1795243523265,
                dead_time=1795243531253,
                client_version=1795243523725,
                bloom_filter_data=BloomFilterData(112, [22, 91, 50]),
            )
        }
    }


def test_attributes_forbidden_topics_and_light_offsets_are_read(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.set_topic("B", {"queue.type": "BatchCQ", "cleanup.policy": "DELETE"})
    writer.append("T", b"")
    writer.consumer_offsets["T@g"] = {0: 5}
    writer.flush()
    writer.write_config(
        "subscriptionGroup.json", {"forbiddenTable": {"g": {"T": 4}}, "subscriptionGroupTable": {"g": {}}}
    )
    writer.write_config("lmqConsumerOffset.json", {"lmqOffsetTable": {"%LMQ%x@g": 7}, "offsetTable": {}})
    config = StoreConfig.load(tmp_path)
    assert config.topics["B"].attributes == {"queue.type": "BatchCQ", "cleanup.policy": "DELETE"}
    assert config.forbidden == {"g": {"T": 4}}
    assert config.subscription_groups == {"g": SubscriptionGroup("g")}
    assert config.consumer_offsets == {("g", "T"): {0: 5}, ("g", "%LMQ%x"): {0: 7}}
    assert config.problems == []


@pytest.mark.parametrize(("newer", "offset"), [("consumerOffset.json", 9), ("lmqConsumerOffset.json", 4)])
def test_of_two_files_of_offsets_the_newer_one_counts_and_the_other_where_that_has_nothing(
    tmp_path: Path, newer: str, offset: int
) -> None:
    write(tmp_path, "consumerOffset.json", b'{"offsetTable":{"T@G":{0:9},"T@Plain":{0:1}}}')
    write(tmp_path, "lmqConsumerOffset.json", b'{"offsetTable":{"T@G":{0:4},"T@Light":{0:2}}}')
    for number, name in enumerate(("consumerOffset.json", "lmqConsumerOffset.json")):
        stamp = 2_000_000_000 + 1_000 * number + 5_000 * (name == newer)
        os.utime(tmp_path / "config" / name, (stamp, stamp))
    offsets = StoreConfig.load(tmp_path).consumer_offsets
    assert offsets == {("G", "T"): {0: offset}, ("Plain", "T"): {0: 1}, ("Light", "T"): {0: 2}}


# --- what is left after a crash ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("main", [None, "", "  \n", "{", '{"topicConfigTable":{"T":', "[]", "null", "\0" * 100])
def test_the_old_file_serves_where_the_new_one_does_not(main: str | None, tmp_path: Path) -> None:
    write(tmp_path, "topics.json.bak", '{"topicConfigTable":{"Old":{"perm":4}}}')
    if main is not None:
        write(tmp_path, "topics.json", main)
    config = StoreConfig.load(tmp_path)
    assert config.topics == {"Old": TopicConfig("Old", perm=4)}
    assert f"{tmp_path}/config/topics.json is missing or unreadable, topics.json.bak is used instead" in config.problems


# --- what is not known ------------------------------------------------------------------------------------------------

NAMES = ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json"]
TABLES_OF = dict(zip(NAMES, ["topicConfigTable", "subscriptionGroupTable", *["offsetTable"] * 3], strict=True))


def is_known(config: StoreConfig, name: str, entry: str | None = None) -> bool:
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
        config = StoreConfig.load(tmp_path)
        assert [other for other in NAMES if not is_known(config, other)] == [name]
        assert any(name in problem for problem in config.problems)
        write(tmp_path, name, "{}")
        assert is_known(StoreConfig.load(tmp_path, config), name)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_an_older_file_says_nothing_while_the_system_refuses_the_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write(tmp_path, "consumerOffset.json", '{"offsetTable":{"T@G":{0:7},"T@New":{0:5}}}')
    write(tmp_path, "consumerOffset.json.bak", '{"offsetTable":{"T@G":{0:3}}}')
    opened = os.open

    def refuse(path: Any, *more: Any, **options: Any) -> int:
        if str(path).endswith("consumerOffset.json"):
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, *more, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        unknown = StoreConfig.load(tmp_path)
        for group in ("G", "New"):
            with pytest.raises(StoreError, match="consumerOffset"):
                unknown.refuse_unknown_offsets(group, "T")
    known = StoreConfig.load(tmp_path, unknown)
    known.refuse_unknown_offsets("New", "T")
    assert known.consumer_offsets["G", "T"] == {0: 7}


def test_a_file_in_the_place_of_the_directory_leaves_all_unknown(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"")
    config = StoreConfig.load(tmp_path)
    assert not any(is_known(config, name) for name in NAMES)


def test_of_a_damaged_entry_it_is_not_known_what_it_said(tmp_path: Path) -> None:
    write(tmp_path, "consumerOffset.json", '{"offsetTable":{"T@G":{0:"x"},"T@H":{0:3}}}')
    write(tmp_path, "topics.json", '{"topicConfigTable":{"T":{"perm":"x"},"U":{}}}')
    config = StoreConfig.load(tmp_path)
    config.refuse_unknown_offsets("H", "T")
    assert config.has_unknown_offsets
    with pytest.raises(StoreError, match="T@G"):
        config.refuse_unknown_offsets("G", "T")
    assert is_known(config, "topics.json", "U")
    assert not is_known(config, "topics.json", "T")


# --- whatever may stand there -----------------------------------------------------------------------------------------


def test_an_entry_that_is_none_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    text = """{"topicConfigTable":{"T":{"perm":"6","readQueueNums":4},"A":5,"B":{"perm":"x"},"C":{"readQueueNums":1e30},
        "D":{"attributes":[]},"E":{"perm":9999999999}}}"""
    write(tmp_path, "topics.json", text)
    config = StoreConfig.load(tmp_path)
    assert config.topics == {"T": TopicConfig("T", read_queue_nums=4, perm=6)}
    assert len(config.problems) == 5
    assert config.problems[0].startswith(f"{tmp_path}/config/topics.json, topicConfigTable, 'A': ")
    assert all(problem.endswith("; left out") for problem in config.problems)


def test_of_many_bad_entries_only_some_are_told(tmp_path: Path) -> None:
    entries = ",".join(f'"T{number}":5' for number in range(1000))
    write(tmp_path, "topics.json", f'{{"topicConfigTable":{{{entries}}}}}')
    problems = StoreConfig.load(tmp_path).problems
    assert len(problems) == 11
    assert problems[-1] == f"{tmp_path}/config/topics.json: there are more such entries"


@given(st.one_of(st.binary(max_size=200), st.text(alphabet='{}[]":,0123456789abT@\\ut', max_size=80).map(str.encode)))
def test_any_bytes_give_a_configuration(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    root = tmp_path_factory.mktemp("config")
    for name in ("topics", "subscriptionGroup", "consumerOffset", "lmqConsumerOffset", "delayOffset", "consumerFilter"):
        write(root, f"{name}.json", content)
    assert isinstance(StoreConfig.load(root).problems, list)


class TestAgain:
    """Read again once a second while a broker runs, and most times nothing has changed."""

    def loaded(self, root: Path, age_ns: int = 2 * YOUNG_NS) -> StoreConfig:
        """Configuration of two files that were written some time ago."""
        write(root, "topics.json", b'{"topicConfigTable":{"T":{"topicName":"T"}}}')
        write(root, "consumerOffset.json", b'{"offsetTable":{"T@G":{0:5}}}')
        self.age(root, age_ns)
        return StoreConfig.load(root)

    def age(self, root: Path, age_ns: int) -> None:
        for path in (root / "config").iterdir():
            os.utime(path, ns=(0, time.time_ns() - age_ns))

    def test_files_that_did_not_change_are_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = self.loaded(tmp_path)
        monkeypatch.setattr("storage.layout.store_config.read_small_file", None)
        assert StoreConfig.load(tmp_path, config) is config

    def test_a_change_in_the_same_instant_is_seen(self, tmp_path: Path) -> None:
        """Of one size, with the times of the one before: a young file is read again whatever its times say."""
        config = self.loaded(tmp_path, age_ns=0)
        times = (tmp_path / "config" / "consumerOffset.json").stat().st_mtime_ns
        write(tmp_path, "consumerOffset.json", b'{"offsetTable":{"T@G":{0:7}}}')
        os.utime(tmp_path / "config" / "consumerOffset.json", ns=(times, times))
        assert StoreConfig.load(tmp_path, config).consumer_offsets[("G", "T")] == {0: 7}
