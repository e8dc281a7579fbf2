"""`rocketlens find` of ids as a client of our own server; test_official_broker.py has it ask the official one."""

import pytest

from interop.our_client import CANNOT_ASK, FOUND, as_shown, shown
from interop.rocketlens_process import run_rocketlens
from interop.sites import site
from interop.stored import stored


@pytest.mark.parametrize("way", ["SOURCE", "--from-id"])
def test_our_client_views_ids_of_both_families_on_our_server(
    tmp_path_factory: pytest.TempPathFactory, way: str
) -> None:
    store = stored("g2-hosts", tmp_path_factory.mktemp("g2-hosts"))
    ids = [offset_id for offset_id, _ in store.with_offset_ids]
    with site(store.root, tmp_path_factory.mktemp("site"), in_ids=True, hosts=store.hosts) as server:
        where = [server.name_server] if way == "SOURCE" else [way]
        outcome = run_rocketlens("find", *where, *ids, "--as", "offset-id", "--json")
    assert outcome.returncode == FOUND, outcome.stderr
    assert shown(outcome.stdout) == as_shown(store, ids)


def test_our_client_says_when_nobody_answers_at_the_address_in_an_id() -> None:
    outcome = run_rocketlens("find", "7F0000010000000100000000000019B5", "--from-id", "--json")
    assert (outcome.returncode, outcome.stdout) == (CANNOT_ASK, b"")
    assert b"127.0.0.1:1" in outcome.stderr
