"""A client of generated stubs, in Go, gets every message of a recorded store by gRPC exactly once."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from broker.endpoint import Endpoint
from golden.record.records import Record
from interop.jars import GO_ENVIRONMENT, GO_FLAGS, cached
from interop.other_clients import run_tool
from interop.stored import stored
from needed_tools import tool
from process import serving_process

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROTOS = sorted(path.relative_to(ROOT) for path in (ROOT / "broker" / "grpc" / "messages").glob("*.proto"))
GO_FILES = ("go.mod", "go.sum", "main.go", "tools.go")
GO_MODULE = "rocketlens/tests/interop/query"
GO_PLUGINS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")
ASKING_SECONDS = 300


def answers(client, host, port, questions):
    asked = "".join(f"{json.dumps(question)}\n" for question in questions)
    command = [*client, host, str(port)]
    outcome = subprocess.run(command, input=asked.encode(), capture_output=True, check=False, timeout=ASKING_SECONDS)
    assert outcome.returncode == 0, outcome.stderr.decode()[-4000:]
    return [json.loads(line) for line in outcome.stdout.decode().splitlines()]


def _build_go(folder: Path) -> None:
    go = tool("go")
    folder.mkdir()
    for name in GO_FILES:
        shutil.copy(HERE / "grpc-go" / name, folder / name)
    run_tool([go, "build", "-mod=readonly", *GO_FLAGS, "-o", f"{folder}/", *GO_PLUGINS], folder, GO_ENVIRONMENT)
    options = ",".join([f"module={GO_MODULE}", *(f"M{path.as_posix()}={GO_MODULE}/messages" for path in PROTOS)])
    outputs = []
    for name in ("go", "go-grpc"):
        plugin = folder / f"protoc-gen-{name}"
        outputs += [f"--plugin=protoc-gen-{name}={plugin}", f"--{name}_out={folder}", f"--{name}_opt={options}"]
    _protoc(*outputs)
    run_tool([go, "build", "-mod=readonly", *GO_FLAGS, "-o", f"{folder}/query", "."], folder, GO_ENVIRONMENT)


def _protoc(*options: str) -> None:
    run_tool([sys.executable, "-m", "grpc_tools.protoc", "-I.", *options, *map(str, PROTOS)], ROOT)


pytestmark = [pytest.mark.interop, pytest.mark.soak]

PREPARED, ROLLBACK = 0x4, 0xC
SYSTEM = ("RMQ_SYS_", "SCHEDULE_TOPIC_", "rmq_sys_", "%")
UNKNOWN = "NoSuchTopic"
PAGE = 3


def line_of(record):
    """What a client must print of a record."""
    return record.topic, record.queue_id, record.queue_offset, message_id(record)


def message_id(record: Record) -> str:
    return record.properties.get("UNIQ_KEY", record.offset_message_id)


def asked_of(store) -> list[tuple[dict[str, Any], list[Record]]]:
    """Questions in every form, each with the records that answer it."""
    records = [each for each in store.records.values() if each.sys_flag & ROLLBACK not in (PREPARED, ROLLBACK)]
    found = list[tuple[dict[str, Any], list[Record]]]()

    def ask(form, topic, passes, value="", **more) -> None:
        fields = {"question": len(found), "form": form, "topic": topic, "value": value, "size": PAGE, **more}
        named = [each for each in records if passes(each)]
        found.append((fields, [each for each in named if each.topic == topic or value == each.offset_message_id]))

    times = sorted(each.store_timestamp for each in records if each.topic == "TopicTest")
    begin, end = times[len(times) // 4], times[len(times) // 2]
    for topic in sorted({each.topic for each in records}):
        ask("times", topic, lambda _: True, begin=0, end=2**43)
    ask("times", "TopicTest", lambda each: begin <= each.store_timestamp <= end, begin=begin, end=end)
    for one in store.produced:
        if one.offset_message_id is not None:
            ask("id", one.topic, lambda each, key=one.unique_key: message_id(each) == key, one.unique_key)
            asked = one.offset_message_id
            ask("id", one.topic, lambda each, key=asked: each.offset_message_id == key, asked)
    for topic, key in sorted({(one.topic, key) for one in store.produced for key in one.keys if one.topic}):
        ask("key", topic, lambda each, key=key: key in each.properties.get("KEYS", "").split(" "), key)
    for tag in sorted({each.properties.get("TAGS", "") for each in records if each.topic == "TopicTest"} - {""}):
        ask("subscription", "TopicTest", lambda each, tag=tag: each.properties.get("TAGS") == tag, tag)
    for topic in sorted({UNKNOWN} | {each.topic for each in records if not each.topic.startswith(SYSTEM)}):
        ask("pull", topic, lambda _: True)
    return found


def test_a_client_of_generated_stubs_gets_every_message_exactly_once(tmp_path) -> None:
    store = stored("g1", tmp_path / "store")
    asked = asked_of(store)
    sources = (*(ROOT / path for path in PROTOS), *(HERE / "grpc-go" / name for name in GO_FILES))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    client = [str(cached(f"grpc-go-{digest.hexdigest()[:16]}", _build_go) / "query")]
    with serving_process(store.root, tmp_path, "--grpc", "0") as server:
        address = Endpoint.parse(server.line.rpartition("; gRPC at ")[2].strip())
        lines = answers(client, address.host, address.port, [question for question, _ in asked])
    told: list[list[dict[str, Any]]] = [[] for _ in asked]
    for line in lines:
        told[line["question"]].append(line)
    for (question, records), all_lines in zip(asked, told, strict=True):
        *several, last = all_lines
        found = [each for each in several if "id" in each]
        places = Counter((each["topic"], each["queue"], each["offset"], each["id"]) for each in found)
        assert places == Counter(map(line_of, records)), question
        assert last["status"] == ("TOPIC_NOT_FOUND" if question["topic"] == UNKNOWN else "OK"), question
        if question["form"] == "pull":
            check_queues(records, [each for each in several if "id" not in each])
        else:
            assert last["pages"] >= -(-len(records) // PAGE), question
    by_form = Counter(question["form"] for question, records in asked for _ in records)
    assert all(by_form[form] > PAGE for form in ("times", "id", "key", "subscription", "pull")), by_form


def check_queues(records: list[Record], queues: list[dict[str, Any]]) -> None:
    """Each queue was pulled to the end that its server named, and a group that committed nothing is told so."""
    assert {each["queue"] for each in queues} >= {each.queue_id for each in records}
    for each in queues:
        offsets = [record.queue_offset for record in records if record.queue_id == each["queue"]]
        assert each["status"] == "MESSAGE_NOT_FOUND"
        assert each["committed"] == "OFFSET_NOT_FOUND"
        assert each["reached"] == each["end"]
        if offsets:
            assert (each["begin"], each["end"]) == (min(offsets), max(offsets) + 1)
