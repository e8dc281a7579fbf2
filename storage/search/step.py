"""A step of a search: what one piece of a log brought."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.message import Message
from storage.log.commit_log import Segment
from storage.search.progress import ProgressReport


@dataclass(frozen=True, slots=True)
class RecordsFound:
    """Intact records of a segment, by their physical offsets."""

    segment: Segment
    offsets: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one piece of the log: ``messages`` ascending by physical offset, behind those of the steps before.

    ``cursor`` goes on behind them, None where nothing is left. The last step says in ``notes``, sentences, what was
    searched how, and what was not. ``store`` is the directory of their store, where several are searched. Where
    records are searched as they lie, `records` are instead of messages.
    """

    messages: tuple[Message, ...]
    progress: ProgressReport
    cursor: str | None
    is_last: bool = False
    notes: tuple[str, ...] = ()
    store: str = ""
    records: RecordsFound | None = None
