"""The tests' own decoder, proxy and finder of jars: what judges others is judged here, without Java."""

import json
import lzma
import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from golden_store import G1
from interop.jars import compiled, jars
from interop.proxy import recording_proxy
from interop.wire import BINARY_HEADER, Frame, FrameSplitter, ask, decode_frame, encode_request
from needed_tools import ToolMissing
from protocol.codes import RequestCode


def recorded_binary_headers() -> list[bytes]:
    lines = lzma.decompress((G1 / "client-flows.jsonl.xz").read_bytes()).splitlines()
    headers = (json.loads(line)["header"] for line in lines if b'"binary"' in line)
    found = [bytes.fromhex(header["binary"]) for header in headers]
    assert found
    return found


def test_a_recorded_binary_header_is_decoded_by_hand_and_by_the_decoder_alike() -> None:
    raw = recorded_binary_headers()[0]
    frame = decode_frame(struct.pack(">I", BINARY_HEADER << 24 | len(raw)) + raw + b"body")
    assert frame.body == b"body"
    assert {name: frame.header[name] for name in ("code", "language", "opaque", "flag")} == {
        "code": RequestCode.GET_ROUTEINFO_BY_TOPIC,
        "language": 0,
        "opaque": 0,
        "flag": 0,
    }
    assert frame.header["version"] == int.from_bytes(raw[3:5])
    assert frame.header["extFields"] == {"ReqT": "0", "topic": "BulkTopic"}


def test_every_recorded_binary_header_is_used_up_to_its_last_byte() -> None:
    for raw in recorded_binary_headers():
        frame = decode_frame(struct.pack(">I", BINARY_HEADER << 24 | len(raw)) + raw)
        texts = [text for pair in frame.header.get("extFields", {}).items() for text in pair]
        texts.append(frame.header.get("remark", ""))
        fixed = 21 + 6 * len(frame.header.get("extFields", {}))
        assert fixed + sum(len(text.encode()) for text in texts) == len(raw)


def test_frames_come_whole_from_any_split() -> None:
    stream = encode_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, {"topic": "TopicTest"}) + encode_request(
        RequestCode.VIEW_MESSAGE_BY_ID, 2, {"offset": "0"}, b"body"
    )
    splitter = FrameSplitter()
    frames = [frame for position in range(len(stream)) for frame in splitter.feed(stream[position : position + 1])]
    assert frames == FrameSplitter().feed(stream)
    assert [(frame.code, frame.body) for frame in frames] == [
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, b""),
        (RequestCode.VIEW_MESSAGE_BY_ID, b"body"),
    ]


def answer_once(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(answer)


def test_the_proxy_passes_frames_on_and_notes_both_directions() -> None:
    header = json.dumps({"code": 0, "flag": 1, "opaque": 1}).encode()
    answer = struct.pack(">II", 4 + len(header) + 3, len(header)) + header + b"yes"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer_once, args=(listener, answer))
        server.start()
        with recording_proxy(listener.getsockname()) as proxy:
            frame = ask(proxy.address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "7"})
            server.join()
            assert frame == Frame({"code": 0, "flag": 1, "opaque": 1}, b"yes")
            assert proxy.request_codes() == [RequestCode.VIEW_MESSAGE_BY_ID]
            assert [passed.to_server for passed in proxy.passed] == [True, False]
            proxy.forget()
            assert proxy.request_codes() == []


def test_a_proxy_without_a_server_behind_it_hangs_up() -> None:
    with recording_proxy(None) as proxy, pytest.raises(ConnectionError):
        ask(proxy.address, RequestCode.VIEW_MESSAGE_BY_ID)


def test_jars_without_maven_ask_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROCKETLENS_JARS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ToolMissing, match="mvn is not on the PATH: needs Maven"):
        jars("5.5.0")
    assert not (tmp_path / "5.5.0").exists()


def test_jars_that_are_there_are_not_fetched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROCKETLENS_JARS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "5.5.0").mkdir()
    assert jars("5.5.0") == tmp_path / "5.5.0"


def test_sources_are_compiled_once_by_each_java_until_one_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs, source = tmp_path / "bin", tmp_path / "A.java"
    programs.mkdir()
    for name, script in {"java": "exit 1", "javac": '/bin/mkdir "$8"; echo "$@" > "$8/said"'}.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("ROCKETLENS_JARS", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    source.write_text("class A {}")
    first = compiled(tmp_path / "5.5.0", source)
    assert f"-cp {tmp_path}/5.5.0/* {source} -d " in (first / "said").read_text()
    (first / "said").unlink()
    assert compiled(tmp_path / "5.5.0", source) == first
    assert list(first.iterdir()) == []
    source.write_text("class A { int b; }")
    second = compiled(tmp_path / "5.5.0", source)
    os.utime(programs / "java", (1, 1))
    assert len({first, second, compiled(tmp_path / "5.5.0", source)}) == 3
