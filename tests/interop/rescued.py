"""Stores with any damage, crashed or stopped, with any checkpoint, by a seed; and what a consumer must get of them."""

import random

from damaged_stores import LOG_KINDS, QUEUE_KINDS, SHAPES_OF, Unfit, damage
from interop.recovery_oracle import Sizes
from oracles import packed

DEFAULT_FILE = 6_000_000
CHECKPOINT_SIZE = 4096


def sizes_of_mended(good, root) -> Sizes:
    """What a broker is to be configured with once a damaged store is made whole."""
    has_size = any(path.stat().st_size for path in (root / "consumequeue").glob("*/*/" + "[0-9]" * 20))
    return Sizes(good.segment_size, good.queue_file_size if has_size else DEFAULT_FILE, slots=good.index_slots)


def compare(good, readable, consumed, trace) -> None:
    for queue in good.queues:
        found = consumed.get(queue)
        expected = [each.physical_offset for each in readable if queue in each.places]
        arrived = [] if found is None else list(found.places)
        assert set(expected) <= set(arrived), (trace, queue, sorted(set(expected) - set(arrived)))
        known = {each.physical_offset for each in good.of_queue(queue)}
        assert set(arrived) <= known, (trace, queue, sorted(set(arrived) - known))
        assert sorted(set(arrived)) == list(dict.fromkeys(arrived)), (trace, queue)


def draw_store(good, root, seed, kind="") -> list[str] | None:
    """A damaged copy of a good store; what was done to it, None where the kind does not fit it."""
    rng = random.Random(f"start {seed} {good.shape} {kind}")
    names = [kind or rng.choice(LOG_KINDS)]
    names += [rng.choice(LOG_KINDS)] * (rng.random() < 0.3) + [rng.choice(QUEUE_KINDS)] * (rng.random() < 0.3)
    if any(good.shape not in SHAPES_OF.get(name, (good.shape,)) for name in names):
        return None
    try:
        damaged = damage(good, root, *names, seed=seed)
    except Unfit:
        return None
    notes = [*damaged.noted, _set_state(good, root, rng)]
    if rng.random() < 0.3:
        name = f"{good.end // good.segment_size * good.segment_size + good.segment_size:020d}"
        (root / "commitlog" / name).write_bytes(bytes(good.segment_size))
        notes.append(f"segment {name} was made in advance")
    return notes


def _set_state(good, root, rng) -> str:
    if rng.random() < 0.35:
        return "stopped"
    (root / "abort").write_text("1")
    message, path = rng.choice(good.messages), root / "checkpoint"
    stored, place = message.store_timestamp, rng.choice((0, message.physical_offset))
    numbers = (stored, stored, 0, 0, 0, place)
    checkpoints = {"as it was": None, "missing": b"", "of zeros": bytes(CHECKPOINT_SIZE)}
    checkpoints[f"of {stored}, {place}"] = b"".join(packed(number, 8) for number in numbers)
    name = rng.choice([*checkpoints, f"of {stored}, {place}"])
    content = checkpoints[name]
    if content:
        path.write_bytes(content.ljust(CHECKPOINT_SIZE, b"\0"))
    elif content is not None:
        path.unlink(missing_ok=True)
    return f"crashed, its checkpoint {name}"


def whole_messages(good, root):
    contents = {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir()}
    found = []
    for each in good.messages:
        base = each.physical_offset // good.segment_size * good.segment_size
        if contents.get(base, b"")[each.physical_offset - base :].startswith(each.record):
            found.append(each)
    return found
