"""The texts of errors are read by people, so each is compared whole."""

import pickle
from pathlib import Path

from protocol.errors import (
    BadHeader,
    CorruptRecord,
    FilterSyntaxError,
    FrameTooLarge,
    NoSuchTopic,
    NotAStore,
    RequestByHttp,
    StoreError,
    TruncatedFile,
)

SEGMENT = Path("/data/store/commitlog/00000000000000000000")

SENTENCES = [
    (
        RequestByHttp(),
        "a request by HTTP, and this is the remoting port: the page has a port of its own, that of --http",
    ),
    (NoSuchTopic("ordrs"), "there is no topic ordrs"),
    (NoSuchTopic("ordrs", "did you mean orders?"), "there is no topic ordrs; did you mean orders?"),
    (FrameTooLarge(2**24 + 1, 2**24), "a frame of 16777217 bytes, more than the limit of 16777216"),
    (BadHeader("beginTimestamp"), "beginTimestamp is missing"),
    (BadHeader("maxNum", "abc", "is no 32-bit integer"), "maxNum: 'abc' is no 32-bit integer"),
    (BadHeader("maxNum", "-1", "expected 0 or more"), "maxNum: '-1', expected 0 or more"),
    (BadHeader("maxNum", ""), "maxNum: ''"),
    (BadHeader("key", "k" * 200, "is too long"), f"key: '{'k' * 80}'… (200 characters) is too long"),
    (BadHeader("key", "a\n\0", "is odd"), r"key: 'a\n\x00' is odd"),
    (
        CorruptRecord(SEGMENT, 4096, expected=0xDAA320A7, found=0),
        "00000000000000000000 at physical offset 4096: magic 0x00000000, expected 0xdaa320a7",
    ),
    (
        CorruptRecord("record", 7, expected=0x0102, found=3, what="body CRC"),
        "record at physical offset 7: body CRC 0x00000003, expected 0x00000102",
    ),
    (
        CorruptRecord("record", 7, expected="at least 91", found=3, what="total size"),
        "record at physical offset 7: total size 3, expected at least 91",
    ),
    (
        TruncatedFile(SEGMENT, 4096, expected=300, found=40, what="record of"),
        "00000000000000000000 at physical offset 4096: record of 300 bytes, but only 40 are there",
    ),
    (
        TruncatedFile("/s/index/20260101000000000", expected=40, found=0),
        "/s/index/20260101000000000: needs 40 bytes, but only 0 are there",
    ),
    (
        TruncatedFile("/s/checkpoint", expected="a header", found="nothing"),
        "/s/checkpoint: needs nothing, expected a header",
    ),
    (StoreError("/s/lock", what="permission denied"), "/s/lock: permission denied"),
    (StoreError("/s/lock"), "/s/lock: cannot be read"),
    (
        NotAStore(Path("/s"), expected="commitlog/ with segments", found="an empty directory"),
        "/s is no store that can be served: found an empty directory, expected commitlog/ with segments",
    ),
    (FilterSyntaxError("a > ) b", (4, 5), "expected a value"), "expected a value\n    a > ) b\n        ^"),
    (FilterSyntaxError("a >", (3, 3), "expected a value"), "expected a value\n    a >\n       ^"),
    (FilterSyntaxError("abc def", (4, 7), "unknown word"), "unknown word\n    abc def\n        ^^^"),
    (FilterSyntaxError("a =\n\tb @ c\r\nd", (7, 8), "odd"), "odd\n     b @ c\n       ^"),
    (FilterSyntaxError("价 = @", (4, 5), "odd"), "odd\n    价 = @\n         ^"),
    (FilterSyntaxError(f"{'a' * 90} @", (91, 92), "odd"), f"odd\n    …{'a' * 39} @\n    {' ' * 41}^"),
    (FilterSyntaxError("'" + "x" * 90, (0, 91), "odd"), f"odd\n    '{'x' * 79}…\n    {'^' * 81}"),
]


def test_an_error_reads_as_one_sentence_and_does_so_in_another_process() -> None:
    for error, sentence in SENTENCES:
        assert str(error) == sentence
        if not isinstance(error, FrameTooLarge):  # each other comes from a child
            assert str(pickle.loads(pickle.dumps(error))) == sentence
