"""What a coverage-guided fuzzer feeds: every decoder of bytes that come from a peer or a file.

`make atheris` runs this as a program on the inputs in `tests/fuzz/corpus`; `test_fuzz_storage.py` runs each once.
"""

import importlib
import sys
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")


def import_decoders() -> None:
    """Import what is fuzzed; under the fuzzer, with instruments."""
    for name in ("protocol.frame", "protocol.command", "protocol.headers", "protocol.message", "protocol.bodies"):
        importlib.import_module(name)
    importlib.import_module("broker.net._proxy_protocol")
    importlib.import_module("broker.security.signature")


def feed_decoders(data: bytes) -> None:
    """Decode bytes in every way; anything but an error raised on purpose is a finding.

    The first byte says what they are: a stream of frames in two reads, a PROXY header, records, or a body of JSON.
    """
    from broker.net._proxy_protocol import parse_proxy_header
    from protocol.bodies import HeartbeatData, LockBatchRequestBody, TopicRouteData, decode_json
    from protocol.errors import RocketLensError
    from protocol.message import decode_messages

    kind, rest = data[:1], data[1:]
    try:
        if kind < b"\x80":
            _feed_stream(kind[0] if kind else 0, rest)
        elif kind < b"\xa0":
            header = parse_proxy_header(rest or b"P")
            assert header is None or header.length <= len(rest)
        elif kind < b"\xd0":
            for message in decode_messages(rest):
                assert message.total_size <= len(rest)
                message.inner_messages()
        else:
            decode_json(rest, (HeartbeatData, LockBatchRequestBody, TopicRouteData)[kind[0] % 3])
    except RocketLensError:
        pass


def _feed_stream(split: int, data: bytes) -> None:
    import msgspec

    from broker.security.signature import is_signed
    from protocol import headers
    from protocol.command import decode_command, decode_header, ext_fields_of
    from protocol.errors import ProtocolError
    from protocol.frame import FrameDecoder

    types = [each for each in vars(headers).values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    decoder = FrameDecoder(1 << 20, 1 << 16)
    for part in (data[:split], data[split:]):
        for frame in decoder.feed(part):
            try:
                command = decode_command(frame)
                is_signed(ext_fields_of(command), command.body, b"secret")
            except ProtocolError:
                continue
            for header_type in types:
                try:
                    decode_header(command, header_type)
                except ProtocolError:
                    continue


def main() -> None:
    """Fuzz until the arguments, which are libFuzzer's, say to stop."""
    import atheris

    with atheris.instrument_imports(include=["protocol", "broker.security"]):
        import_decoders()
    atheris.Setup([sys.argv[0], str(CORPUS), *sys.argv[1:]], feed_decoders)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
