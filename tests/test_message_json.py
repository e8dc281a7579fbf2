"""Messages in JSON: what every command and every endpoint writes is as docs/message.schema.json describes it."""

import gzip
import json
import time
from functools import cache
from pathlib import Path

import msgpack
import pytest
from jsonschema import Draft202012Validator

from assistant import answers as asked_in_words
from assistant import call
from command_line import rocketlens
from made_parts import made
from storage.columns.names import JSON_NAMES, KINDS
from store_writer import StoreWriter
from web_questions import ApiOf

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / "docs" / "message.schema.json").read_text())
FIELDS = SCHEMA["$defs"]["fields"]["properties"]
DUE = 4_102_444_800_000

MORE_COLUMNS = ("found_by", "message_id", "offset_message_id", "body_packings")
"""What a lookup's Parquet file has beside an export's columns and the question."""


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(SCHEMA | {"$ref": f"#/$defs/{name}"})


def check(name: str, value: object) -> None:
    validator(name).validate(value)


class OrderStore:
    """A store with a message of each kind, those that look odd in JSON above all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.writer = StoreWriter(root, segment_size=1 << 20)
        append = self.writer.append
        self.plain = append("orders", b'{"id": 1}', keys="A-1 A-2", unique_key="U1", tags="paid", properties={"n": "1"})
        append("orders", "订单".encode("gbk"), keys="A-1", born_timestamp=2**63 - 1, flag=-1, reconsume_times=3)
        append("orders", gzip.compress(b"packed"), keys="A-1", store_host=("2001:db8::1", 10911), sys_flag=0x20)
        append("orders", b"no zl\xff\x01", keys="A-1", sys_flag=0x301, properties={"名": "\u2028"})
        append("orders", b"", keys="A-1", queue_id=1, prepared_transaction_offset=-1)
        self.damaged = append("orders", b"sound", keys="A-1", body_crc=1)
        append("%RETRY%shop", b"again", unique_key="U1", properties={"RETRY_TOPIC": "orders"}, reconsume_times=1)
        append("%DLQ%shop", b"given up", unique_key="U1", properties={"RETRY_TOPIC": "orders"}, reconsume_times=2)
        timer = {"TIMER_OUT_MS": str(DUE), "REAL_TOPIC": "orders"}
        append("rmq_sys_wheel_timer", b"later", properties=timer, unique_key="U2")
        self.batch = self.writer.append_inner_batch("batches", [(b"one", {"KEYS": "k1"}), (b"\xff", {"TAGS": "A"})])
        self.writer.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> OrderStore:
    return OrderStore(tmp_path_factory.mktemp("shop") / "store")


@pytest.fixture(scope="module")
def api(shop: OrderStore) -> ApiOf:
    return ApiOf(shop.root)


COMMANDS = {
    "find --as": ("message", ("STORE", "A-1", "--topic", "orders", "--as", "key")),
    "find --copies": ("message", ("STORE", "U1", "--topic", "orders", "--as", "unique-key", "--copies")),
    "find of ids": ("message", ("STORE", "0", "U1")),
    "find of what is damaged": ("message", ("STORE", "DAMAGED")),
    "find --charset": ("message", ("STORE", "0", "--charset", "gbk")),
    "search": ("message", ("STORE", "--topic", "orders")),
    "search --explain": ("message", ("STORE", "--topic", "orders", "--tag", "paid", "--explain")),
    "tail": ("message", ("STORE", "--topic", "orders")),
    "find": ("message", ("STORE", "A-1")),
    "life": ("event", ("STORE", "--unique-key", "U1")),
}
"""What each of them writes, and its arguments."""


def written(shop, name):
    places = {"STORE": str(shop.root), "DAMAGED": str(shop.damaged.physical_offset)}
    arguments = [places.get(each, each) for each in COMMANDS[name][1]]
    return rocketlens(name.split()[0], *arguments, "--json").messages


def test_every_line_of_a_command_is_as_described(shop: OrderStore) -> None:
    for name, (kind, _) in COMMANDS.items():
        lines = written(shop, name)
        assert lines, name
        for line in lines:
            check(kind, line)


@pytest.mark.parametrize("format_", ["jsonl"])
def test_every_line_of_a_table_is_as_described(shop: OrderStore, tmp_path: Path, format_: str) -> None:
    arguments = ("--format", format_, "--to", tmp_path / "table", "--engine", "local")
    assert rocketlens("export", shop.root, *arguments).code == 4  # one of the messages is damaged
    files = (tmp_path / "table" / "data").rglob(f"*.{format_}")
    lines = [json.loads(line) for path in files for line in path.read_bytes().splitlines()]
    assert len(lines) == len(shop.writer.written)  # without the damaged one, and with two of the batch
    for line in lines:
        check("selected", line)
        assert line.keys() == {*JSON_NAMES.values(), "bodyEncoding"}
    found = {line["physicalOffset"]: line for line in lines}
    (viewed,) = rocketlens("find", shop.root, str(shop.plain.physical_offset), "--json").messages
    exported = found[shop.plain.physical_offset]
    assert {name: viewed.get(name) for name in exported} == exported


@pytest.mark.parametrize("name", ["find --charset", "search --explain", "tail"])
def test_msgpack_has_the_same_fields_with_bodies_as_bytes(shop: OrderStore, name: str) -> None:
    places = {"STORE": str(shop.root), "DAMAGED": str(shop.damaged.physical_offset)}
    arguments = [places.get(each, each) for each in COMMANDS[name][1]]
    unpacker = msgpack.Unpacker()
    unpacker.feed(rocketlens(name.split()[0], *arguments, "--format", "msgpack").output)
    packed, lines = list(unpacker), written(shop, name)
    assert len(packed) == len(lines) > 0
    for row, line in zip(packed, lines, strict=True):
        assert isinstance(row["body"], bytes)
        assert {"body", "bodyEncoding"} <= line.keys()
        rest = {name: value for name, value in line.items() if name not in ("body", "bodyEncoding")}
        assert {name: value for name, value in row.items() if name != "body"} == rest


def answers(shop, api):
    """The messages in the answers of all endpoints that show some, each with the name of its description."""
    for offset in (0, shop.damaged.physical_offset, shop.batch.physical_offset):
        yield "message", api.get("/message", offset=offset)
    for written in shop.writer.written:
        yield "message", api.get("/message", offset=written.physical_offset, charset="gbk", bodyLimit=3)
    yield "message", api.get("/queue/message", topic="orders", queueId=0, queueOffset=0)
    for path, asked in (
        ("/find", {"text": "A-1"}),
        ("/messages", {"topic": "orders"}),
        ("/messages", {"topic": "batches"}),
        ("/search", {"contains": "o"}),
    ):
        for line in api.get(path, **asked)["messages"]:
            yield "line", line
    for event in api.get("/message/life", uniqueKey="U1")["events"]:
        yield "event", event
    deadline = time.monotonic() + 60
    while (answer := api.get("/pending"))["state"] == "running":
        assert time.monotonic() < deadline
    for line in answer["messages"]:
        yield "waiting", line


def test_every_message_in_an_answer_of_the_api_is_as_described(shop: OrderStore, api: ApiOf) -> None:
    found = list(answers(shop, api))
    assert {name for name, _ in found} == {"message", "line", "event", "waiting"}
    for name, message in found:
        check(name, message)


def test_the_description_of_the_api_has_the_same_fields_of_the_same_types(api: ApiOf) -> None:
    components = api.get("/openapi.json")["components"]["schemas"]
    for name, description in (("MessageAnswer", "message"), ("MessageLine", "line"), ("InnerMessage", "inner")):
        properties = components[name]["properties"]
        assert set(SCHEMA["$defs"][description]["required"]) <= properties.keys() <= FIELDS.keys(), name
        for field, schema in properties.items():
            assert types_of(schema) <= types_of(FIELDS[field]), (name, field)


def types_of(schema):
    if "anyOf" in schema:
        return set().union(*map(types_of, schema["anyOf"]))
    if "enum" in schema:
        return {"null" if value is None else "string" for value in schema["enum"]}
    if "type" not in schema:
        return {"integer"} if "/int" in schema["$ref"] else {"object"}
    return {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])


def test_no_field_is_described_that_nothing_writes(shop: OrderStore, api: ApiOf, tmp_path: Path) -> None:
    (tmp_path / "asked").write_text("A-1\n")
    rows = rocketlens("find", shop.root, "-f", tmp_path / "asked").messages
    rows += [line for name in COMMANDS if COMMANDS[name][0] == "message" for line in written(shop, name)]
    rows += [message for name, message in answers(shop, api) if name in ("message", "line")]
    rows += [answer["message"] for answer in asked_in_words(shop.root, says=[call(1, "message", id="0")])]
    assert FIELDS.keys() - {field for row in rows for field in row} == set()


def test_parquet_has_one_schema_and_each_of_its_columns_a_name_in_json(shop: OrderStore, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from spark_jobs.read.arrow_columns import arrow_schema  # as above: what serves needs no pyarrow

    (tmp_path / "asked").write_text("A-1\n")
    arguments = (shop.root, "-f", tmp_path / "asked", "--format", "parquet", "--out", tmp_path / "out")
    assert rocketlens("find", *arguments).code == 0
    found, exported = pq.read_schema(tmp_path / "out"), arrow_schema(tuple(JSON_NAMES))
    assert tuple(JSON_NAMES) == tuple(KINDS)
    assert [found.field(name).type for name in KINDS] == [exported.field(name).type for name in KINDS]
    assert set(found.names) - KINDS.keys() == {"query", "found", *MORE_COLUMNS}
    assert set(JSON_NAMES.values()) <= FIELDS.keys()
    page = made((ROOT / "docs" / "message-json.md").read_text())
    assert [name for name in found.names if f"`{name}`" not in page] == []
