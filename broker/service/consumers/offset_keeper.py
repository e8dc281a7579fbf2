"""Keeps the offsets that consumer groups commit to this server in a file, written a few seconds after they change.

The file is a broker's `consumerOffset.json` (store-format §9.1): it holds the offsets of *all* groups, those that the
store recorded too, so that a broker that is started on the store can use it as it is. Its member `committedHere`, which
brokers ignore, names the entries that were committed to this server; on the next start only these are used instead of
the store's own, which may be newer by then. In a file without that member, a broker's own, all entries are used.

A file that cannot be read is neither used nor replaced. As long as it is there, offsets of groups are unknown, except
those that they commit now. It is read again every two seconds, until that succeeds or the file has been removed.
"""

import logging
import threading
import time
from typing import Any

import msgspec

from broker.service.consumers.consumer_offsets import ConsumerOffsets
from broker.service.consumers.report_limits import is_long
from broker.service.state_directory import StateDirectory
from protocol.bodies import encode_json
from protocol.errors import RocketLensError, StoreError
from protocol.fastjson import parse_fastjson
from protocol.offset_keys import offset_key, split_offset_key
from storage.layout.store_config import QueueOffsets

logger = logging.getLogger(__name__)

FILE = "consumerOffset.json"

SAVE_SECONDS = 2.0
"""Seconds between two writes: a kill of all processes loses at most the commits of this time. If one worker alone dies,
none is lost."""

BUSY_PART = 10
"""Writing takes at most 1/`BUSY_PART` of the time: after a long write the pause is longer."""

OWN = "committedHere"

WHY_UNKNOWN = "is no consumerOffset.json, so that it is not known what groups committed here"


class OffsetKeeper:
    """Reads the offsets once, and writes changed ones on a thread of its own between `start` and `stop`."""

    def __init__(
        self, offsets: ConsumerOffsets, directory: StateDirectory, interval_seconds: float = SAVE_SECONDS
    ) -> None:
        """Use a locked directory; the offsets in its file are in `offsets` when this returns."""
        self._offsets = offsets
        self._directory = directory
        self._interval_seconds = interval_seconds
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._counter = 0
        self._has_failed = False
        self._saved = offsets.changes if self._load() else -1

    def start(self) -> None:
        """Start the thread that writes changed offsets."""
        self._thread = threading.Thread(target=self._run, name="offsets", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write the last changes and unlock the directory. Waits for the disk."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self.save()
        if self._offsets.unknown is not None and self._offsets.changes != self._saved:
            logger.error("offsets that groups committed since the start are not kept: %s", self._offsets.unknown)
        self._directory.close()

    def save(self) -> None:
        """Write the offsets if they changed. A failure is logged once, and writing is tried again next time."""
        if self._offsets.unknown is not None:
            self._load()
        if self._offsets.unknown is not None:
            return
        changes = self._offsets.changes
        if changes == self._saved:
            return
        self._counter += 1
        journal = self._offsets.journal
        # The mark is taken before the offsets are read, since later notes may not be among them.
        mark = None if journal is None else journal.mark()
        try:
            self._directory.write(FILE, self._encode())
        except OSError as error:
            if not self._has_failed:
                logger.error("%s: offsets cannot be kept: %s", self._directory.path, error.strerror)
            self._has_failed = True
            return
        self._saved = changes
        self._has_failed = False
        if journal is not None and mark is not None:
            journal.forget(mark)

    def _run(self) -> None:
        pause_seconds = self._interval_seconds
        while not self._stopping.wait(pause_seconds):
            started = time.monotonic()
            try:
                self.save()
            except Exception:
                logger.exception("offsets were not written")
            pause_seconds = max(self._interval_seconds, BUSY_PART * (time.monotonic() - started))

    # ------------------------------------------------------------------ the file

    def _encode(self) -> bytes:
        """The content of the file in a broker's form: one entry a line, and queue ids without quotes."""
        own = self._offsets.own_pairs()
        version = encode_json({"counter": self._counter, "stateVersion": 0, "timestamp": time.time_ns() // 1_000_000})
        entries = [
            b"\t\t%b:{%b}" % (encode_json(_key(*pair)), b",".join(b"%d:%d" % item for item in sorted(queues.items())))
            for pair, queues in self._offsets.everything().items()
        ]
        return b'{\n\t"dataVersion":%b,\n\t"offsetTable":{\n%b\n\t},\n\t"%b":%b\n}' % (
            version,
            b",\n".join(entries),
            OWN.encode(),
            encode_json([_key(*pair) for pair in own]),
        )

    def _load(self) -> bool:
        """Take over the offsets of the file except where newer ones were committed; return whether all were taken.

        While the file cannot be read, its offsets are unknown.
        """
        before = self._offsets.unknown
        try:
            content = self._directory.read(FILE)
            table, own = ({}, None) if content is None else _decode(content)
        except (RocketLensError, msgspec.ValidationError) as error:
            unknown = StoreError(self._directory.path / FILE, what=f"{WHY_UNKNOWN} ({error})")
            if str(before) != str(unknown):
                logger.error(
                    "%s; repair the file, or remove it so that groups continue at the offsets in the store", unknown
                )
            self._offsets.note_unknown(unknown)
            return True
        refused = 0
        for key, queues in table.items():
            names = split_offset_key(key)
            if names is not None and (own is None or key in own):
                topic, group = names
                for queue_id, offset in queues.items():
                    if self._offsets.own(group, topic, queue_id) is not None:
                        continue
                    if is_long(group, topic) or not self._offsets.commit(group, topic, queue_id, offset, is_new=False):
                        refused += 1
        self._offsets.note_known()
        if before is not None:
            logger.info("%s can be read again", self._directory.path / FILE)
        if refused:
            aside = self._directory.set_aside(FILE)
            logger.error(
                "%s: %d offsets were not taken over from it: names are too long, or --limit registry_bytes too low",
                *(aside, refused),
            )
        return not refused


def _key(group: str, topic: str) -> str:
    return offset_key(topic, group)


def _decode(content: bytes) -> tuple[dict[str, QueueOffsets], frozenset[str] | None]:
    """The offsets by `topic@group`, and the keys of those that were committed here, None for all."""
    value: Any = parse_fastjson(content)
    members = msgspec.convert(value, dict[str, Any])
    table = msgspec.convert(members.get("offsetTable", {}), dict[str, QueueOffsets], strict=False)
    own = msgspec.convert(members.get(OWN), frozenset[str] | None)
    return table, own
