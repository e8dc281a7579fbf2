"""Queues whose units are damaged, or followed by units left over, and what the sound store has: min and max offset."""

from oracles import packed
from store_writer import StoreWriter

UNIT = 20


class QueueImage:
    def __init__(self, directory, unit=UNIT) -> None:
        self.directory, self.unit_size = directory, unit
        self.files = {int(path.name): path for path in sorted(directory.iterdir())}
        self.file_size = next(iter(self.files.values())).stat().st_size
        self._sound = b"".join(path.read_bytes() for path in self.files.values())
        self.count = -(-len(self._sound.rstrip(b"\0")) // unit)

    def unit(self, number: int) -> bytes:
        return self._sound[number * self.unit_size :][: self.unit_size]

    def put(self, number: int, data: bytes) -> None:
        path = self._path(number)
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(self.file_size)
        with path.open("r+b") as file:
            file.seek(number * self.unit_size % self.file_size)
            file.write(data)

    def _path(self, number):
        start = number * self.unit_size
        return self.directory / f"{start - start % self.file_size:020d}"


def damage_queues(root, broken, lost=None, topic="*"):
    """Break units of all queues of a topic, by number, and remove a file of each that has more."""
    for directory in (root / "consumequeue").glob(f"{topic}/*"):
        image = QueueImage(directory)
        for number in broken:
            if number in range(image.count):
                image.put(number, b"\xff" * UNIT)
        if lost is not None and len(image.files) > 1:
            [*image.files.values()][lost % len(image.files)].unlink()


def _flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed)


DAMAGES = {
    "zeros": lambda chance, image, number: bytes(UNIT),
    "sign bit of the size": lambda chance, image, number: _flip(image.unit(number), 64),
    "sign bit of the offset": lambda chance, image, number: _flip(image.unit(number), 0),
    "a high bit of the offset": lambda chance, image, number: _flip(image.unit(number), chance.randrange(1, 40)),
    "a bit of the size": lambda chance, image, number: _flip(image.unit(number), chance.randrange(64, 96)),
    "ones": lambda chance, image, number: b"\xff" * UNIT,
    "noise": lambda chance, image, number: chance.randbytes(UNIT),
    "into the middle of a record": lambda chance, image, number: packed(
        int.from_bytes(image.unit(number)[:8], "big") + 7, 8) + image.unit(number)[8:],
    "a page from the beginning": lambda chance, image, number: image.unit(number % 205),
    "a page from elsewhere": lambda chance, image, number: image.unit(max(number - 150, 0)),
    "nothing but the tag": lambda chance, image, number: bytes(12) + packed(77, 8),
}  # fmt: skip

BROKEN = frozenset({"sign bit of the size", "sign bit of the offset", "ones"})
"""Kinds after which a unit is one that no broker writes."""


def truth(messages, log_minimum):
    """Min and max offset of a queue with these messages, one a unit from queue offset 0 on."""
    live = [number for number, written in enumerate(messages) if written.physical_offset >= log_minimum]
    return (live[0] if live else len(messages)), len(messages)


def make_store(root, chance, messages, *, queue_file_size=1000):
    writer = StoreWriter(root, segment_size=4096, queue_file_size=queue_file_size)
    writer.append("other", b"the first message of all")
    left = messages
    while left:
        topic, queue_id = chance.choice([("T", 0), ("T", 0), ("T", 1), ("other", 0)])
        writer.append(topic, bytes(chance.randrange(60)), queue_id=queue_id, tags=chance.choice(["a", "b", None]))
        left -= (topic, queue_id) == ("T", 0)
    writer.flush()
    return writer


def expire(root, count):
    paths = sorted((root / "commitlog").iterdir())
    count = min(count, len(paths) - 1)
    for path in paths[:count]:
        path.unlink()
    return int(paths[count].name)


def leave_over(image, chance, writer, end, count, log_minimum) -> None:
    """Units behind a queue's end of a log that was cut and written anew: to other records, between them, or beyond."""
    log_end = max(written.physical_offset + written.size for written in writer.written)
    strangers = (written for written in writer.written if (written.topic, written.queue_id) != ("T", 0))
    others = [each.physical_offset for each in strangers if each.physical_offset >= log_minimum] or [log_end]
    places = []
    for _ in range(count):
        other, inside = chance.choice(others), chance.randrange(log_minimum, log_end) // 8 * 8 + 3
        places.append(chance.choice([other, inside, log_end + chance.randrange(5000)]))
    for number, place in enumerate(sorted(places)):
        image.put(end + number, packed(place, 8) + packed(chance.randrange(91, 200), 4) + packed(5, 8))


def damage(image, chance, bounds, *, last):
    """Damage runs of units of a queue, many around its first and last live one; first number, how many, and how.

    The last unit is damaged only as `last` says.
    """
    done, end = [], bounds[1]
    for _ in range(chance.randrange(1, 6)):
        kind = chance.choice(sorted(DAMAGES))
        near = chance.choice([chance.randrange(end), bounds[0] - chance.randrange(-3, 40), end - chance.randrange(40)])
        start = min(max(near, 0), end - 1)
        count = min(chance.choice([1, 1, 2, 5, 40, 100, 205]), end - 1 - start)
        for number in range(start, start + count):
            image.put(number, DAMAGES[kind](chance, image, number))
        done.append((start, count, kind))
    if last in DAMAGES:
        image.put(end - 1, DAMAGES[last](chance, image, end - 1))
    return done
