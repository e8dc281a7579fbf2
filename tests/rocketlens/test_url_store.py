"""A store behind a URL is read as in a directory: the same answers, and no more fetched than is looked at."""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import rocketlens
from golden_store import GOLDEN, unpack
from protocol.errors import StoreError
from spark_jobs.places import hollow_copy, remote_file
from spark_jobs.places.remote_file import RemoteFile
from store_writer import StoreWriter

NUMBERS = itertools.count()


def waiting(source: rocketlens.Source) -> Any:
    """All that waits."""
    with source.pending() as found:
        return found.as_of, found.incomplete, found.topics(), list(found.messages())


QUESTIONS: dict[str, Callable[[rocketlens.Source], Any]] = {
    "groups": lambda source: source.groups(),
    "topics": lambda source: source.topics(),
    "info": lambda source: source.info(),
    "queues": lambda source: [source.queues(name) for name in ("TopicTest", "TopicBatch", "%RETRY%CG_FAIL", "none")],
    "pull": lambda source: [source.pull("TopicTest", queue_id, 3) for queue_id in range(4)],
    "pending": waiting,
    "life": lambda source: [source.life(text) for text in ("batch-0", "hotkey", "nosuchkey")],
    "doctor": lambda source: source.doctor(),
}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many bytes were fetched of each file, in small pieces."""
    found: dict[str, int] = {}
    fetch = RemoteFile._fetch

    def counted(self: RemoteFile, start: int, stop: int) -> bytes:
        found[Path(self.path).name] = found.get(Path(self.path).name, 0) + stop - start
        return fetch(self, start, stop)

    monkeypatch.setattr(RemoteFile, "_fetch", counted)
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)
    monkeypatch.setattr(hollow_copy, "UNIT_BYTES", 512)
    monkeypatch.setattr(hollow_copy, "MOST_AHEAD", 2048)
    return found


def put(store: Path) -> str:
    """A place for a copy of a store in a file system that only this process has."""
    place = f"memory://url-store-{next(NUMBERS)}"
    fsspec.filesystem("memory").put(str(store), place, recursive=True)
    return place


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[Path, str]]]:
    """Recorded stores, each in a directory and behind a URL."""
    made: dict[str, tuple[Path, str]] = {}

    def store(name: str) -> tuple[Path, str]:
        if name not in made:
            series, _, archive = name.partition("/")
            root = unpack(archive, tmp_path_factory.mktemp("stores"), archives=GOLDEN / series)
            made[name] = root, put(root)
        return made[name]

    yield store
    for _, place in made.values():
        fsspec.filesystem("memory").rm(place, recursive=True)


def said(source: rocketlens.Source, question: str, place: str) -> str:
    """An answer in words, with the place that it is about left out, and how long it took."""
    try:
        text = repr(QUESTIONS[question](source))
    except rocketlens.Error as error:
        text = str(error)
    return re.sub(r"seconds=[\d.e-]+", "", text.replace(place, "STORE"))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", ["g1/store-crashed"])
def test_every_question_has_the_answer_of_the_directory(
    name: str, question: str, stores: Callable[[str], tuple[Path, str]], fetched: dict[str, int]
) -> None:
    root, place = stores(name)
    with rocketlens.open(root) as here, rocketlens.open(place) as there:
        assert said(there, question, place) == said(here, question, str(root))
    assert fetched


def test_old_segments_are_not_fetched_to_see_groups_and_queues(tmp_path: Path, fetched: dict[str, int]) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 16)
    for _ in range(600):
        writer.append("T", bytes(900))
    writer.close()
    segments = sorted(each.name for each in (writer.root / "commitlog").iterdir())
    place = put(writer.root)
    with rocketlens.open(place) as source:
        queue = source.queues("T")[0]
        assert (queue.min_offset, queue.max_offset) == (0, 600)
        assert source.groups() == []
        assert source.pull("T", 0, 100, maximum=1)[0].queue_offset == 100
        assert len(segments) > 8
        assert sum(fetched.get(each, 0) for each in segments[:-1]) < 1 << 17
    fsspec.filesystem("memory").rm(place, recursive=True)


def test_what_cannot_be_fetched_is_an_error_and_the_next_question_is_asked_anew(
    stores: Callable[[str], tuple[Path, str]], fetched: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, place = stores("g1/store")
    with rocketlens.open(place) as source:
        for question in ("groups", "pull"):
            with monkeypatch.context() as patch:
                memory = type(fsspec.filesystem("memory"))
                cat = memory.cat_file

                def spoiled(self: Any, path: str, *given: Any, cat: Any = cat, **more: Any) -> bytes:
                    if "commitlog" in path:
                        raise OSError("the line is cut")
                    return bytes(cat(self, path, *given, **more))

                patch.setattr(memory, "cat_file", spoiled)
                source.close()
                source = rocketlens.open(place)
                with pytest.raises(rocketlens.Error, match=rf"{place}/commitlog/\d+: cannot be read .*the line is cut"):
                    QUESTIONS[question](source)
            assert QUESTIONS[question](source)


def test_files_that_change_are_noticed_and_read_anew(tmp_path: Path, fetched: dict[str, int]) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("T", b"first")
    writer.close()
    place = put(writer.root)
    memory = fsspec.filesystem("memory")
    with rocketlens.open(place) as source:
        assert source.queues("T")[0].max_offset == 1
        copies = source._copy
        writer = StoreWriter(tmp_path / "longer")
        for number in range(3):
            writer.append("T", b"%d" % number)
        writer.close()
        memory.rm(place, recursive=True)
        memory.put(str(writer.root), place, recursive=True)
        source._listed_at = 0
        assert source.queues("T")[0].max_offset == 3
        assert source._copy is not copies
    with rocketlens.open(place) as source:
        listed = source._current()
        (segment,) = memory.find(f"{place}/commitlog")
        content = memory.cat_file(segment)
        memory.pipe(segment, content)
        with pytest.raises(rocketlens.Error, match=f"{place}/commitlog/.* has changed since it was listed"):
            listed.read(lambda store: store.pull("T", 0, 0))
        source._listed_at = 0
        assert [each.body for each in source.pull("T", 0, 0)] == [b"0", b"1", b"2"]
    memory.rm(place, recursive=True)


def test_what_is_no_store_and_what_is_broken_bear_the_names_that_they_have_behind_the_url(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "file").write_bytes(b"x")
    writer = StoreWriter(tmp_path / "broken")
    writer.append("T", b"first")
    writer.close()
    (writer.root / "config" / "consumerOffset.json").write_bytes(b"{")
    memory = fsspec.filesystem("memory")
    for root, error in ((tmp_path / "nothing", rocketlens.NotAStore), (writer.root, rocketlens.Error)):
        place = put(root)
        said = []
        for where in (root, place):
            with pytest.raises(error) as caught, rocketlens.open(str(where)) as source:
                source.groups()
            said.append(str(caught.value).replace(str(where), "STORE"))
        assert said[0] == said[1]
        memory.rm(place, recursive=True)


def test_who_still_reads_a_copy_that_is_replaced_or_closed_gets_what_was_there_or_an_error(tmp_path: Path) -> None:
    places = []
    for count in (1, 3):
        writer = StoreWriter(tmp_path / str(count))
        for number in range(count):
            writer.append("T", b"%d" % number)
        writer.close()
        places.append(put(writer.root))
    memory = fsspec.filesystem("memory")

    def end(store: rocketlens.Source) -> int:
        return store.queues("T")[0].max_offset

    with rocketlens.open(places[0]) as source:
        first = source._current()

        def replaced(store: rocketlens.Source) -> int:
            memory.rm(places[0], recursive=True)
            memory.put(str(tmp_path / "3"), places[0], recursive=True)
            source._listed_at = 0
            assert end(source) == 3
            return end(store)

        with contextlib.suppress(rocketlens.Error):
            assert first.read(replaced) == 1
        second = source._current()
        assert second is not first

        def closed(store: rocketlens.Source) -> int:
            source.close()
            return end(store)

        with pytest.raises(rocketlens.Error, match=f"{places[0]}: it was closed while it was read"):
            second.read(closed)
    for place in places:
        memory.rm(place, recursive=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), StoreError("there", what="the line is cut")])
def test_after_a_failure_nothing_more_is_fetched_and_it_is_what_is_raised(
    error: BaseException, stores: Callable[[str], tuple[Path, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with rocketlens.open(stores("g1/store")[1]) as source:
        copy, asked = source._current(), []

        def fails(file: RemoteFile, *_place: int) -> bytes:
            asked.append(file.path)
            raise error

        monkeypatch.setattr(RemoteFile, "_fetch", fails)
        with pytest.raises(type(error)):
            copy.read(lambda store: store.doctor())
        assert len(asked) == 1
