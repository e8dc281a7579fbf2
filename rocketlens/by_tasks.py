"""A store in a directory of which what reads the log is read by the tasks of an engine, where a command names one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rocketlens.opening import StoreArguments
from rocketlens.store import Store, needs_keys
from spark_jobs.run.engine import EngineOptions
from storage.patterns.mask import BoundedMask

if TYPE_CHECKING:
    from spark_jobs.search.searched_store import SearchedStore
    from storage.search.criteria import Criteria
    from storage.search.lookup import LookupStep
    from storage.search.step import Step
    from storage.space.tally import Tally
    from storage.store.message_store import MessageStore


class StoreByTasks(Store):
    """A store whose searches and counts are made by processes of this machine, or on Spark; all else as any store."""

    def __init__(
        self, path: Path, arguments: StoreArguments, engine: EngineOptions, notify: Callable[[str], None]
    ) -> None:
        """`notify` gets the lines for the person who waits for a cluster's executors."""
        super().__init__(path, arguments)
        self._engine, self._notify = engine, notify

    def _searched(self, *, with_keys: bool) -> "SearchedStore":
        """The store to plan by; `with_keys`: with every index file checked, and what the index lacks scanned."""
        from spark_jobs.search.searched_store import SearchedStore

        store = self._opened(with_keys=with_keys)
        store.refuse_tier("a search by an engine")
        return SearchedStore(store)

    def _steps(
        self,
        criteria: "Criteria",
        mask: BoundedMask,
        limit: int | None,
        cursor: str | None,
        should_stop: Callable[[], bool],
        *,
        exhaustive: bool,
    ) -> "Iterator[Step]":
        from spark_jobs.search.search import search_by_tasks

        return search_by_tasks(
            self._searched(with_keys=needs_keys(criteria, exhaustive=exhaustive)),
            criteria,
            engine=self._engine,
            notify=self._notify,
            limit=limit,
            cursor=cursor,
            should_stop=should_stop,
            exhaustive=exhaustive,
        )

    def _looked_up(
        self, texts: list[str], topic: str | None, kind: str | None, should_stop: Callable[[], bool]
    ) -> "Iterator[LookupStep]":
        from spark_jobs.search.look_up import looked_up_by_tasks

        searched = self._searched(with_keys=False)
        return looked_up_by_tasks(
            searched, self._engine, self._notify, texts, topic, kind, should_stop, self._arguments.index_slots or 0
        )

    def _tally(self, store: "MessageStore", report: Callable[[int], None], times: tuple[int, int]) -> "Tally":
        from functools import partial

        from spark_jobs.search.space import tally_by_tasks
        from storage.space.measure import measure

        tally_all = partial(tally_by_tasks, engine=self._engine, notify=self._notify)
        return measure(store.commit_log, tally_all, report, times)
