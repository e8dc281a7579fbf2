"""Several stores in one server: addresses, folders and names, settled before and after the stores are open."""

from pathlib import Path

import pytest

from asking import Asker, FakeConnection
from broker.cluster.several_stores import describe_names, folder_of, options_of_stores, settle_names
from broker.config import RegisterOptions, ServeOptions
from broker.endpoint import Endpoint
from broker.service.served_brokers import ServedBrokers
from protocol.codes import RequestCode
from protocol.errors import ConfigError
from storage.store.store_state import StoreIdentity
from store_writer import appended, closed_store

A, B, C = Path("/data/a/store"), Path("/data/b/store"), Path("/data/c/store")
NAME_SERVER = Endpoint("10.0.0.1", 9876)


def options_of(*stores, names=(), **options) -> tuple[ServeOptions, ...]:
    return options_of_stores(stores, names, ServeOptions(stores[0], **options))


def named(*brokers, **options) -> list[tuple[str | None, str | None]]:
    identities = [StoreIdentity(cluster, name) for name, cluster in brokers]
    settled = settle_names(options_of(*(A, B, C)[: len(brokers)], **options), identities)
    return [(each.broker_name, each.cluster) for each in settled]


def test_a_stores_folder_depends_neither_on_the_stores_beside_it_nor_on_their_order() -> None:
    first, second = options_of(A, B, state_directory=Path("/state"))
    assert first.state_directory == Path("/state") / folder_of(A)
    assert folder_of(A).startswith("a-store-")
    turned = options_of(C, B, A, state_directory=Path("/state"))[1:]
    assert [each.state_directory for each in turned] == [second.state_directory, first.state_directory]


@pytest.mark.parametrize(
    ("stores", "options", "problem"),
    [
        ((A, A), {}, "/data/a/store and /data/a/store are one store: give it once"),
        ((A, A / ".." / "store"), {}, "are one store"),
        ((A, B), {"names": ("one", "one")}, "--broker-name one is given twice"),
        ((A, B), {"names": ("only-one",)}, "1 name for 2 stores; give one each"),
        ((A,), {"names": ("one", "two")}, "2 names for 1 store;"),
        ((A, B), {"commit_log_directories": (Path("/log"),)}, "--commit-log is for one store"),
        ((A, B), {"state_directory": B / "state"}, "lies inside /data/b/store"),
        ((A, B), {"listen": (Endpoint("h", 65530),)}, "store 2 would need port 65540"),
        ((A, B), {"listen": (Endpoint("h", 100), Endpoint("h", 110))}, "would both be at h:110"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_sentence(stores, options, problem) -> None:
    with pytest.raises(ConfigError, match=problem):
        options_of(*stores, **options)


def test_of_two_brokers_with_one_name_the_later_gets_a_number_unless_names_are_told() -> None:
    found = named(("broker-a", "C"), ("broker-a", "C"), ("broker-a-2", "C"))
    assert [name for name, _ in found] == ["broker-a", "broker-a-3", "broker-a-2"]
    found = named(("broker-a", "C"), ("broker-a", "C"), names=("today", "yesterday"))
    assert [name for name, _ in found] == ["today", "yesterday"]


def test_a_line_says_what_each_store_is_called_and_what_its_own_names_are() -> None:
    identities = [StoreIdentity("East", "broker-a"), StoreIdentity("West", "broker-a")]
    described = list(describe_names(settle_names(options_of(A, B), identities), identities))
    its_own = "(its own name is broker-a, its own cluster is West)"
    assert described == [
        f"{A} is broker broker-a of cluster East",
        f"{B} is broker broker-a-2 of cluster East {its_own}",
    ]


def test_real_name_servers_are_told_no_name_that_was_made_up() -> None:
    register = RegisterOptions((NAME_SERVER,))
    with pytest.raises(ConfigError, match=r"/data/b/store is not the only store of broker broker-a; give each a"):
        named(("broker-a", "C"), ("broker-a", "C"), register=register)
    with pytest.raises(ConfigError, match=r"/data/b/store is of cluster West, not of East"):
        named(("broker-a", "East"), ("broker-b", "West"), register=register)
    assert len(named(("broker-a", "C"), ("broker-b", "C"), register=register)) == 2


def test_another_store_is_where_its_port_is_as_the_client_reached_this_one(tmp_path: Path) -> None:
    roots = []
    for name in ("First", "Second"):
        writer = closed_store(tmp_path / name, appended(name), appended("Shared"))
        roots.append(writer.root)
    advertised, ports = {"advertise": Endpoint("broker.example", 40911)}, ((10911,), (10921,))
    cases = [
        ({}, ports, Endpoint("10.0.0.7", 10921), "10.0.0.7:10911"),
        ({}, ports, Endpoint("::1", 10921), "[::1]:10911"),
        ({}, ports, Endpoint("proxy", 30921), "proxy:30911"),  # one that keeps the distances
        (advertised, ports, Endpoint("10.0.0.7", 10921), "broker.example:40911"),
        ({}, ((40001, 40002), (50001, 50007)), Endpoint("127.0.0.1", 50007), "127.0.0.1:40002"),  # free ones
    ]
    for options, each, reached, told in cases:
        first, second = Asker(roots[0], broker_name="a", **options), Asker(roots[1], broker_name="b")
        second.serve_with(ServedBrokers([first.service, second.service], each))
        second.connection = FakeConnection(reached)
        for topic, brokers in (("First", {"a": told}), ("Shared", {"a": told, "b": str(reached)})):
            route = second.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            assert {one["brokerName"]: one["brokerAddrs"]["0"] for one in route["brokerDatas"]} == brokers
