"""What applications pack into bodies, and write in other charsets: unpacked within bounds, or left as it is."""

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol.body_content import DECODERS, MOST_INDENTED, charset_of, indented_json, text_in, unpack
from protocol.errors import ConfigError
from strategies import damaged

MEGABYTE = 1024 * 1024
PACKINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("zstd", zstandard.ZstdCompressor().compress),
]
each_packing = pytest.mark.parametrize(("name", "pack"), PACKINGS)


def test_every_decoder_is_tried_here() -> None:
    assert [decoder.name for decoder in DECODERS] == [name for name, _ in PACKINGS]


@each_packing
@pytest.mark.parametrize("size", [0, 1, 100, 5000, 3_000_000])
def test_what_was_packed_comes_back(name: str, pack: Callable[[bytes], bytes], size: int) -> None:
    body = b"0123456789 body " * (size // 16) + b"x" * (size % 16)
    for data in (pack(body), memoryview(pack(body))):
        assert unpack(data, limit=max(size, 1)) == (body, (name,), None)


@each_packing
def test_members_one_behind_the_other_are_one_body(name: str, pack: Callable[[bytes], bytes]) -> None:
    assert unpack(pack(b"one, ") + pack(b"") + pack(b"two")) == (b"one, two", (name,), None)


def test_packings_in_packings_are_undone_three_times_at_most() -> None:
    inner = gzip.compress(b"text")
    assert unpack(zstandard.compress(inner)) == (b"text", ("zstd", "gzip"), None)
    assert unpack(gzip.compress(zstandard.compress(gzip.compress(inner)))) == (inner, ("gzip", "zstd", "gzip"), None)


@pytest.mark.parametrize("body", [b"", b"text", b"\x1f", b"\x1f\x8b", b"(\xb5/", b"\x1f\x8b\x07" + bytes(30)])
def test_other_bodies_stay_what_they_are(body: bytes) -> None:
    content = unpack(body)
    assert content.data is body
    assert (content.packings, content.error) == ((), None)


@each_packing
def test_a_cut_body_stays_as_it_is_and_the_reason_is_given(name: str, pack: Callable[[bytes], bytes]) -> None:
    data = pack(b"some body, some more body, and the end")
    for size in range(4, len(data)):
        content = unpack(data[:size])
        assert (content.data, content.packings) == (data[:size], ())
        assert "expected a complete stream" in (content.error or "")


def test_bytes_behind_a_gzip_stream_are_not_lost() -> None:
    data = gzip.compress(b"body") + b"more"
    content = unpack(data)
    assert (content.data, content.packings) == (data, ())
    assert content.error is not None


@each_packing
def test_a_bomb_fills_no_memory(name: str, pack: Callable[[bytes], bytes]) -> None:
    bomb = pack(bytes(200 * MEGABYTE))
    for data in (bomb, pack(bomb)):
        tracemalloc.start()
        content = unpack(data, limit=MEGABYTE)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert "expected at most" in (content.error or "")
        # zstd's decoder takes no limit: 512 bytes of it become 16 MiB at most.
        assert peak < (4 if name == "gzip" else 40) * MEGABYTE


def test_very_many_small_members_take_no_longer_than_their_bytes() -> None:
    """Were what follows copied at each member, this would move 40 GB."""
    member = gzip.compress(b"x")
    count = 2 * MEGABYTE // len(member)
    assert unpack(member * count).data == b"x" * count


@given(st.sampled_from([gzip.compress(b"body " * 9), zstandard.compress(b"body " * 9)]).flatmap(damaged))
def test_damaged_bytes_give_a_body_or_a_reason(data: bytes) -> None:
    content = unpack(data)
    assert content.packings or content.data == data


@pytest.mark.parametrize(
    ("name", "known"), [("GBK", "gbk"), ("utf8", "utf-8"), ("Latin-1", "iso8859-1"), ("Shift_JIS", "shift_jis")]
)
def test_a_charset_is_known_by_any_of_its_names(name: str, known: str) -> None:
    assert charset_of(name) == known


@pytest.mark.parametrize(
    "name", ["", "klingon", "zlib", "hex", "rot13", "idna", "punycode", "unicode_escape", "a\x00b"]
)
def test_what_is_no_charset_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no charset"):
        charset_of(name)


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        ("订单 4711".encode("gbk"), "gbk", "订单 4711"),
        ("订单 4711".encode("gbk"), None, None),
        ("订单 4711".encode(), None, "订单 4711"),
        ("注文".encode("shift_jis"), "shift_jis", "注文"),
        ("text".encode("utf-16-le"), "utf-16-le", "text"),
        (b"a\x00b", "gbk", "a\0b"),
        (b"order-1\x00\x00\x00\x00\x00\x00\x00\x00\x00", None, "order-1" + "\0" * 9),
        (b"name=Ada\x00city=Paris\x00", None, "name=Ada\0city=Paris\0"),
        (b"\x00\x00\x00*", None, None),
        (b"\x00", None, None),
        ("text".encode("utf-16-le"), None, None),
        (b"\x0a\x05hello", None, None),
        (b"\xff\xff", "gbk", None),
        (b"", None, ""),
    ],
)
def test_bytes_are_text_in_their_own_charset_alone(data: bytes, charset: str | None, text: str | None) -> None:
    assert text_in(data, charset) == text
    assert text_in(memoryview(data), charset) == text


@pytest.mark.parametrize("charset", ["utf-8", "gbk", "gb18030", "utf-16-le"])
def test_the_beginning_of_a_text_may_end_within_a_character(charset: str) -> None:
    data = "订单".encode(charset)
    assert [text_in(data[:size], charset, is_cut=True) for size in (len(data), len(data) - 1)] == ["订单", "订"]
    assert text_in(data[:-1], charset) is None


def test_json_is_indented_with_its_numbers_as_they_are() -> None:
    assert indented_json('{"a":[1.50,12345678901234567890]}') == (
        '{\n  "a": [\n    1.50,\n    12345678901234567890\n  ]\n}'
    )


@pytest.mark.parametrize(
    "text", ["", "5", '"text"', "{", '{"a": 1} b', "[" * 41 + "]" * 41, "[" * 100_000, f'["{"x" * MOST_INDENTED}"]']
)
def test_what_is_no_json_or_would_grow_too_much_is_not_indented(text: str) -> None:
    assert indented_json(text) is None


def test_zlib_alone_is_no_packing() -> None:
    """Its two first bytes begin too many other bodies."""
    data = zlib.compress(b"body")
    assert unpack(data).data == data
