"""A search of a store with a tier: its own log first, then the logs of the tier's queues, one after the other.

Each log is searched by the same run as the log of any store. A queue's log in the tier is read as a whole, up to where
the store's own log has the same messages. A cursor names the queue in whose log it goes on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from storage.amounts import counted
from storage.files.waiting import finish
from storage.search.criteria import Criteria
from storage.search.cursor import Cursor
from storage.search.plan import Plan, chunks_of
from storage.search.progress import ProgressReport
from storage.search.step import Step
from storage.store.message_store import MessageStore

OWN_LOG: Final = ""
"""What stands for the store's own log among the names of queues."""

RunPlan = Callable[[Plan, int | None, Cursor], Iterator[Step]]
"""Searches a plan from a cursor on, up to a number of messages."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One log that is to be searched; ``name`` is that of its queue, ``size`` in bytes as its files have them."""

    name: str
    size: int
    topic: str = ""
    queue_id: int = 0


def search_in_tier(
    store: MessageStore, criteria: Criteria, own: Plan, run: RunPlan, limit: int | None, begin: Cursor
) -> Iterator[Step]:
    """Search the store's own log by a plan, then the tier; steps as of one search. Waits for the disk."""
    sources = [_Source(OWN_LOG, own.total_bytes), *_in_tier(store, criteria.topic)]
    before = skipped = sum(source.size for source in sources if source.name < begin.queue)
    sources = [source for source in sources if source.name >= begin.queue]
    notes: list[str] = []
    found = read = 0
    for number, source in enumerate(sources):
        is_own = source.name == OWN_LOG
        plan = own if is_own else _plan_of(store, source)
        start = Cursor(begin.physical_offset, begin.given) if source.name == begin.queue else Cursor(0)
        ahead = sum(each.size for each in sources[number + 1 :])
        following = sources[number + 1].name if number + 1 < len(sources) else None
        read += not is_own
        for step in run(plan, None if limit is None else limit - found, start):
            is_full = limit is not None and found + step.progress.found >= limit
            is_over = step.is_last and (step.cursor is not None or is_full or following is None)
            done = step.progress
            progress = ProgressReport(
                before + done.searched_bytes,
                before + done.total_bytes + ahead,
                found + done.found,
                done.seconds,
                skipped + (0 if number else done.before_bytes),
            )
            if step.is_last:
                notes += [note for note in step.notes if note not in notes]
            if is_over and read:
                notes.append(f"{counted(read, 'log')} of the tier {'was' if read == 1 else 'were'} read")
            cursor = _cursor_behind(step, criteria, source.name, following)
            said = tuple(notes) if is_over else ()
            yield replace(step, progress=progress, cursor=cursor, is_last=is_over, notes=said)
            if is_over:
                return
        before, found = before + done.searched_bytes, found + done.found


def _cursor_behind(step: Step, criteria: Criteria, queue: str, following: str | None) -> str | None:
    """Where to go on after a step: in the same log, or at the start of the next one; None where nothing is left."""
    if step.cursor is not None:
        return replace(Cursor.decode(step.cursor, criteria), queue=queue).encode(criteria)
    return None if following is None else Cursor(0, queue=following).encode(criteria)


def _in_tier(store: MessageStore, topic: str | None) -> Iterator[_Source]:
    """The queues of the tier, of one topic or of all, in the order of their names."""
    tier = store.queues.tier
    assert tier is not None
    topics = tier.topics if topic is None else tier.topics & {topic}
    named = ((f"{each}/{queue_id:010d}", each, queue_id) for each in topics for queue_id in tier.queue_ids(each))
    for name, each, queue_id in sorted(named):
        yield _Source(name, tier.log_bytes(each, queue_id), each, queue_id)


def _plan_of(store: MessageStore, source: _Source) -> Plan:
    """The log of a queue in the tier, up to the first message that the store's own log has too."""
    queue = finish(store.queues.queue_lookup(source.topic, source.queue_id))
    in_tier = store.queues.tier_part(queue)
    if in_tier is None:
        return Plan([])
    part, stop = in_tier
    gaps = tuple(f"{source.topic} {source.queue_id} in the tier: {gap}" for gap in part.log.gaps())
    return Plan(list(chunks_of(part.log, part.log.minimum, stop)), gaps)
