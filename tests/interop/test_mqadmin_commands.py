"""All commands of mqadmin 5.5.0, typed at a server of ours in one JVM: each works, or is refused with a word."""

import json
import re
import time
from pathlib import Path

import pytest

from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.java_client import JavaClient, Subscription
from interop.mqadmin_commands import NOTES, OFFSET_ID, OLD_RUNS, RUNS, Outcome
from interop.sites import site

pytestmark = pytest.mark.interop

DOCUMENT = Path(__file__).parents[2] / "docs" / "mqadmin.md"
LONGEST_SECONDS = 60
"""A command that takes longer waits for something that does not come; the client's own timeouts are below."""

ONLY_NEW = {"queryMsgById", "startMonitoring"}
"""Not typed at 4.9: it dials the address in the id (test_mqadmin), and what it starts stays for other tests."""

GROUP = "CG_LIVE"
PRODUCERS = "CLIENT_INNER_PRODUCER"
"""Every Java client is in this group of producers."""


@pytest.fixture(scope="module")
def mqadmin(tmp_path_factory):
    """A JVM of its own: some commands leave threads behind."""
    work = tmp_path_factory.mktemp("all-commands")
    client = JavaClient(SERVER_VERSION, "JSON", work, f"-Djava.io.tmpdir={work}")
    yield client
    client.close()


@pytest.fixture(scope="module")
def where(g1_store, mqadmin, tmp_path_factory):
    """A server with a consumer, which has come to the end of its topic."""
    with site(g1_store, tmp_path_factory.mktemp("commands"), in_ids=False) as running:
        mqadmin.consume(running.name_server, {"live": Subscription("push", GROUP, "TopicTest")})
        deadline = time.monotonic() + 60
        while len(mqadmin.look("live").messages) < 52:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    topic = {"topicName": "New", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    (folder / "topics.json").write_text(json.dumps([topic]))
    (folder / "groups.json").write_text(json.dumps([{"groupName": "New"}]))
    (folder / "broker.conf").write_text("")
    return folder


def test_the_table_has_every_command_that_mqadmin_knows(mqadmin: JavaClient) -> None:
    assert sorted(RUNS) == sorted(mqadmin.commands())
    rows = [names.split() for names in NOTES]
    assert sorted(name for names in rows for name in names) == sorted(RUNS)
    assert [names for names in rows if len({RUNS[name].outcome for name in names}) > 1] == []


# What it starts goes on to ask for ever.
@pytest.mark.parametrize("name", sorted(RUNS, key=lambda name: (name == "startMonitoring", name)))
def test_a_command_works_or_is_refused_with_a_word(name, mqadmin, where, folder) -> None:
    check(mqadmin, where, name, RUNS[name], folder)


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(OLD_RUNS.keys() - RUNS.keys()))
def test_a_command_that_only_old_releases_know_is_refused_with_a_word(name, java, where, folder) -> None:
    assert f"`{name}`" in DOCUMENT.read_text()
    check(java(OLD_CLIENT_VERSION, "JSON"), where, name, OLD_RUNS[name], folder)


@pytest.mark.soak
def test_commands_that_4_9_knows_work_or_are_refused_there_too(java, where, folder) -> None:
    client = java(OLD_CLIENT_VERSION, "JSON")
    known = set(client.commands()) - ONLY_NEW
    assert known - RUNS.keys() == {name for name in OLD_RUNS if name not in RUNS}
    for name in sorted(known):
        check(client, where, name, OLD_RUNS.get(name) or RUNS[name], folder)


def check(mqadmin, where, name, run, folder) -> None:
    arguments = run.arguments.format(server=where.name_server, folder=folder, group=GROUP, producers=PRODUCERS)
    where.forget()
    started = time.monotonic()
    limit_millis = run.limit_millis or LONGEST_SECONDS * 1000
    printed = mqadmin.mqadmin(name, *arguments.split(), "-n", where.name_server, limit_millis=limit_millis)
    assert time.monotonic() - started < LONGEST_SECONDS
    assert re.search(run.printed, printed), printed
    if run.answered is not None:
        passed = [each for proxy in where.proxies for each in proxy.passed if not each.to_server]
        assert run.answered in {each.frame.code for each in passed if each.frame.is_response}
    if run.outcome is Outcome.WORKS and name != "queryMsgTraceById":
        assert "Exception" not in printed
    assert "internal error" not in printed
    assert "NullPointerException" not in printed


def test_a_consumer_is_given_one_message_where_its_id_leads_to_us(java, g1_store, tmp_path_factory) -> None:
    client = java(SERVER_VERSION, "JSON")
    with site(g1_store, tmp_path_factory.mktemp("directly"), in_ids=True) as where:
        client.consume(where.name_server, {"direct": Subscription("push", "CG_DIRECT", "TopicTest", "NoSuchTag")})
        shown = client.mqadmin("consumerConnection", "-g", "CG_DIRECT", "-n", where.name_server)
        (client_id,) = re.findall(r"^(\S+@\S+)", shown, re.M)
        arguments = ["-t", "TopicTest", "-i", OFFSET_ID, "-g", "CG_DIRECT", "-d", client_id]
        printed = client.mqadmin("queryMsgById", *arguments, "-n", where.name_server)
        assert "consumeResult=CR_SUCCESS" in printed, printed
        (message,) = client.end("direct")["direct"].messages
        assert message["keys"] == "hotkey"
