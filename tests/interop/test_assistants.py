"""Assistants that are not ours: clients of Python and TypeScript do the on-call journey over every kind of source."""

import contextlib
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interop.jars import cached
from interop.official_broker import official_broker
from interop.other_clients import BUILD_SECONDS, run_tool
from interop.stages import official_stage
from interop.stored import stored
from interop.wire import ask
from needed_tools import tool
from object_store import object_store

pytestmark = [pytest.mark.interop, pytest.mark.soak]

HERE = Path(__file__).parent / "mcp"
COMMAND = [sys.executable, "-m", "rocketlens"]
OF_NODE = ("sdk", "client")
FILES = {False: ("requirements.txt",), True: ("package.json", "package-lock.json", "journey.mjs")}
"""What is installed of each language depends on these."""
CLIENTS = (("mcp", "auto"), ("mcp", "legacy"), ("fastmcp", ""), ("sdk", ""), ("client", ""))
ORDER = 4461
"""Where the message of the order lies in the log."""

ASKED = {"find": {"text": "batch-0"}, "message": {"id": str(ORDER)}, "story": {"id": "batch-0"}}
ASKED |= {"groups": {"contains": "CG_", "topic": "TopicBatch"}, "messages": {"topic": "%DLQ%CG_FAIL"}}
ASKED |= {"pending": {"topic": "%RETRY%CG_TAG"}}
JOURNEY = [(name, {**fields, "seconds": 10}) for name, fields in ASKED.items()]
"""From an order's number to the message, who consumed it, how far they are behind, its dead letter, and what waits."""

CONSUMER_SEND_MSG_BACK, LONGEST_LEVEL, AT_ONCE_DEAD = 36, 18, -1
STAGES = ["delivered", "scheduled", "retry", "dead letter", "scheduled"]
CONFORMANT = {
    "2026-07-28": ("tools-list", "resources-list", "prompts-list", "sep-2164-resource-not-found", "caching",
                   "dns-rebinding-protection", "server-sse-multiple-streams", "http-header-validation"),
    "2025-11-25": ("server-initialize", "ping", "tools-list", "resources-list", "prompts-list",
                   "dns-rebinding-protection"),
}  # fmt: skip
"""The scenarios of each revision that ask for nothing but what every server has; others call tools of their own."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The recorded store, in which the official broker has since given the order up for one group."""
    work = tmp_path_factory.mktemp("asked-g1")
    found = stored("g1", work)
    order = found.records[ORDER]
    with official_broker(found.root, work) as broker:
        for group, level in (("CG_FAIL", AT_ONCE_DEAD), ("CG_TAG", LONGEST_LEVEL)):
            fields = {
                "offset": str(ORDER), "group": group, "delayLevel": str(level),
                "originMsgId": order.properties["UNIQ_KEY"],
                "originTopic": order.topic, "unitMode": "false", "maxReconsumeTimes": "16",
            }  # fmt: skip
            answer = ask(broker.address, CONSUMER_SEND_MSG_BACK, fields)
            assert answer.code == 0, answer.header
        broker.stop()
    return found


@contextlib.contextmanager
def serving(store, work):
    """The address of a server, and the URL at which it answers assistants."""
    listen = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--mcp", "--state-dir", str(work / "state"))
    process = subprocess.Popen([*COMMAND, "serve", str(store), *listen], stdout=subprocess.PIPE, text=True)
    try:
        found = re.search(r" on (\S+); HTTP at (\S+)", process.stdout.readline())
        yield found[1], f"http://{found[2]}/mcp"
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="module", params=["store", "url", "live", "server", "http"])
def target(request, store, tmp_path_factory):
    """What an assistant starts or connects to, over each kind of source; the name of the kind before it."""
    work, kind = tmp_path_factory.mktemp("asked"), request.param
    start = [*COMMAND, "mcp"]
    if kind == "store":
        yield kind, [*start, str(store.root)]
    elif kind == "url":
        with object_store() as objects:
            yield kind, [*start, objects.put(store.root, "backup"), "--storage-options", objects.options]
    elif kind == "live":
        with official_stage(store.root, work):
            yield kind, [*start, str(work / "store")]
    else:
        with serving(store.root, work) as (address, url):
            yield kind, [*start, address] if kind == "server" else url


def program(client: str) -> list[str]:
    contents = b"".join((HERE / name).read_bytes() for name in FILES[client in OF_NODE])
    checksum = hashlib.sha256(contents).hexdigest()[:16]
    if client in OF_NODE:
        modules = cached(f"assistants-node-{checksum}", _install_node)
        return [str(modules / "node_modules" / ".bin" / "node"), str(modules / "journey.mjs")]
    return [str(cached(f"assistants-python-{checksum}", _install_python) / "bin" / "python"), str(HERE / "journey.py")]


def _install_python(folder: Path) -> None:
    run_tool([sys.executable, "-m", "venv", str(folder)], folder.parent)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "-r"]
    run_tool([*pip, str(HERE / "requirements.txt")], folder)


def _install_node(folder: Path) -> None:
    folder.mkdir()
    for name in FILES[True]:
        shutil.copy(HERE / name, folder / name)
    run_tool([tool("npm"), "ci", "--no-audit", "--no-fund"], folder)


@pytest.mark.parametrize(("client", "mode"), CLIENTS, ids=[f"{client}{mode}" for client, mode in CLIENTS])
def test_assistants_follow_an_order_from_its_number_to_its_retry(client, mode, target) -> None:
    _, place = target
    asked = {"client": client, "mode": mode, "target": place, "calls": JOURNEY}
    command = [*program(client), json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    tools, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert tools["tools"][:3] == ["find", "message", "story"]
    assert [each["isError"] for each in answers] == [False] * len(JOURNEY), answers
    assert all(json.loads(each["text"]) == each["content"] for each in answers)
    found = dict(zip((name for name, _ in JOURNEY), (each["content"] for each in answers), strict=True))
    (key,) = {each["uniqueKey"] for each in found["find"]["messages"]}
    assert found["message"]["message"]["body"] == "batch body 0"
    assert [each["stage"] for each in found["story"]["events"]] == STAGES
    assert {each["group"]: each["lag"] for each in found["groups"]["groups"]} == {"CG_FAIL": 0}
    dead = [(each["topic"], each["messages"]) for each in found["groups"]["deadLetters"]]
    assert dead == [("%DLQ%CG_FAIL", 1)]
    assert [each["uniqueKey"] for each in found["messages"]["messages"]] == [key]
    (waiting,) = found["pending"]["messages"]
    assert (waiting["topic"], waiting["delayLevel"]) == ("%RETRY%CG_TAG", LONGEST_LEVEL)
    assert waiting["message"]["uniqueKey"] == key
    endings = {each["group"]: each["ending"] for each in found["story"]["verdicts"]}
    assert endings == {"CG_FAIL": "gave up", "CG_TAG": "retrying"}


@pytest.mark.parametrize("revision", CONFORMANT)
def test_the_official_runner_finds_what_every_server_has_conformant(revision, store, tmp_path) -> None:
    node, script = program("sdk")
    runner = Path(script).parent / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with serving(store.root, tmp_path) as (_, url):
        done = subprocess.run(
            [node, str(runner), "server", "--url", url, "--requirements", revision],
            capture_output=True, text=True, timeout=BUILD_SECONDS, check=False, cwd=tmp_path,
        )  # fmt: skip
    outcomes = dict(re.findall(r"^[✓✗] ([\w-]+): (.*)$", done.stdout, re.M))
    assert {name: outcomes[name].rpartition(" passed, ")[2] for name in CONFORMANT[revision]} == dict.fromkeys(
        CONFORMANT[revision], "0 failed"
    )
    # Every scenario asks as well whether each message is as the schema has it: that never fails.
    assert len(outcomes) > 20
    assert [name for name, said in outcomes.items() if said.startswith("0 passed") and said[-8:] != "0 failed"] == []
