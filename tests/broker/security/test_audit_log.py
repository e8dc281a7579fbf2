"""Each look at messages leaves a line: who looked, at what, and from where. Without a line nothing is shown."""

import asyncio
import json
import logging
import os
import shutil

import pytest

from acl_file import READER, READER_SECRET, signed_fields, write_accounts
from broker.security.audit_log import AuditError, AuditLog, Look, now
from broker_harness import connected, service_of, serving
from draining import pull_of
from protocol.codes import RequestCode, ResponseCode
from storage.store.message_store import MessageStore
from web_questions import ApiOf, keys

QUERY = {"topic": "TopicTest", "key": "hotkey", "maxNum": "3", "beginTimestamp": "0", "endTimestamp": "9" * 18}
PULL = pull_of("TopicTest", 1, consumerGroup="CG_TAG", maxMsgNums=2)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def a_look(number: int = 0) -> Look:
    asked = {"offset": str(number)}
    return Look(now(), "broker-a", None, "127.0.0.1:1", "VIEW_MESSAGE_BY_ID", "SUCCESS", asked, 1, [7])


async def test_the_port_writes_who_looked_at_which_messages_from_where(g1_store, tmp_path) -> None:
    acl, path = write_accounts(tmp_path / "plain_acl.yml"), tmp_path / "audit.jsonl"
    store = await asyncio.to_thread(MessageStore.open, g1_store)
    view, query, good = RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_MESSAGE, (READER, READER_SECRET)
    looks: list[tuple[RequestCode, dict[str, str], tuple[str, str], ResponseCode, str | None, int]] = [
        (view, {"offset": "0"}, good, ResponseCode.SUCCESS, READER, 1),
        (query, QUERY, good, ResponseCode.SUCCESS, READER, 3),
        (RequestCode.PULL_MESSAGE, PULL | {"consumerGroup": "readers"}, good, ResponseCode.SUCCESS, READER, 2),
        (query, QUERY | {"key": "none"}, good, ResponseCode.QUERY_NOT_FOUND, READER, 0),
        (view, {"offset": "0"}, (READER, "a wrong secret"), ResponseCode.NO_PERMISSION, None, 0),
        (view, {"offset": "0"}, ("", ""), ResponseCode.NO_PERMISSION, None, 0),
    ]
    async with serving(service_of(store, acl=acl, audit_log=path)) as server, connected(server.addresses[0]) as client:
        assert server.lane is None
        answers = [await client.ask(code, signed_fields(fields, *who)) for code, fields, who, *_ in looks]
        silent = signed_fields({"topic": "TopicTest", "queueId": "0"}, *good)
        assert (await client.ask(RequestCode.GET_MAX_OFFSET, silent)).code == 0
        host = client.writer.get_extra_info("sockname")
    assert [answer.code for answer in answers] == [look[3] for look in looks]
    lines = lines_of(path)
    assert {line["client"] for line in lines} == {f"{host[0]}:{host[1]}"}
    told = [(line["request"], line["result"], line.get("account"), line["messages"]) for line in lines]
    assert told == [(code.name, result.name, account, count) for code, _, _, result, account, count in looks]
    for line, answer in zip(lines[:3], answers[:3], strict=True):
        assert len(line["offsets"]) == line["messages"]
        for offset in line["offsets"]:
            record = store.record_at(offset)
            assert record is not None
            assert bytes(record) in bytes(answer.body)
    assert lines[1]["asked"]["key"] == "hotkey"
    assert (lines[2]["asked"]["queueId"], lines[2]["asked"]["consumerGroup"]) == ("1", "readers")
    assert READER_SECRET not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_what_cannot_be_written_down_is_not_shown(g1_store, tmp_path, monkeypatch, caplog) -> None:
    path = tmp_path / "audit.jsonl"
    store = await asyncio.to_thread(MessageStore.open, g1_store)
    async with serving(service_of(store, audit_log=path)) as server, connected(server.addresses[0]) as client:
        full = os.open("/dev/full", os.O_WRONLY)
        (audit_log,) = server._watched
        with monkeypatch.context() as patch:
            patch.setattr(audit_log, "_descriptor", full)
            for _ in range(2):
                answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
                assert (answer.code, bytes(answer.body)) == (ResponseCode.SYSTEM_BUSY, b"")
                assert "No space left on device" in answer.remark
            assert (await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "TopicTest", "queueId": "0"})).code == 0
        assert (await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})).code == 0
        os.close(full)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert str(path) in errors[0].getMessage()
    assert len(lines_of(path)) == 1


def test_a_line_that_fits_only_in_part_leaves_no_half_of_one(tmp_path, monkeypatch) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr("os.write", lambda descriptor, data: write(descriptor, data[:20]))
        with pytest.raises(AuditError, match="No space left"):
            log.write(a_look())
    log.write(a_look())
    log.close()
    assert json.loads((tmp_path / "audit.jsonl").read_bytes().splitlines()[1])["offsets"] == [7]


def test_a_file_that_was_rotated_away_is_made_anew(tmp_path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.write(a_look(1))
    shutil.move(path, tmp_path / "audit.1")
    log.write(a_look(2))
    log.refresh()
    log.refresh()
    log.write(a_look(3))
    path.unlink()
    log.refresh()
    log.write(a_look(4))
    log.close()
    assert [line["asked"]["offset"] for line in lines_of(tmp_path / "audit.1")] == ["1", "2"]
    assert [line["asked"]["offset"] for line in lines_of(path)] == ["4"]


def test_the_page_writes_who_looked_at_which_messages_from_where(g1_store, tmp_path) -> None:
    path = tmp_path / "audit.jsonl"
    audit_log = AuditLog(path)
    api = ApiOf(g1_store, write_accounts(tmp_path / "plain_acl.yml"), audit_log)
    reader = keys(READER, READER_SECRET)
    browsed = api.get("/messages", topic="TopicTest", limit=3, headers=reader, peer="198.51.100.7")
    api.get("/message", offset=0, headers=reader)
    assert api.ask("/message/body", offset=0, headers=reader).status == 200
    assert api.ask("/messages", topic="TopicBatch", headers=reader).status == 403
    for keys_of_nobody in ({}, keys(READER, "a wrong secret")):
        assert api.ask("/message", offset=0, headers=keys_of_nobody).status == 401
    assert api.ask("/topics").status == 401
    api.get("/topics", headers=reader)
    lines = lines_of(path)
    assert [(line["request"], line["result"], line["messages"]) for line in lines] == [
        ("GET /api/v1/messages", "SUCCESS", 3),
        ("GET /api/v1/message", "SUCCESS", 1),
        ("GET /api/v1/message/body", "SUCCESS", 1),
        ("GET /api/v1/messages", "FORBIDDEN", 0),
        ("GET /api/v1/message", "UNAUTHORIZED", 0),
        ("GET /api/v1/message", "UNAUTHORIZED", 0),
    ]
    assert lines[-1]["account"] is None
    assert "a wrong secret" not in path.read_text()
    assert lines[0]["offsets"] == [line["physicalOffset"] for line in browsed["messages"]]
    assert (lines[0]["account"], lines[0]["client"]) == (READER, "198.51.100.7")
    assert lines[0]["asked"].items() >= {"topic": "TopicTest", "limit": 3}.items()
    audit_log._descriptor = os.open("/dev/full", os.O_WRONLY)
    refused = api.ask("/message", offset=0, headers=reader)
    assert refused.status == 503
    assert b"audit log" in refused.content


def test_every_path_that_shows_messages_is_written_down(g1_store) -> None:
    api = ApiOf(g1_store)
    silent = {endpoint.path for endpoint in api.api.endpoints if endpoint.shows is None}
    counted = {"/groups", "/dead-letters", "/light-topics"}  # how many, and how far groups are
    assert silent == {"/store", "/topics", "/topic", "/histogram", "/health"} | counted
