"""Bodies unpacked and decompressed within bounds, also what applications pack into them or write in other charsets."""

import gzip
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import protocol.compression
from bombs import EMPTY_LZ4, EMPTY_ZSTD, UNITS, bombs, many_blocks
from examples import examples
from protocol import body_content
from protocol.compression import (
    DECOMPRESSED_LIMIT,
    LIST_BYTES,
    LIST_FRAMES,
    MOST_BLOCKS,
    MOST_FRAMES,
    PIECE,
    Budget,
    Codec,
    decode,
    decompress,
)
from protocol.errors import ConfigError, CorruptRecord
from protocol.sys_flag import CompressionType


def zstd_without_size(data: bytes) -> bytes:
    """As RocketMQ's stream writer does it: the size is not in the frame."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(data) + compressor.flush()


COMPRESSORS = [(CompressionType.ZLIB, zlib.compress), (CompressionType.LZ4, lz4.frame.compress),
               (CompressionType.ZSTD, zstandard.compress), (CompressionType.ZSTD, zstd_without_size)]  # fmt: skip


@pytest.mark.parametrize(("kind", "compress"), COMPRESSORS)
@pytest.mark.parametrize("size", [0, 1, 70_000])
def test_what_was_compressed_comes_back(kind, compress, size) -> None:
    body = b"0123456789 body " * (size // 16) + b"x" * (size % 16)
    assert decompress(compress(body), kind) == body
    assert decompress(memoryview(compress(body)), kind, limit=max(size, 1)) == body


def plainly(codec: Codec, data: bytes) -> bytes:
    match codec:
        case Codec.ZLIB:
            return zlib.decompress(data)
        case Codec.DEFLATE:
            return zlib.decompress(data, -zlib.MAX_WBITS)
        case Codec.GZIP:
            return gzip.decompress(data)
        case Codec.LZ4:
            body = b""
            while data:
                part, used = lz4.frame.decompress(data, return_bytes_read=True)
                body, data = body + part, data[used:]
            return body
        case Codec.ZSTD:
            reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
            return reader.read()


class Fed:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = self.calls = self.largest = 0
        chunk, new_decoder = lz4.frame.decompress_chunk, zlib.decompressobj

        def decompress_chunk(context, data, **more):
            found = chunk(context, data, **more)
            return self._note(data, found[0], found)

        class Decoder:
            def __init__(decoder, **more) -> None:  # noqa: N805
                decoder._inner = new_decoder(**more)

            def __getattr__(decoder, name):  # noqa: N805
                return getattr(decoder._inner, name)

            def decompress(decoder, data, most):  # noqa: N805 - self is who counts
                piece = decoder._inner.decompress(data, most)
                return self._note(data, piece, piece)

        monkeypatch.setattr(lz4.frame, "decompress_chunk", decompress_chunk)
        monkeypatch.setattr(protocol.compression.zlib, "decompressobj", Decoder)  # type: ignore[attr-defined]

    def _note(self, data, piece, found):
        self.bytes += len(data)
        self.calls += 1
        self.largest = max(self.largest, len(piece))
        return found


def test_frames_members_and_blocks_are_counted() -> None:
    # Frames and members are counted whatever is in them.
    for codec, unit in [(codec, unit) for codec, units in UNITS.items() for unit in units]:
        assert decode(unit * MOST_FRAMES, codec, Budget()) == plainly(codec, unit) * MOST_FRAMES
        with pytest.raises(CorruptRecord, match=f"more, expected at most {MOST_FRAMES} frames"):
            decode(unit * (MOST_FRAMES + 1), codec, Budget())
        with pytest.raises(CorruptRecord, match=f"more, expected at most {LIST_FRAMES} frames"):
            decode(unit * (LIST_FRAMES + 1), codec, Budget.of_list())
    # Blocks of zstd are counted in all frames together.
    assert decode(many_blocks(MOST_BLOCKS), Codec.ZSTD, Budget()) == b""
    for data in (many_blocks(MOST_BLOCKS + 1), many_blocks(MOST_BLOCKS // 2) * 3):
        with pytest.raises(CorruptRecord, match=f"at most {MOST_BLOCKS} blocks"):
            decode(data, Codec.ZSTD, Budget())


def test_one_budget_is_for_all_that_is_packed_in_a_record() -> None:
    budget = Budget(LIST_BYTES)
    data = zlib.compress(bytes(LIST_BYTES // 2))
    assert len(decode(data, Codec.ZLIB, budget)) == len(decode(data, Codec.ZLIB, budget)) == LIST_BYTES // 2
    with pytest.raises(CorruptRecord, match=f"zlib body more, expected at most {LIST_BYTES} bytes"):
        decode(zlib.compress(b"x"), Codec.ZLIB, budget)
    with pytest.raises(CorruptRecord, match=f"LZ4 body more, expected at most {LIST_BYTES} bytes"):
        decode(lz4.frame.compress(b""), Codec.LZ4, budget)  # not even begun, where there may be thousands


@settings(max_examples=examples(25), deadline=None)
@given(bombs())
@example((Codec.LZ4, EMPTY_LZ4 * 363_636))
@example((Codec.ZSTD, EMPTY_ZSTD * 444_444))
def test_a_bomb_is_decoded_in_one_pass_or_refused_by_a_count(bomb: tuple[Codec, bytes]) -> None:
    codec, data = bomb
    with pytest.MonkeyPatch.context() as monkeypatch:
        fed = Fed(monkeypatch)
        answers = []
        for _ in range(2):
            try:
                answers.append(decode(data, codec, Budget()))
            except CorruptRecord as error:
                answers.append(str(error).encode())
        assert answers[0] == answers[1]
    # Bytes behind a short frame, and those for which there was no room in a piece, are given once more.
    assert fed.bytes <= 2 * (len(data) + (MOST_FRAMES + 2) * 4096 + (DECOMPRESSED_LIMIT // PIECE + 2) * 65_536)
    assert fed.largest <= PIECE
    assert b"expected at most" in answers[0][:200] or answers[0] == plainly(codec, data)


MEGABYTE = 1024 * 1024
PACKINGS = [
    ("gzip", gzip.compress), ("zstd", zstandard.compress), ("LZ4", lz4.frame.compress), ("zlib", zlib.compress),
]  # fmt: skip


@settings(max_examples=examples(20), deadline=None)
@given(bombs(most_units=60_000))
def test_whatever_is_packed_in_what_the_answer_is_within_one_budget(bomb: tuple[Codec, bytes]) -> None:
    budget = Budget(4 * MEGABYTE)
    content = body_content.unpack(bomb[1], budget=budget)
    assert content == body_content.unpack(bomb[1], limit=4 * MEGABYTE)
    assert len(content.data) <= max(4 * MEGABYTE, len(bomb[1]))


def test_what_is_no_charset_is_refused() -> None:
    for name in ["", "klingon", "zlib", "hex", "rot13", "idna", "punycode", "unicode_escape", "utf-7", "a\x00b"]:
        with pytest.raises(ConfigError, match="is no charset"):
            body_content.charset_of(name)


def test_bytes_are_text_in_their_own_charset_alone() -> None:
    for data, charset, text in [
        ("订单 4711".encode("gbk"), "gbk", "订单 4711"), ("订单 4711".encode("gbk"), None, None),
        ("订单 4711".encode(), None, "订单 4711"), ("注文".encode("shift_jis"), "shift_jis", "注文"),
        ("text".encode("utf-16-le"), "utf-16-le", "text"), (b"a\x00b", "gbk", "a\0b"),
        (b"order-1\x00\x00\x00\x00\x00\x00\x00\x00\x00", None, "order-1" + "\0" * 9),
        (b"name=Ada\x00city=Paris\x00", None, "name=Ada\0city=Paris\0"), (b"\x00\x00\x00*", None, None),
        (b"\x00", None, None), ("text".encode("utf-16-le"), None, None), (b"\x0a\x05hello", None, None),
        (b"\xff\xff", "gbk", None), (b"", None, ""),
    ]:  # fmt: skip
        assert (body_content.text_in(data, charset), body_content.text_in(memoryview(data), charset)) == (text, text)


FLAGS = {"zlib": 0x301, "zlib of old": 0x1, "LZ4": 0x101, "zstd": 0x201, "unknown": 0x501}


@given(
    st.text('{}:,"0123456789 aé订单\n', min_size=1).map(str.encode),
    st.sampled_from(list(FLAGS)),
    st.lists(st.sampled_from(PACKINGS), max_size=2),
    st.sampled_from([("", bytes), ("deflate", lambda data: zlib.compress(data, wbits=-zlib.MAX_WBITS))]),
)
def test_a_body_under_any_flag_is_what_it_is(text, flag, inner, outermost) -> None:
    """Text, in packings or without, under a flag of another compression, or of the one that it has."""
    body, packings = text, []
    for name, pack in (*inner, outermost):
        if name:
            body, packings = pack(body), [name, *packings]
    assume(packings[:1] != ["deflate"] or not body_content.is_text(body))  # a few bytes may be both
    stored = body_content.consumed(body, FLAGS[flag], Budget())
    content = body_content.unpack(stored.data)
    is_flagged = bool(packings) and packings[0] == flag.partition(" ")[0]
    assert content.data == text
    assert [*stored.packings, *content.packings] == packings[is_flagged:]
    assert (stored.note is None) is is_flagged


SENTENCES = {"gbk": "订单已付款，请尽快发货；客户要求明天上午送到，否则取消。",
             "big5": "訂單已付款，請儘快出貨；客戶要求明天上午送到，否則取消。",
             "shift_jis": "ご注文ありがとうございます。明日の午前中にお届けします。"}  # fmt: skip


@pytest.mark.parametrize("charset", SENTENCES)
@given(data=st.data())
def test_a_text_of_a_charset_looks_like_it(charset: str, data: st.DataObject) -> None:
    sentence = SENTENCES[charset]
    start = data.draw(st.integers(0, 8))
    text = data.draw(st.sampled_from(["", '{"note":"', "id=4711 "])) + sentence[start : start + 16] + "\n"
    assert body_content.looks_like(text.encode(charset)) == charset
    long = (text * 1000).encode(charset)
    assert body_content.looks_like(long[: data.draw(st.integers(500, len(long)))]) in (charset, None)
    assert body_content.looks_like(text.encode()) is None


CHARSETS = ["utf-8", "gbk", "gb18030", "big5", "shift_jis", "euc_kr", "latin-1", "utf-16", "utf-16-le", "utf-32"]


@settings(max_examples=examples(40))
@given(charset=st.sampled_from(CHARSETS), data=st.data())
def test_a_long_text_is_decoded_in_pieces_as_it_would_be_at_once(charset: str, data: st.DataObject) -> None:
    """The pieces end anywhere in its characters."""
    unit = data.draw(st.text("aé订文🙂\0\t", min_size=1, max_size=5)).encode(charset, "ignore") or b"\x80a"
    long = (data.draw(st.binary(max_size=3)) + unit * (body_content.TEXT_PIECE // len(unit) + 2))[
        : body_content.TEXT_PIECE + 5
    ]
    whole = str(long, charset, "replace") if charset != "utf-16" or long[:2] in (b"\xff\xfe", b"\xfe\xff") else None
    if whole is not None:
        assert body_content.text_with_replacements(long, charset) == whole
    try:
        expected = long.decode(charset)
    except UnicodeError:
        expected = None
    if charset not in ("utf-16", "utf-32"):  # which have a mark of their order, or are none
        assert body_content.characters_in(long, charset) == expected
