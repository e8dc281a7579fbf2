"""Refuse topics that a store does not have, where none of its messages was found: that is a name typed wrong."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from protocol.errors import ConfigError, NoSuchTopic, RocketLensError
from protocol.system_topics import LIGHT_PREFIX
from spark_jobs.places.file_systems import is_url, local_path
from spark_jobs.scan.source import opened_source
from storage.store.message_store import MessageStore, StoreOptions
from storage.store.topic_catalog import refuse_absent


def refuse_absent_topics(store: str, commit_log: Sequence[str], storage: str, topics: Iterable[str]) -> None:
    """Raise NoSuchTopic for the first topic that a store, a directory or a URL, is known not to have.

    Nothing is known of a log that lies alone, or of a store that cannot be looked at. Raises ConfigError for a light
    topic: its messages bear another one, by which they are read. For where nothing was found, since messages of a topic
    that was deleted may still lie in the log.
    """
    names = list(topics)
    light = next((name for name in names if name.startswith(LIGHT_PREFIX)), None)
    if light is not None:
        raise ConfigError(f"{light} is a light topic, whose messages bear the topic that they were sent to: name that")
    try:
        with _opened(store, commit_log, storage) as opened:
            for name in names:
                refuse_absent(opened, name)
    except NoSuchTopic:
        raise
    except RocketLensError:
        return


@contextlib.contextmanager
def _opened(store: str, commit_log: Sequence[str], storage: str) -> Iterator[MessageStore]:
    lazy = StoreOptions(scan_budget=0, check_budget=0, keeps_state=False)
    if is_url(store):
        with opened_source(store, (), storage) as source:
            yield MessageStore.open(source.layout.root, lazy)
    else:
        logs = tuple(Path(local_path(each)) for each in commit_log)
        yield MessageStore.open(Path(local_path(store)), replace(lazy, commit_log_directories=logs))
