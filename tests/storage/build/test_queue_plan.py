"""The plan of which queues a rebuild makes, from topics.json and the queue directories, before the log is read."""

from pathlib import Path

import pytest

from protocol.errors import ConfigError
from storage.build.queue_plan import CarriedQueue, QueueKey, QueueOptions, QueuePlan, Verdict
from store_files import write_file
from store_writer import StoreWriter


def options(**more: object) -> QueueOptions:
    return QueueOptions(**more)  # type: ignore[arg-type]


def plain(topic: str, queue_id: int = 0) -> QueueKey:
    return QueueKey("consumequeue", topic, queue_id)


def batch(topic: str, queue_id: int = 0) -> QueueKey:
    return QueueKey("batchconsumequeue", topic, queue_id)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    writer = StoreWriter(tmp_path / "store", ext_bit_map=b"", ext_file_size=300)
    for number in range(30):
        writer.append("T", queue_id=number % 2)
    writer.append("Other")
    writer.append_inner_batch("B", [(b"a", {})])
    writer.close()
    return writer.root


def lose_topics(root: Path) -> None:
    (root / "config" / "topics.json").unlink()


def test_sizes_topics_and_kinds_are_those_of_the_store(store: Path) -> None:
    plan = QueuePlan.of(store)
    assert plan.file_sizes == {"consumequeue": 2000, "batchconsumequeue": 920, "consumequeue_ext": 300}
    assert plan.existing == {plain("T"), plain("T", 1), plain("Other"), batch("B")}
    assert (plan.batch_topics, plan.lmq, plan.ext) == ({"B"}, False, True)
    assert plan.known_topics is not None
    assert plan.known_topics >= {"T", "Other", "B"}
    assert (plan.misplaced, plan.problems) == (frozenset(), ())


def test_an_empty_store_gets_a_brokers_defaults(tmp_path: Path) -> None:
    plan = QueuePlan.of(tmp_path)
    assert plan.file_sizes == {
        "consumequeue": 6_000_000, "batchconsumequeue": 13_800_000, "consumequeue_ext": 50_331_648,
    }  # fmt: skip
    assert (plan.existing, plan.known_topics, plan.lmq, plan.ext) == (frozenset(), None, False, False)


def test_what_was_asked_for_wins(store: Path) -> None:
    asked = options(lmq=True, ext=True, consume_queue_file_size=1999, batch_file_size=46, ext_file_size=24)
    plan = QueuePlan.of(store, asked)
    # A broker rounds the size of plain files up to whole units.
    assert plan.file_sizes == {"consumequeue": 2000, "batchconsumequeue": 46, "consumequeue_ext": 24}
    assert (plan.lmq, plan.ext) == (True, True)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"consume_queue_file_size": 0}, r"files of 0 bytes in consumequeue/: expected 20 to 2147483647"),
        ({"consume_queue_file_size": 1 << 31}, "files of 2147483660 bytes"),
        ({"batch_file_size": 100}, "in batchconsumequeue/: expected 46 to 2147483647 and a multiple of 46"),
        ({"batch_file_size": -46}, "files of -46 bytes"),
        ({"ext_file_size": 23}, "in consumequeue_ext/: expected 24 to 2147483647"),
    ],
)
def test_sizes_that_no_file_can_have_are_refused(store: Path, more: dict[str, int], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        QueuePlan.of(store, options(**more))


def test_of_several_lengths_the_usual_one_counts_and_the_others_are_told(store: Path) -> None:
    write_file(store / "consumequeue" / "T" / "0" / f"{2000:020d}", 4000, {})
    write_file(store / "consumequeue" / "T" / "0" / f"{6000:020d}", 0, {})
    write_file(store / "batchconsumequeue" / "B" / "0" / f"{920:020d}", 930, {})
    write_file(store / "batchconsumequeue" / "B" / "0" / f"{1850:020d}", 930, {})
    plan = QueuePlan.of(store)
    assert plan.file_sizes["consumequeue"] == 2000
    assert plan.file_sizes["batchconsumequeue"] == 920
    told = "\n".join(plan.problems)
    assert "consumequeue: 1 of 4 files are not 2000 bytes long" in told
    assert "batchconsumequeue: 2 of 3 files are not 920 bytes long" in told


def test_directories_that_are_no_queues_are_not_looked_at(store: Path) -> None:
    for name in ("x", "-1", "007", "2147483648"):
        (store / "consumequeue" / "T" / name).mkdir()
    (store / "consumequeue" / "file").touch()
    assert len(QueuePlan.of(store).existing) == 4


def test_without_topics_the_directories_say_which_topics_hold_batches(store: Path) -> None:
    lose_topics(store)
    plan = QueuePlan.of(store)
    assert (plan.known_topics, plan.batch_topics, plan.misplaced) == (None, {"B"}, frozenset())
    assert not plan.is_unknown("T")
    with pytest.raises(ConfigError, match=r"no config/topics\.json"):
        QueuePlan.of(store, options(drop_unknown_topics=True))


def test_a_queue_in_the_tree_of_the_other_kind_is_left_out_and_told(store: Path) -> None:
    for key in (plain("B", 3), batch("T", 4), batch("deleted")):
        write_file(store / key.path / f"{0:020d}", 920, {})
    plan = QueuePlan.of(store)
    assert plan.misplaced == {plain("B", 3), batch("T", 4), batch("deleted")}
    assert sum("a broker refuses to start" in problem for problem in plan.problems) == 3
    assert [queue.key for queue in plan.carried([plain("T"), plain("T", 1)], in_place=True)] == [
        batch("B"), plain("Other"),
    ]  # fmt: skip


def test_records_belong_to_the_tree_of_their_topics_kind(store: Path) -> None:
    plan = QueuePlan.of(store)
    assert plan.key(b"T", 7) == plain("T", 7)
    assert plan.key(b"B", 7) == batch("B", 7)
    assert plan.key("%LMQ%主题".encode(), 0) == plain("%LMQ%主题")
    assert plain("T", 7).path == Path("consumequeue/T/7")


@pytest.mark.parametrize(
    "topic", [b"", b".", b"..", b"a/b", b"../../etc", b"a\0", b"\xff", b"\xed\xa0\x80", b"a" * 256]
)
def test_names_that_no_directory_can_have_are_not_followed(topic: bytes, store: Path) -> None:
    plan = QueuePlan.of(store)
    assert plan.key(topic, 0) is None
    assert plan.verdict(topic, 0) is Verdict.UNUSABLE
    assert plan.verdict(b"T", -1) is Verdict.UNUSABLE
    assert plan.verdict(b"T", 1 << 31) is Verdict.UNUSABLE


def test_topics_that_nobody_knows_are_built_unless_asked_otherwise(store: Path) -> None:
    for drop in (False, True):
        plan = QueuePlan.of(store, options(drop_unknown_topics=drop))
        assert plan.verdict(b"deleted", 0) is (Verdict.UNKNOWN if drop else Verdict.BUILD)
        assert plan.is_unknown("deleted")
        for kept in ("T", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "%LMQ%x", "TBW102"):
            assert plan.verdict(kept.encode(), 0) is Verdict.BUILD, kept
            assert not plan.is_unknown(kept)


def test_what_the_log_has_nothing_of_is_carried_over(store: Path) -> None:
    plan = QueuePlan.of(store)
    for in_place in (True, False):
        assert plan.carried([plain("T"), plain("T", 1)], in_place=in_place) == [
            CarriedQueue(batch("B"), untouched=False),
            CarriedQueue(plain("Other"), untouched=False),
        ]
    assert plan.carried(plan.existing, in_place=True) == []


def test_dropped_topics_are_not_carried_over(store: Path) -> None:
    write_file(store / "consumequeue" / "deleted" / "0" / f"{0:020d}", 2000, {})
    write_file(store / "consumequeue" / "%LMQ%x" / "0" / f"{0:020d}", 2000, {})
    plan = QueuePlan.of(store, options(drop_unknown_topics=True))
    carried = plan.carried([plain("T"), plain("T", 1), batch("B")], in_place=True)
    assert [queue.key for queue in carried] == [plain("%LMQ%x"), plain("Other")]


def test_topics_that_were_not_asked_for_stay_as_they_are_in_place_alone(store: Path) -> None:
    write_file(store / "batchconsumequeue" / "T" / "9" / f"{0:020d}", 920, {})
    plan = QueuePlan.of(store, options(topics=frozenset({"T"})))
    assert plan.verdict(b"T", 0) is Verdict.BUILD
    assert plan.verdict(b"Other", 0) is Verdict.OTHER_TOPIC
    built = [plain("T")]
    silent = CarriedQueue(plain("T", 1), untouched=False)
    assert plan.carried(built, in_place=False) == [silent]
    assert plan.carried(built, in_place=True) == [
        CarriedQueue(batch("B"), untouched=True),
        CarriedQueue(plain("Other"), untouched=True),
        silent,
    ]
