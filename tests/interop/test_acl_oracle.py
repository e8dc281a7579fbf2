"""Who is admitted and which address a pattern means, beside the access validator of RocketMQ 4.9.8 itself."""

import base64
import itertools
import json
import os
import subprocess
from pathlib import Path

import pytest

from acl_file import (
    ADMIN,
    ADMIN_SECRET,
    BOUNDED,
    BOUNDED_SECRET,
    DEFAULTS,
    PLAIN_ACL,
    READER,
    READER_SECRET,
    SECRETS,
    WHITE,
    signed_request,
    write_accounts,
)
from asking import FakeConnection
from broker.endpoint import Endpoint
from broker.security._address_patterns import parse_address_pattern
from broker.security.accounts import load_accounts
from broker.security.guard import Guard
from broker.security.watched_files import Watched
from heartbeats import consumer, heartbeat, subscription
from interop.jars import OLD_CLIENT_VERSION, compiled, jars
from interop.java_client import SMALL_JVM
from needed_tools import tool
from protocol.codes import RequestCode
from protocol.command import Response, decode_command, encode_request
from protocol.frame import FrameDecoder
from storage.files.waiting import finish

pytestmark = pytest.mark.interop

SAMPLE, SAMPLE_SECRET = "sample-key", "sample-secret"
SAMPLE_ACCOUNT = f"""
  - accessKey: {SAMPLE}
    secretKey: {SAMPLE_SECRET}
    # if it is admin, it could access all resources
    admin: true
"""
"""As the file says it that comes with a broker 4.9."""

SOURCE = Path(__file__).with_name("AclOracle.java")


@pytest.fixture(scope="module")
def acl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home") / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    write_accounts(path, PLAIN_ACL + SAMPLE_ACCOUNT)
    return path


@pytest.fixture(scope="module")
def ask(acl):
    home = acl.parent.parent
    folder = jars(OLD_CLIENT_VERSION)
    class_path = f"{folder}/*{os.pathsep}{compiled(folder, SOURCE)}"
    command = [tool("java"), *SMALL_JVM, f"-Drocketmq.home.dir={home}", f"-Duser.home={home}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "-cp", class_path, "AclOracle"], **pipes, text=True) as process:

        def question(value) -> str:
            process.stdin.write(json.dumps(value) + "\n")
            process.stdin.flush()
            return str(process.stdout.readline().strip())

        yield question
        process.kill()


HEARTBEAT = heartbeat("c", consumer("readers", subscription("TopicTest"), subscription("%RETRY%readers")))
QUERY = {"key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
PULL = {"queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0", "commitOffset": "0"}
PULL |= {"suspendTimeoutMillis": "0", "subVersion": "0"}
COMMIT = {"queueId": "0", "commitOffset": "5"}
TOPICS = ("TopicTest", "both", "mine", "denied", "unheard", "%RETRY%readers", "%RETRY%others")
GROUPS = ("readers", "deniedGroup", "others")


def requests():
    for topic in TOPICS:
        yield RequestCode.QUERY_MESSAGE, {"topic": topic, **QUERY}, b""
    for topic, group in itertools.product(TOPICS, GROUPS):
        yield RequestCode.PULL_MESSAGE, {"topic": topic, "consumerGroup": group, **PULL}, b""
        yield RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": topic, "consumerGroup": group, **COMMIT}, b""
    for group in GROUPS:
        yield RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}, b""
        yield RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": group}, b""
        yield RequestCode.HEART_BEAT, {}, HEARTBEAT.replace(b"readers", group.encode())
    yield RequestCode.HEART_BEAT, {}, HEARTBEAT.replace(b"TopicTest", b"denied")
    yield RequestCode.HEART_BEAT, {}, HEARTBEAT.replace(b"TopicTest", b"unheard")


NAMES = (READER, ADMIN, DEFAULTS, BOUNDED, WHITE)
KEYS = [*zip(NAMES, SECRETS, strict=True), (READER, ADMIN_SECRET), ("nobody-key", READER_SECRET)]
HOSTS = ("127.0.0.1", "10.10.103.77", "192.168.0.7", "192.168.0.9", "172.16.3.4")


def test_the_same_requests_are_admitted(acl, ask) -> None:
    guard = Guard(Watched("accounts", [acl], lambda: load_accounts(acl)))
    admitted = 0
    for (code, fields, body), (access_key, secret) in itertools.product(requests(), KEYS):
        frame = signed_request(code, fields, access_key, secret, body)
        for host in HOSTS if code == RequestCode.QUERY_MESSAGE else HOSTS[:1]:
            admitted += _compare(guard, ask, frame, host)
    assert admitted > 100
    # Unsigned, or changed on the way.
    asked, code = {"topic": "TopicTest", **QUERY}, RequestCode.QUERY_MESSAGE
    forged = [
        *(encode_request(code, asked | more, opaque=1) for more in ({}, {"AccessKey": READER})),
        encode_request(code, asked | {"AccessKey": READER, "Signature": ""}, opaque=1),
        signed_request(code, asked, READER, READER_SECRET).replace(b'"maxNum":"1"', b'"maxNum":"2"'),
    ]
    for frame, host in itertools.product(forged, HOSTS):
        _compare(guard, ask, frame, host)


def test_the_same_requests_of_administrators_without_lists_are_admitted_if_that_is_asked_for(acl, ask) -> None:
    guard = Guard(Watched("accounts", [acl], lambda: load_accounts(acl, admin_has_all=True)))
    keys = ((SAMPLE, SAMPLE_SECRET), (BOUNDED, BOUNDED_SECRET))
    asked = itertools.product(requests(), keys)
    frames = (signed_request(code, fields, *each, body) for (code, fields, body), each in asked)
    admitted = [_compare(guard, ask, frame, HOSTS[0]) for frame in frames]
    assert (all(admitted[::2]), all(admitted[1::2])) == (True, False)


def _compare(guard, ask, frame, host) -> bool:
    expected = ask({"frame": base64.b64encode(frame).decode(), "host": host})
    (whole,) = FrameDecoder().feed(frame)
    answer = finish(guard.admit(decode_command(whole), FakeConnection(peer_address=Endpoint(host, 4711))))
    is_admitted = not isinstance(answer, Response)
    assert is_admitted == (expected == "admitted"), (frame, host, expected, answer)
    return is_admitted


LONG = "1050:0000:0000:0000:0005:0600:300c"
PATTERNS = [
    *("*", "*.*.*.*", "", "127.0.0.1", "127.0.0.1,127.0.0.2", "127.0.0.{1,2}", "127.0.0.*", "127.0.*.*"),
    *("127.0.1-9.*", "127.0.0.1-3", "10.0.0.1"),
    *(f"{LONG}:{end}" for end in ("326b", "1-200", "*", "{1,2,326b}")),
]
ADDRESSES = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.5.1", "127.1.0.1", "10.0.0.1"]
ADDRESSES += [f"{LONG}:326b", f"{LONG}:0001"]


def test_patterns_mean_the_same_addresses(ask) -> None:
    yes = 0
    for pattern, host in itertools.product(PATTERNS, ADDRESSES):
        expected = ask({"pattern": pattern, "host": host})
        assert expected in ("yes", "no"), (pattern, host, expected)
        assert parse_address_pattern(pattern)(host) == (expected == "yes"), (pattern, host)
        yes += expected == "yes"
    assert yes > 30
