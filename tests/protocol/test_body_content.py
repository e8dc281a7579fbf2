"""What applications pack into bodies, and write in other charsets: unpacked within bounds, or left as it is."""

import gzip
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bombs import bombs
from examples import examples
from protocol.body_content import (
    MOST_INDENTED,
    TEXT_PIECE,
    Content,
    characters_in,
    charset_of,
    consumed,
    indented_json,
    is_text,
    looks_like,
    text_in,
    text_with_replacements,
    unpack,
)
from protocol.compression import Budget, Codec
from protocol.errors import ConfigError, CorruptRecord

MEGABYTE = 1024 * 1024
PACKINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("zstd", zstandard.ZstdCompressor().compress),
    ("LZ4", lz4.frame.compress),
    ("zlib", zlib.compress),
]
each_packing = pytest.mark.parametrize(("name", "pack"), PACKINGS)


@each_packing
@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_what_was_packed_comes_back(name: str, pack: Callable[[bytes], bytes], size: int) -> None:
    body = b"0123456789 body " * (size // 16) + b"x" * (size % 16)
    for data in (pack(body), memoryview(pack(body))):
        assert unpack(data, limit=max(size, 1)) == Content(body, (name,), None)


def test_packings_in_packings_are_undone_three_times_at_most() -> None:
    inner = gzip.compress(b"text")
    assert unpack(zstandard.compress(inner)) == Content(b"text", ("zstd", "gzip"), None)
    assert unpack(gzip.compress(zstandard.compress(gzip.compress(inner)))) == Content(
        inner, ("gzip", "zstd", "gzip"), None
    )


@each_packing
def test_a_cut_body_stays_as_it_is_and_the_reason_is_given(name: str, pack: Callable[[bytes], bytes]) -> None:
    data = pack(b"some body, some more body, and the end")
    for size in range(4, len(data)):
        content = unpack(data[:size])
        assert (content.data, content.packings) == (data[:size], ())
        # What begins like zlib and is none may be a text.
        assert "expected a complete stream" in (content.error or "") or (name == "zlib" and content.error is None)


@settings(max_examples=examples(20), deadline=None)
@given(bombs(most_units=60_000))
def test_whatever_is_packed_in_what_the_answer_is_within_one_budget(bomb: tuple[Codec, bytes]) -> None:
    budget = Budget(4 * MEGABYTE)
    content = unpack(bomb[1], budget=budget)
    assert content == unpack(bomb[1], limit=4 * MEGABYTE)
    assert len(content.data) <= max(4 * MEGABYTE, len(bomb[1]))


@pytest.mark.parametrize(
    ("name", "known"), [("GBK", "gbk"), ("utf8", "utf-8"), ("Latin-1", "iso8859-1"), ("Shift_JIS", "shift_jis")]
)
def test_a_charset_is_known_by_any_of_its_names(name: str, known: str) -> None:
    assert charset_of(name) == known


def test_what_is_no_charset_is_refused() -> None:
    for name in ["", "klingon", "zlib", "hex", "rot13", "idna", "punycode", "unicode_escape", "utf-7", "a\x00b"]:
        with pytest.raises(ConfigError, match="is no charset"):
            charset_of(name)


def test_bytes_are_text_in_their_own_charset_alone() -> None:
    for data, charset, text in [
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
    ]:
        assert text_in(data, charset) == text
        assert text_in(memoryview(data), charset) == text


@pytest.mark.parametrize("charset", ["utf-8", "gbk"])
def test_the_beginning_of_a_text_may_end_within_a_character(charset: str) -> None:
    data = "订单".encode(charset)
    assert [text_in(data[:size], charset, is_cut=True) for size in (len(data), len(data) - 1)] == ["订单", "订"]
    assert text_in(data[:-1], charset) is None


def test_json_is_indented_with_its_numbers_as_they_are() -> None:
    assert indented_json('{"a":[1.50,12345678901234567890]}') == (
        '{\n  "a": [\n    1.50,\n    12345678901234567890\n  ]\n}'
    )


def test_what_is_no_json_or_would_grow_too_much_is_not_indented() -> None:
    for text in [
        "",
        "5",
        '"text"',
        "{",
        '{"a": 1} b',
        "[" * 41 + "]" * 41,
        "[" * 100_000,
        f'["{"x" * MOST_INDENTED}"]',
    ]:
        assert indented_json(text) is None


FLAGS = {"zlib": 0x301, "zlib of old": 0x1, "LZ4": 0x101, "zstd": 0x201, "unknown": 0x501}
DEFLATED = ("deflate", lambda data: zlib.compress(data, wbits=-zlib.MAX_WBITS))


@given(
    st.text('{}:,"0123456789 aé订单\n', min_size=1).map(str.encode),
    st.sampled_from(list(FLAGS)),
    st.lists(st.sampled_from(PACKINGS), max_size=2),
    st.sampled_from([("", bytes), DEFLATED]),
)
def test_a_body_under_any_flag_is_what_it_is(
    text: bytes,
    flag: str,
    inner: list[tuple[str, Callable[[bytes], bytes]]],
    outermost: tuple[str, Callable[[bytes], bytes]],
) -> None:
    """Text, in packings or without, under a flag of another compression, or of the one that it has."""
    body, packings = text, []
    for name, pack in (*inner, outermost):
        if name:
            body, packings = pack(body), [name, *packings]
    assume(packings[:1] != ["deflate"] or not is_text(body))  # a few bytes may be both
    stored = consumed(body, FLAGS[flag], Budget())
    content = unpack(stored.data)
    is_flagged = bool(packings) and packings[0] == flag.partition(" ")[0]
    assert content.data == text
    assert [*stored.packings, *content.packings] == packings[is_flagged:]
    assert (stored.note is None) is is_flagged


def test_bytes_that_are_nothing_are_no_body_under_a_flag() -> None:
    for flag in FLAGS.values():
        for body in (
            b"\x00\xff\x01\x02",
            bytes(range(256)),
            zlib.compress(bytes(range(99)))[:80],
            b"\x03\x00",
            b"\xff" * 40,
        ):
            with pytest.raises(CorruptRecord):
                consumed(body, flag, Budget())


SENTENCES = {
    "gbk": "订单已付款，请尽快发货；客户要求明天上午送到，否则取消。",
    "big5": "訂單已付款，請儘快出貨；客戶要求明天上午送到，否則取消。",
    "shift_jis": "ご注文ありがとうございます。明日の午前中にお届けします。",
}


@pytest.mark.parametrize("charset", SENTENCES)
@given(data=st.data())
def test_a_text_of_a_charset_looks_like_it(charset: str, data: st.DataObject) -> None:
    sentence = SENTENCES[charset]
    start = data.draw(st.integers(0, 8))
    text = data.draw(st.sampled_from(["", '{"note":"', "id=4711 "])) + sentence[start : start + 16] + "\n"
    assert looks_like(text.encode(charset)) == charset
    long = (text * 1000).encode(charset)
    assert looks_like(long[: data.draw(st.integers(500, len(long)))]) in (charset, None)
    assert looks_like(text.encode()) is None


@pytest.mark.parametrize("text", ["déjà vu au café", "Größe für die Straße", "привет, мир"])
def test_texts_of_one_byte_a_character_look_like_none(text: str) -> None:
    assert looks_like(text.encode("koi8-r" if "п" in text else "latin-1")) is None


CHARSETS = ["utf-8", "gbk", "gb18030", "big5", "shift_jis", "euc_kr", "latin-1", "utf-16", "utf-16-le", "utf-32"]


@settings(max_examples=examples(40))
@given(charset=st.sampled_from(CHARSETS), data=st.data())
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
