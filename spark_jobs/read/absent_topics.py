"""What the topics that a job is asked for are in its store, which may be a URL: none, or not read in full.

A topic that a store does not have, where none of its messages was found, is a name typed wrong, and is refused.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from protocol.errors import ConfigError, NoSuchTopic, RocketLensError
from protocol.system_topics import LIGHT_PREFIX
from spark_jobs.places.file_systems import is_url, local_path
from spark_jobs.scan.source import opened_source
from storage.layout.store_config import StoreConfig
from storage.store.message_store import MessageStore, StoreOptions
from storage.store.topic_catalog import refuse_absent


def refuse_absent_topics(store: str, commit_log: Sequence[str], storage: str, topics: Iterable[str]) -> None:
    """Raise NoSuchTopic for the first of :func:`absent_topics`."""
    for error in absent_topics(store, commit_log, storage, topics):
        raise error


def absent_topics(store: str, commit_log: Sequence[str], storage: str, topics: Iterable[str]) -> list[NoSuchTopic]:
    """The errors of topics that a store, a directory or a URL, is known not to have.

    Nothing is known of a log that lies alone, or of a store that cannot be looked at. Raises ConfigError for a light
    topic: its messages bear another one, by which they are read. For where nothing was found, since messages of a topic
    that was deleted may still lie in the log.
    """
    names = list(topics)
    light = next((name for name in names if name.startswith(LIGHT_PREFIX)), None)
    if light is not None:
        raise ConfigError(f"{light} is a light topic, whose messages bear the topic that they were sent to: name that")
    absent: list[NoSuchTopic] = []
    with contextlib.suppress(RocketLensError), _opened(store, commit_log, storage) as opened:
        for name in names:
            try:
                refuse_absent(opened, name)
            except NoSuchTopic as error:
                absent.append(error)
    return absent


def unread_of_store(store: str, storage: str, topics: Collection[str]) -> list[str]:
    """Sentences about what is not read of some topics, or with none of all; of a store that cannot be looked at none.

    The store is a directory or a URL.
    """
    if not is_url(store):
        return StoreConfig.load(Path(local_path(store))).notes_of_topics(topics or None)
    with contextlib.suppress(RocketLensError), opened_source(store, (), storage) as source:
        return StoreConfig.load(source.layout.root).notes_of_topics(topics or None)
    return []


@contextlib.contextmanager
def _opened(store: str, commit_log: Sequence[str], storage: str) -> Iterator[MessageStore]:
    lazy = StoreOptions(scan_budget=0, check_budget=0, keeps_state=False)
    if is_url(store):
        with opened_source(store, (), storage) as source:
            yield MessageStore.open(source.layout.root, lazy)
    else:
        logs = tuple(Path(local_path(each)) for each in commit_log)
        yield MessageStore.open(Path(local_path(store)), replace(lazy, commit_log_directories=logs))
