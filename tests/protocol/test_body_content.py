"""What applications pack into bodies, and write in other charsets: unpacked within bounds, or left as it is."""

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bombs import bombs
from protocol.body_content import (
    DECODERS,
    MOST_INDENTED,
    TEXT_PIECE,
    characters_in,
    charset_of,
    indented_json,
    text_in,
    text_with_replacements,
    unpack,
)
from protocol.compression import MOST_FRAMES, Budget, Codec
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
        assert peak < 6 * MEGABYTE


@each_packing
def test_very_many_small_frames_are_refused_by_their_number(name: str, pack: Callable[[bytes], bytes]) -> None:
    frame = pack(b"x")
    assert unpack(frame * MOST_FRAMES).data == b"x" * MOST_FRAMES
    content = unpack(frame * (2 * MEGABYTE // len(frame)))
    assert content.packings == ()
    assert f"at most {MOST_FRAMES} frames" in (content.error or "")


@settings(max_examples=20, deadline=None)
@given(bombs(most_units=60_000))
def test_whatever_is_packed_in_what_the_answer_is_within_one_budget(bomb: tuple[Codec, bytes]) -> None:
    budget = Budget(4 * MEGABYTE)
    content = unpack(bomb[1], budget=budget)
    assert content == unpack(bomb[1], limit=4 * MEGABYTE)
    assert len(content.data) <= max(4 * MEGABYTE, len(bomb[1]))


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
    "name", ["", "klingon", "zlib", "hex", "rot13", "idna", "punycode", "unicode_escape", "utf-7", "a\x00b"]
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


CHARSETS = ["utf-8", "gbk", "gb18030", "big5", "shift_jis", "euc_kr", "latin-1", "utf-16", "utf-16-le", "utf-32"]


@pytest.mark.parametrize("charset", CHARSETS)
@given(data=st.data())
def test_a_long_text_is_decoded_in_pieces_as_it_would_be_at_once(charset: str, data: st.DataObject) -> None:
    """The pieces end anywhere in its characters."""
    unit = data.draw(st.text("aé订文🙂\0\t", min_size=1, max_size=5)).encode(charset, "ignore") or b"\x80a"
    long = (data.draw(st.binary(max_size=3)) + unit * (TEXT_PIECE // len(unit) + 2))[: TEXT_PIECE + 5]
    whole = str(long, charset, "replace") if charset != "utf-16" or long[:2] in (b"\xff\xfe", b"\xfe\xff") else None
    if whole is not None:
        assert text_with_replacements(long, charset) == whole
    try:
        expected = long.decode(charset)
    except UnicodeError:
        expected = None
    if charset not in ("utf-16", "utf-32"):  # which have a mark of their order, or are none
        assert characters_in(long, charset) == expected
