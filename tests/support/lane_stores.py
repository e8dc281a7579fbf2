"""Stores for tests of the fast lane, by name, and the names in them."""

from collections.abc import Callable

from store_writer import StoreWriter

TOPICS = ("TopicTest", "Grüße", "%RETRY%" + "g" * 130)
KEYS = ("k0", "k1", "k2", "hot", "schlüssel", "\U0001f600", "ka kb", "", "a\ufffd", "none", 'q"uote', "TagA", "TagB")
UNIQUE = "7F0000010000{:020X}"
"""Unique keys whose pid is a multiple of 65536, which may be offset ids as well; ORDINARY ones may not."""
ORDINARY = "7F0000011234{:020X}"


def write_messages(writer: StoreWriter) -> None:
    """Messages of every form; in the first segment, whose end nobody looks for, every seventh lies about itself."""
    for number in range(160):
        topic = TOPICS[number % 3]
        hosts = ("::1", 10911) if number % 5 == 0 else ("127.0.0.1", 10911)
        keys = ["hot" if number % 2 else "k0", f"k{number % 4}", "schlüssel" if number % 3 else "\U0001f600"]
        writer.append(
            topic,
            bytes([number]) * (number * 7 % 400),
            keys=keys,
            unique_key=(UNIQUE if number % 4 == 0 else ORDINARY).format(number),
            tags="TagA" if number % 2 else "TagB",
            store_host=hosts,
            property_crc=number % 6 == 0,
            body_crc=1 if number % 7 == 3 and number < 20 else None,
            own_offset=5 if number % 7 == 5 and number < 20 else None,
        )


def ordinary(writer: StoreWriter) -> None:
    write_messages(writer)


def without_index(writer: StoreWriter) -> None:
    write_messages(writer)


def with_a_hole(writer: StoreWriter) -> None:
    write_messages(writer)
    writer.skip_segments()
    write_messages(writer)


def long_answers(writer: StoreWriter) -> None:
    for number in range(12):
        writer.append("TopicTest", bytes(40_000), keys=["hot", f"k{number}"], unique_key=ORDINARY.format(number))
    writer.append("TopicTest", bytes(300_000), keys="k0", unique_key=ORDINARY.format(99))


STORES: dict[str, tuple[Callable[[StoreWriter], None], dict[str, object]]] = {
    "ordinary": (ordinary, {"segment_size": 16384}),
    "one large index file": (ordinary, {"index_slots": 5, "index_entries": 5_000, "segment_size": 16384}),
    "without an index": (without_index, {"segment_size": 32768}),
    "without tag entries": (ordinary, {"profile": "5.3", "segment_size": 16384}),
    "with a hole": (with_a_hole, {"segment_size": 16384}),
    "long answers": (long_answers, {"segment_size": 1 << 20}),
}
