"""Offsets of groups: whose are taken over, how they outlive the server, and what is in flight."""

import os
import random
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import pytest

from asking import FakeConnection
from broker.endpoint import Endpoint
from broker.service.consumers import pulled_offsets
from broker.service.consumers.client_registry import ClientRegistry
from broker.service.consumers.consume_rates import SPANS, ConsumeRates
from broker.service.consumers.consumer_offsets import ConsumerOffsets
from broker.service.consumers.member_commits import HELD_COST, HOLD_SECONDS, PROXY_GROUP, MemberCommits
from broker.service.consumers.offset_journal import OffsetJournal
from broker.service.consumers.offset_keeper import FILE, OffsetKeeper
from broker.service.consumers.pulled_offsets import PulledOffsets
from broker.service.consumers.report_limits import LONGEST_GROUP
from broker.service.registry_budget import RegistryBudget, size_of
from broker.service.state_directory import StateDirectory, may_hold
from golden_frames import parse_java_json
from protocol.bodies import ConsumerData, HeartbeatData
from protocol.errors import ConfigError, StoreError


@dataclass
class OffsetConfig:
    consumer_offsets: dict[tuple[str, str], dict[int, int]]
    pull_offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)

    def refuse_unknown_offsets(self, *_: str | None) -> None:
        """All of them are known."""


@pytest.fixture
def store():
    recorded = {("G", "T"): {0: 5, 1: 6}, ("H", "T"): {0: 1}}
    return SimpleNamespace(config=OffsetConfig(recorded, {("G", "T"): {0: 9}}))


def test_offset_zero_is_an_offset_and_a_negative_one_is_none(store) -> None:
    offsets = ConsumerOffsets(store)
    offsets.commit("G", "T", 0, 0)
    offsets.commit("G", "T", 1, -1)
    assert (offsets.committed("G", "T", 0), offsets.committed("G", "T", 1)) == (0, 6)


def test_beside_a_broker_what_it_writes_down_later_counts_more(store) -> None:
    offsets = ConsumerOffsets(store, gives_way=True)
    offsets.commit("G", "T", 0, 7)
    offsets.commit("G", "T", 2, 3)
    assert offsets.committed("G", "T", 0) == 7
    assert offsets.offsets_of("G", "T") == {0: 7, 1: 6, 2: 3}
    # The broker is back: it writes down where the group is with it, be that before or behind.
    for recorded in (20, 4):
        store.config = OffsetConfig({("G", "T"): {0: recorded, 1: 6}})
        assert offsets.committed("G", "T", 0) == recorded
        assert offsets.offsets_of("G", "T") == {0: recorded, 1: 6, 2: 3}
        assert offsets.everything() == {("G", "T"): {0: recorded, 1: 6, 2: 3}}
    # Away again, and committed here anew.
    offsets.commit("G", "T", 0, 21)
    assert offsets.committed("G", "T", 0) == 21


def test_made_up_names_take_so_many_bytes_and_known_groups_go_on(store, caplog) -> None:
    offsets = ConsumerOffsets(store)
    offsets.room = RegistryBudget(100_000).room("committed offsets", 1)
    assert offsets.commit("G", "T", 0, 2)
    taken = [offsets.commit(f"{number}" + "g" * 200, "T", 0, 1) for number in range(100)]
    assert 10 < sum(taken) < 40
    assert not offsets.commit("G" * 200, "T", 9, 1)
    assert offsets.room.used <= 100_000
    assert offsets.commit("G", "T", 0, 3), "an offset that is known is moved whatever room there is"
    assert offsets.committed("G", "T", 0) == 3
    assert caplog.text.count("offsets are not remembered") == 1
    assert "registry_bytes=100000" in caplog.text


# ---------------------------------------------------------------------- the journal of commits


def offsets_of(store, journal) -> ConsumerOffsets:
    offsets = ConsumerOffsets(store)
    offsets.take_up(journal)
    return offsets


def test_commits_of_a_process_that_died_are_taken_up_by_the_next_one(store) -> None:
    journal = OffsetJournal()
    child = os.fork()
    if not child:
        offsets = offsets_of(store, journal)
        for offset in range(5):
            offsets.commit("G", "T", 0, offset)
            offsets.commit("组", "%RETRY%组", 7, 10 - offset)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    offsets = offsets_of(store, journal)
    assert offsets.everything() == {("G", "T"): {0: 4, 1: 6}, ("H", "T"): {0: 1}, ("组", "%RETRY%组"): {7: 6}}
    assert offsets.changes, "they are still to be written down"


def test_what_was_written_down_is_forgotten_and_what_came_meanwhile_is_not(store, tmp_path) -> None:
    journal = OffsetJournal()
    offsets = ConsumerOffsets(store)
    keeper = OffsetKeeper(offsets, StateDirectory(tmp_path))
    offsets.take_up(journal)
    for number in range(3):  # the notes that stay are written to the other half each time
        offsets.commit("G", "T", 0, number)
        mark = journal.mark()
        offsets.commit("G", "T", 1, number)
        journal.forget(mark)
        assert list(journal.notes()) == [("G", "T", 1, number)]
    keeper.save()
    assert list(journal.notes()) == []
    keeper.stop()


def test_a_full_journal_keeps_the_last_note_of_each_queue() -> None:
    journal = OffsetJournal(200)
    mark = journal.mark()
    for offset in range(1000):
        journal.note("G", "T", offset % 3, offset)
    assert {note[2]: note[3] for note in journal.notes()} == {0: 999, 1: 997, 2: 998}
    before = list(journal.notes())
    journal.forget(mark)
    assert list(journal.notes()) == before, "a mark from before the journal was turned over says nothing"


# ---------------------------------------------------------------------- the file of offsets


def keep(store, path, **options) -> tuple[ConsumerOffsets, OffsetKeeper]:
    offsets = ConsumerOffsets(store)
    return offsets, OffsetKeeper(offsets, StateDirectory(path), **options)


def content(path):
    return parse_java_json((path / FILE).read_text())


def test_the_file_holds_all_groups_in_a_brokers_own_form(store, tmp_path) -> None:
    offsets, keeper = keep(store, tmp_path)
    odd = 'a"b\\c\n{1:2}组😀'
    offsets.commit("G", "T", 0, 9)
    keeper.save()
    text = (tmp_path / FILE).read_text()
    assert '"T@G":{0:9,1:6}' in text, "queue ids stand without quotes, as fastjson writes them"
    value = content(tmp_path)
    assert value["offsetTable"] == {"T@G": {"0": 9, "1": 6}, "T@H": {"0": 1}}
    assert value["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}
    assert value["committedHere"] == ["T@G"]
    offsets.commit(odd, "T", 0, 9)
    keeper.stop()
    offsets, keeper = keep(store, tmp_path)
    assert offsets.committed(odd, "T", 0) == 9
    keeper.stop()


DAMAGED = [b"", b"{", b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{"T@G":{"x":1}}}', b"\xff\x00"]


@pytest.mark.parametrize("damaged", DAMAGED)
def test_while_the_file_is_none_nobody_is_told_an_offset_that_was_not_committed_since(
    damaged, store, tmp_path, caplog
) -> None:
    (tmp_path / FILE).write_bytes(damaged)
    offsets, keeper = keep(store, tmp_path)
    assert f"{tmp_path / FILE}: is no consumerOffset.json" in caplog.text
    committed = (partial(offsets.committed, group, "T", 0) for group in ("G", "New group"))
    of_group = partial(offsets.offsets_of, "G", "T"), partial(offsets.topics_of, "G"), partial(offsets.groups_of, "T")
    for ask in (*committed, *of_group, offsets.pairs):
        with pytest.raises(StoreError, match="it is not known what groups committed here"):
            ask()
    offsets.commit("G", "T", 0, 9)
    assert offsets.committed("G", "T", 0) == 9
    keeper.save()
    assert (tmp_path / FILE).read_bytes() == damaged
    assert len(caplog.messages) == 1
    keeper.stop()
    assert (tmp_path / FILE).read_bytes() == damaged
    assert caplog.messages[-1].startswith("offsets that groups committed since the start are not kept")


@pytest.mark.parametrize("way", ["mended", "taken away"])
def test_when_the_file_can_be_read_again_groups_go_on_where_they_came(way, store, tmp_path) -> None:
    _, before = keep(store, tmp_path)
    before._offsets.commit("G", "T", 0, 7)
    before._offsets.commit("G", "T", 1, 8)
    before.stop()
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-20])
    offsets, keeper = keep(store, tmp_path)
    offsets.commit("G", "T", 0, 11)
    if way == "mended":
        (tmp_path / FILE).write_bytes(whole)
    else:
        (tmp_path / FILE).unlink()
    keeper.save()
    assert offsets.offsets_of("G", "T") == {0: 11, 1: 8 if way == "mended" else 6}
    keeper.stop()
    assert content(tmp_path)["offsetTable"]["T@G"]["0"] == 11


def test_a_full_disk_is_told_once_and_tried_again(store, tmp_path, caplog, monkeypatch) -> None:
    offsets, keeper = keep(store, tmp_path)
    offsets.commit("G", "T", 0, 9)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(StateDirectory, "write", full)
        keeper.save()
        keeper.save()
    assert caplog.text.count("No space left") == 1
    keeper.stop()
    assert content(tmp_path)["offsetTable"]["T@G"]["0"] == 9


@pytest.mark.parametrize(("group", "limit"), [("g" * 256, 1 << 20), ("N", 100)])
def test_offsets_that_no_client_could_commit_are_left_out_and_the_file_is_kept(
    group, limit, store, tmp_path, caplog
) -> None:
    written = f'{{"offsetTable":{{"T@{group}":{{0:77,1:8}}}}}}'
    (tmp_path / FILE).write_text(written)
    offsets = ConsumerOffsets(store)
    offsets.room = RegistryBudget(limit).room("committed offsets", 1)
    keeper = OffsetKeeper(offsets, StateDirectory(tmp_path))
    assert offsets.committed(group, "T", 0) is None
    assert (tmp_path / f"{FILE}.unreadable").read_text() == written
    assert "2 offsets were not taken over from it" in caplog.text
    keeper.stop()
    assert content(tmp_path)["offsetTable"] == {"T@G": {"0": 5, "1": 6}, "T@H": {"0": 1}}


# ---------------------------------------------------------------------- the state directory


def test_a_file_takes_the_place_of_its_old_version_and_leaves_nothing_beside(tmp_path) -> None:
    directory = StateDirectory(tmp_path)
    old = tmp_path / "x"
    directory.write("x", b"one")
    with old.open("rb") as reader:
        directory.write("x", b"another")
        assert reader.read() == b"one", "the old version is never written into"
    assert directory.read("x") == b"another"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["serving.lock", "x"]
    directory.close()


def test_a_directory_in_use_is_refused_naming_the_option_until_it_is_free(tmp_path) -> None:
    first = StateDirectory(tmp_path)
    with pytest.raises(ConfigError, match=r"another server .* --state-dir"):
        StateDirectory(tmp_path)
    first.close()
    StateDirectory(tmp_path).close()


def test_a_file_is_missing_only_where_the_system_says_so(tmp_path, monkeypatch) -> None:
    assert not may_hold(tmp_path, "x")
    assert not may_hold(tmp_path / "none", "x")
    (tmp_path / "x").write_bytes(b"")
    assert may_hold(tmp_path, "x")

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", refuse)
    assert may_hold(tmp_path, "none")


# ---------------------------------------------------------------------- whose offsets are taken over


class Noted:
    def __init__(self) -> None:
        self.table: dict[tuple[str, str, int], int] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        self.table[group, topic, queue_id] = offset
        return True


@dataclass
class Server:
    now: float = 1000.0
    clients: ClientRegistry = field(default_factory=ClientRegistry)
    offsets: Noted = field(default_factory=Noted)

    def __post_init__(self) -> None:
        self.commits = MemberCommits(self.clients, lambda: self.offsets, lambda: self.now)

    def join(self, connection: FakeConnection, *groups: str) -> None:
        data = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name=group) for group in groups])
        self.clients.heartbeat(connection, data, "JAVA", 0)
        self.commits.joined(connection, groups)


@pytest.fixture
def server() -> Server:
    return Server()


def test_the_last_offset_of_each_queue_is_held_until_the_client_joins(server: Server) -> None:
    client = FakeConnection()
    for group, queue_id, offset in (("G", 0, 5), ("G", 0, 4), ("G", 1, 7), ("Other", 0, 9), ("G", 2, -1)):
        server.commits.commit(client, group, "T", queue_id, offset)
    assert (server.offsets.table, server.commits.held) == ({}, 3)
    server.join(client, "G")
    assert (server.offsets.table, server.commits.held) == ({("G", "T", 0): 4, ("G", "T", 1): 7}, 1)


def test_what_was_held_leads_no_member_back_that_has_committed_since(server: Server) -> None:
    client = FakeConnection()
    server.commits.commit(client, "G", "T", 0, 5)
    server.commits.commit(client, "G", "T", 1, 6)
    data = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="G")])
    server.clients.heartbeat(client, data, "JAVA", 0)  # refused half-way: it joined without notice
    server.commits.commit(client, "G", "T", 0, 9)
    server.join(client, "G")
    assert (server.offsets.table, server.commits.held) == ({("G", "T", 0): 9, ("G", "T", 1): 6}, 0)


def at(host: str) -> FakeConnection:
    return FakeConnection(peer_address=Endpoint(host, 4711))


def test_what_comes_from_the_address_of_a_proxy_is_taken_over_while_the_proxy_is_there(server: Server) -> None:
    hearing, passing = at("192.0.2.8"), at("192.0.2.8")
    server.join(hearing, PROXY_GROUP)
    server.commits.commit(passing, "G", "T", 0, 5)
    server.commits.commit(at("192.0.2.9"), "G", "T", 0, 6)
    assert (server.offsets.table, server.commits.held) == ({("G", "T", 0): 5}, 1)
    server.clients.unregister(hearing, PROXY_GROUP, None)
    server.commits.commit(passing, "G", "T", 0, 7)
    assert server.offsets.table == {("G", "T", 0): 5}


def test_what_was_held_from_the_address_of_a_proxy_is_taken_over_in_order_when_the_proxy_joins(server: Server) -> None:
    first, second, other = at("192.0.2.8"), at("192.0.2.8"), at("192.0.2.9")
    for connection, offset in ((second, 7), (first, 5), (other, 9)):
        server.now += 1
        server.commits.commit(connection, "G", "T", 0, offset)
    server.join(at("192.0.2.8"), PROXY_GROUP)
    assert (server.offsets.table, server.commits.held) == ({("G", "T", 0): 5}, 1)


def test_no_more_than_so_many_are_held_and_old_ones_give_way(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.commits, "room", RegistryBudget(3 * (HELD_COST + size_of("G", "T"))).room("held", 1))
    first, second = FakeConnection(), FakeConnection()
    for queue_id in range(5):
        server.commits.commit(first, "G", "T", queue_id, 1)
    assert server.commits.held == 3
    server.commits.commit(first, "G", "T", 2, 9)
    server.commits.commit(second, "G", "T", 0, 1)
    assert server.commits.held == 3
    server.now += HOLD_SECONDS + 1
    server.commits.commit(second, "G", "T", 0, 6)
    assert server.commits.held == 1
    server.join(second, "G")
    server.join(first, "G")
    assert server.offsets.table == {("G", "T", 0): 6}
    server.commits.commit(second, "x" * (LONGEST_GROUP + 1), "T", 0, 6)
    assert server.commits.held == 0


# ---------------------------------------------------------------------- what is in flight


def test_the_last_pull_of_a_queue_counts_wherever_it_was_made() -> None:
    clock = [10.0]
    pulled = PulledOffsets(lambda: clock[0])
    pulled.note("G", "T", 0, 5)
    pulled.read_also(lambda second: [(("G", "T", 0), (9, 80)), (("G", "T", 1), (9, 7))] if second <= 9 else [])
    assert pulled.next_offsets("G", "T") == {0: 5, 1: 7}
    clock[0] = 12.0
    pulled.take([(("G", "T", 1), (11, 3))])
    assert pulled.next_offsets("G", "T") == {0: 5, 1: 3}
    assert pulled.next_offsets("G", "other") == {}


def test_names_are_counted_in_bytes_and_who_has_not_pulled_for_long_gives_way() -> None:
    clock = [10.0]
    pulled = PulledOffsets(lambda: clock[0])
    pulled.room = RegistryBudget(20_000).room("pulled queues", 1)
    for number in range(100):
        pulled.note(f"{number}" + "g" * 200, "T", 0, number + 1)
    assert pulled.room.used <= 20_000
    taken = len(pulled.settle())
    assert 10 < taken < 40
    pulled.note("new", "T", 0, 5)
    for number in range(100):
        pulled.take([((f"{number}" + "h" * 200, "T", 0), (10, 1))])
    assert pulled.room.used <= 20_000
    clock[0] += pulled_offsets.OLD_SECONDS + 1
    pulled.take([(("h", "T", 0), (int(clock[0]), 7))])
    assert pulled.next_offsets("h", "T") == {0: 7}
    assert pulled.room.used < 2000


# ---------------------------------------------------------------------- rates of consumption


def test_a_span_is_told_as_exactly_as_its_samples_are_close(clock) -> None:
    rates, chance, told = ConsumeRates(clock), random.Random(7), []
    for _ in range(300):
        clock.seconds += chance.choice((0.1, 3, 9, 40, 700))
        count = chance.randrange(1, 100)
        rates.add("G", "T", count)
        told.append((clock.seconds, count))
        for rate, (span, step) in zip(rates.rates("G", "T"), SPANS, strict=True):
            at_least = sum(count for when, count in told if when > clock.seconds - span)
            at_most = sum(count for when, count in told if when > clock.seconds - span - step)
            assert at_least <= rate.total <= at_most


def test_made_up_groups_take_no_memory(clock, monkeypatch) -> None:
    monkeypatch.setattr("broker.service.consumers.consume_rates.PAIRS_LIMIT", 10)
    rates = ConsumeRates(clock)
    for number in range(20):
        rates.add(f"G{number}", "T", 1)
    assert rates.rates("G11", "T")[2].total == 0
    assert rates.rates("G1", "T")[2].total == 1
