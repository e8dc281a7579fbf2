"""What the owner of a store, or of a directory for output, plants there: root that works there is led nowhere by it,
nothing outside is changed, nothing of it comes in, and what is refused is named with its owner."""

import contextlib
import dataclasses
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import planting
from broker.service.state_directory import StateDirectory
from kept_store import Kept, make_small
from loop_engine import run_jobs_here
from protocol.errors import PlantedFile, RocketLensError
from publishing import look_for_nobody
from read_only import reachable_directory
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_compact, run_rebuild, run_rescue
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.publish import store_lock
from spark_jobs.run.progress import Silence
from storage.files.own_directories import user_text
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

pytestmark = [pytest.mark.skipif(os.getuid() != 0, reason="root alone can be led to what is somebody else's"),
              pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]  # fmt: skip

SMALL = {"slots": 20, "entries": 20, "zone": "UTC"}
FEW, MANY = 6, 3000
STEPS_APART = 149
"""In `make test` a swap is tried at one of so many steps, in `make soak` at each."""

Job = Callable[[Path], object]


@pytest.fixture(autouse=True, scope="module")
def here():
    with pytest.MonkeyPatch.context() as patch:
        run_jobs_here(patch)
        patch.setattr(store_lock, "find_writers", look_for_nobody)
        yield


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with StoreWriter(tmp_path_factory.mktemp("planted") / "store", segment_size=2048) as writer:
        for number in range(30):
            writer.append("Orders" if number % 2 else "Payments", b"body %d" % number, unique_key=f"U{number}")
    run_rebuild(rebuild_all(writer.root), Silence())
    for path in writer.root.glob("*.bak-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (writer.root / "lock").touch()
    return writer.root


def rebuild_all(store, **options):
    return RebuildRequest(store=str(store), index=True, queues=True, queue_file_size=400, **SMALL, **options)


IN_PLACE: dict[str, Job] = {
    "rebuild": lambda store: run_rebuild(rebuild_all(store), Silence()),
    "rebuild index": lambda store: run_rebuild(RebuildRequest(store=str(store), index=True, **SMALL), Silence()),
    "compact": lambda store: run_compact(CompactRequest(store=str(store), **SMALL), Silence()),
    "drop backup": lambda store: run_rebuild(rebuild_all(store, drop_backup=True, fresh=True), Silence()),
}


def into(store: Path) -> dict[str, Job]:
    return {
        "rebuild --out": lambda out: run_rebuild(rebuild_all(store, out=str(out)), Silence()),
        "rebuild --out file://": lambda out: run_rebuild(
            rebuild_all(store, out=f"file://{out}", work=str(out / planting.WORK), fresh=True), Silence()
        ),
        "export": lambda out: run_export(ExportRequest(store=str(store), out=str(out), format="ndjson"), Silence()),
        "export --fresh": lambda out: run_export(
            ExportRequest(store=str(store), out=str(out), format="ndjson", fresh=True), Silence()
        ),
        "export file://": lambda out: run_export(
            ExportRequest(store=str(store), out=f"file://{out}", format="ndjson", fresh=True), Silence()
        ),
    }


def attempt(field: planting.Field, job: Job, directory: Path) -> str:
    """Run a job; what it was refused with, "" if it came to its end. Outside of the directory nothing has changed."""
    before = field.snapshot()
    beside = set(os.listdir(field.root))
    refused = ""
    try:
        job(directory)
    except RocketLensError as error:
        refused = f"{type(error).__name__}: {error}"
    assert field.snapshot() == before, refused
    assert set(os.listdir(field.root)) == beside, refused
    assert "/proc/" not in refused
    return refused


def plants(places: list[str]) -> st.SearchStrategy[list[planting.Plant]]:
    one = st.builds(
        planting.Plant, place=st.sampled_from(places), kind=st.sampled_from(planting.KINDS),
        owner=st.sampled_from([planting.OWNER, planting.ANOTHER, 0]),
        mode=st.sampled_from([0o600, 0o644, 0o666, 0o700, 0o755, 0o777]), target=st.sampled_from(planting.TARGETS),
    )  # fmt: skip
    return st.lists(one, min_size=1, max_size=3, unique_by=lambda plant: plant.place)


def check_planted(field, directory, job, wanted, work, lock="-") -> None:
    in_order = sorted(wanted, key=lambda plant: plant.place.count("/"))
    there = [plant for plant in in_order if field.plant(directory, plant)]
    refused = attempt(field, job, directory)
    assert not field.stolen(directory, {plant.place for plant in there})
    stopping = [plant for plant in there if plant.is_refused(work, lock)]
    assert refused or not stopping
    if refused.startswith(PlantedFile.__name__):
        assert "user " in refused
    if stopping and stopping == wanted:
        assert any(_is_named(refused, directory, plant.place) for plant in wanted), refused


def _is_named(text: str, directory: Path, place: str) -> bool:
    paths = [directory / place, *(directory / above for above in Path(place).parents if above.name)]
    owner = any(user_text(uid) in text for uid in (planting.OWNER, planting.ANOTHER, 0))
    return owner and any(f"{path}: " in text or f"{path.name}: " in text for path in paths)


IN_STORE = [*planting.PLACES, *(f"{planting.WORK}{place}" for place in planting.WORK_PLACES)]


def check_store(plain: Path, name: str, wanted: list[planting.Plant]) -> None:
    with reachable_directory() as root:
        field = planting.Field(root, plain)
        check_planted(field, field.store, IN_PLACE[name], wanted, planting.WORK, "lock")


def check_output(plain: Path, name: str, wanted: list[planting.Plant]) -> None:
    with reachable_directory() as root:
        field = planting.Field(root)
        out = field.theirs / "out"
        out.mkdir()
        planting.give(out)
        check_planted(field, out, into(plain)[name], wanted, "-" if name == "export file://" else planting.WORK)


def check_rescue(plain: Path, wanted: list[planting.Plant]) -> bool:
    """A damaged store, nobody's, is rescued into a directory of nobody's, with a copy of nobody's to fill its holes.

    Whether the new store is there, and has the copy's bytes.
    """
    with reachable_directory() as root:
        field = planting.Field(root, plain)
        beside, copy = field.theirs / "beside", field.theirs / "copy"
        beside.mkdir()
        planting.give(beside)
        shutil.copytree(field.store, copy)
        planting.give(copy)
        with (field.store / "commitlog" / SEGMENTS[1]).open("r+b") as file:
            file.seek(500)
            file.write(bytes(600))
        request = RescueRequest(
            store=str(field.store), out=str(beside / "new"), fill_from=(str(copy),), queue_file_size=400, **SMALL
        )
        for plant in wanted:
            name, _, place = plant.place.partition("/")
            if name in ("store", "copy"):
                field.plant(field.theirs / name, dataclasses.replace(plant, place=place))
        own = [plant for plant in wanted if plant.place.startswith("new")]
        check_planted(field, beside, lambda _: run_rescue(request, Silence()), own, f"new{planting.WORK}")
        assert not (beside / "new").exists() or not field.stolen(beside / "new", set())
        made = beside / "new" / "commitlog" / SEGMENTS[1]
        return made.is_file() and made.read_bytes() == (plain / "commitlog" / SEGMENTS[1]).read_bytes()


OUTPUTS = ("rebuild --out", "rebuild --out file://", "export", "export --fresh", "export file://")
LINK = [planting.Plant(planting.WORK, "link", planting.OWNER, 0o777, "precious")]


@settings(max_examples=FEW)
@given(st.sampled_from(sorted(IN_PLACE)), plants(IN_STORE))
@example("rebuild", LINK)
@example("rebuild", [planting.Plant(planting.WORK, "directory", 0, 0o777, "")])
@example("rebuild", [planting.Plant("checkpoint", "link", planting.OWNER, 0o777, "secret")])
@example("rebuild index", [planting.Plant("index/20240101000000000", "link", planting.OWNER, 0o777, "secret")])
@example("rebuild index", [planting.Plant("index/20240101000000000", "second name", planting.OWNER, 0o777, "secret")])
def test_what_is_planted_in_a_store_leads_nowhere(plain: Path, name: str, wanted: list[planting.Plant]) -> None:
    check_store(plain, name, wanted)


@settings(max_examples=FEW)
@given(st.sampled_from(OUTPUTS), plants(IN_STORE))
@example("export", LINK)
@example("export", [planting.Plant("part-00000000000000000000.ndjson", "directory", planting.OWNER, 0o700, "secret")])
@example("export --fresh", [planting.Plant("_manifest.json", "directory", planting.OWNER, 0o700, "secret")])
@example("rebuild --out file://", [planting.Plant("_manifest.json", "manifest", planting.OWNER, 0o644, "secret")])
@example("rebuild --out file://", [planting.Plant("_attempts", "link", planting.OWNER, 0o777, "precious")])
def test_what_is_planted_where_output_goes_leads_nowhere(plain: Path, name: str, wanted: list[planting.Plant]) -> None:
    check_output(plain, name, wanted)


SEGMENTS = [f"{base:020d}" for base in (0, 2048, 4096)]
IN_LOG = ["commitlog", "config", *(f"commitlog/{name}" for name in SEGMENTS)]
RESCUED = [*(f"{name}/{place}" for name in ("store", "copy") for place in (*IN_LOG, *planting.PLACES)),
           *(f"new{planting.WORK}{place}" for place in planting.WORK_PLACES)]  # fmt: skip


@settings(max_examples=FEW)
@given(plants(RESCUED))
@example([planting.Plant(f"copy/commitlog/{SEGMENTS[1]}", "link", planting.OWNER, 0o777, "secret")])
@example([planting.Plant(f"copy/commitlog/{SEGMENTS[1]}", "second name", planting.OWNER, 0o777, "secret")])
@example([planting.Plant(f"store/commitlog/{SEGMENTS[1]}", "link", planting.OWNER, 0o777, "secret")])
@example([planting.Plant(f"copy/commitlog/{SEGMENTS[0]}", "fifo", planting.OWNER, 0o644, "")])
@example([planting.Plant("store/config", "link", planting.OWNER, 0o777, "precious")])
@example([planting.Plant("store/config/topics.json", "link", planting.OWNER, 0o777, "secret")])
def test_what_is_planted_where_a_store_is_rescued_leads_nowhere(plain: Path, wanted: list[planting.Plant]) -> None:
    check_rescue(plain, wanted)


@pytest.mark.soak
@settings(max_examples=MANY)
@given(st.data())
def test_nothing_of_all_that_can_be_planted_leads_anywhere(plain: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*IN_PLACE, *OUTPUTS, "rescue"]))
    if name in IN_PLACE:
        check_store(plain, name, data.draw(plants(IN_STORE)))
    elif name in OUTPUTS:
        check_output(plain, name, data.draw(plants(IN_STORE)))
    else:
        check_rescue(plain, data.draw(plants(RESCUED)))


@settings(max_examples=FEW)
@given(plants(["serving.lock", "consumerOffset.json", "consumerOffset.json.new", "consumerOffset.json.unreadable"]))
def test_what_is_planted_in_a_state_directory_leads_nowhere(wanted: list[planting.Plant]) -> None:
    with reachable_directory() as root:
        field = planting.Field(root)
        state = field.theirs / "state"
        state.mkdir()
        there = [plant for plant in sorted(wanted, key=lambda plant: plant.place) if field.plant(state, plant)]

        def keep(path: Path) -> None:
            with contextlib.closing(StateDirectory(path)) as directory, contextlib.suppress(OSError):
                directory.read("consumerOffset.json")
                directory.write("consumerOffset.json", b"{}")
                directory.set_aside("consumerOffset.json")

        refused = attempt(field, keep, state)
        names = {plant.place: plant for plant in there}
        lock = names.get("serving.lock")
        if lock is not None and lock.kind in ("link", "dangling link", "fifo", "directory"):
            assert _is_named(refused, state, lock.place)


@pytest.fixture(scope="module")
def unindexed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        yield Kept(tmp_path_factory.mktemp("unindexed"), 150)


@settings(max_examples=FEW)
@example([planting.Plant("entries", "link", planting.OWNER, 0o777, "empty")], 0o777)
@example([planting.Plant("entries", "file", planting.OWNER, 0o644, "")], 0o777)
@example([planting.Plant("entries", "directory", planting.OWNER, 0o755, "")], 0o2777)
@example([planting.Plant("store-cache.msgpack", "fifo", planting.OWNER, 0o644, "")], 0o777)
@given(
    plants(
        ["entries", "entries/manifest.msgpack", "entries/queues", "entries/00000000000000001", "store-cache.msgpack"]
    ),
    st.sampled_from([0o777, 0o2777]),
)
def test_what_is_planted_in_a_volume_leads_nowhere(unindexed: Kept, wanted: list[planting.Plant], mode: int) -> None:
    with reachable_directory() as root:
        field = planting.Field(root)
        volume = field.root / "volume"
        volume.mkdir()
        volume.chmod(mode)
        there = [plant for plant in sorted(wanted, key=lambda plant: plant.place) if field.plant(volume, plant)]
        entries, opened = volume / "entries", list[MessageStore]()
        planted = os.path.lexists(entries) and (status := entries.lstat())
        is_ours = not planted or (stat.S_ISDIR(status.st_mode) and not status.st_uid and not status.st_mode & 0o002)
        unindexed.directory = entries
        refused = attempt(field, lambda path: opened.append(unindexed.open(state_directory=path)), volume)
        assert not refused
        assert not field.stolen(volume, {plant.place for plant in there})
        problems = " ".join(problem for problem in opened[0].problems if str(volume) in problem)
        assert "/proc/" not in problems
        if not is_ours:
            assert opened[0].snapshot.index.kept == ()
            assert "cannot be kept in" in problems
            assert any(user_text(uid) in problems for uid in (planting.OWNER, planting.ANOTHER, 0))
        elif not any(plant.place.startswith("entries/") for plant in there):
            assert len(opened[0].snapshot.index.kept) > 2
            assert problems == ""


@pytest.fixture
def field(plain):
    with reachable_directory() as root:
        yield planting.Field(root, plain)


@pytest.mark.parametrize(("name", "target"), [("rebuild", "secret"), ("compact", "mine/evil")])
def test_a_planted_journal_moves_nothing(field: planting.Field, name: str, target: str) -> None:
    (field.store / "mine").mkdir()
    (field.store / "mine" / "evil").write_text("x")
    shutil.rmtree(field.store / "index")
    work = field.store / planting.WORK
    work.mkdir()
    staged = field.outside / "secret" if target == "secret" else field.store / target
    (work / "journal.msgpack").write_bytes(planting.evil_journal(field.store, staged))
    planting.give(field.store)
    refused = attempt(field, IN_PLACE[name], field.store)
    assert refused == (
        f"PlantedFile: {work}: belongs to {user_text(planting.OWNER)}, and this runs as {user_text(0)}: "
        "move it away, or run this as its owner"
    )
    assert (field.store / "mine" / "evil").exists()


def test_a_file_of_roots_that_was_moved_into_the_index_is_not_given_away(field: planting.Field) -> None:
    """Who owns a directory may rename in it what is root's."""
    index = sorted((field.store / "index").iterdir())[0]
    os.chown(index, 0, 0)
    index.chmod(0o600)
    refused = attempt(field, IN_PLACE["rebuild index"], field.store)
    if refused:
        assert f"{index}: belongs to {user_text(0)}, who lets nobody else read it" in refused
    assert index.stat().st_uid == 0


class Swap:
    """At one of the steps of a job, by the events that Python audits, its directory becomes a link to a trap."""

    EVENTS = frozenset({"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.scandir", "os.listdir",
                        "os.chmod", "os.chown", "os.utime", "os.truncate", "shutil.rmtree"})  # fmt: skip

    def __init__(self) -> None:
        self._act: Callable[[], None] | None = None
        self._left = 0
        self.steps = 0
        sys.addaudithook(self._see)

    def _see(self, event, _arguments) -> None:
        if self._act is None or event not in self.EVENTS:
            return
        self.steps += 1
        if self.steps == self._left:
            act, self._act = self._act, None
            act()

    @contextlib.contextmanager
    def at(self, step, act):
        self.steps, self._left, self._act = 0, step, act
        try:
            yield
        finally:
            self._act = None


SWAP = Swap()


def swap_and_run(source: Path, name: str, what: str, step: int) -> bool:
    with reachable_directory() as root:
        field = planting.Field(root, source if name in IN_PLACE else None)
        directory = field.store if name in IN_PLACE else field.theirs / "out"
        if name not in IN_PLACE:
            directory.mkdir()
            planting.give(directory)
        place = directory if what == "directory" else directory / planting.WORK
        trap, before = field.outside / "trap", {}

        def swap() -> None:
            if not place.exists():
                place.mkdir()
            shutil.copytree(place, trap, symlinks=True)
            place.rename(place.with_name("moved"))
            place.symlink_to(trap)
            os.lchown(place, planting.OWNER, planting.OWNER)
            before.update(field.snapshot())

        job = IN_PLACE[name] if name in IN_PLACE else into(source)[name]
        with SWAP.at(step, swap), contextlib.suppress(RocketLensError, OSError):
            job(directory)
        if SWAP.steps < step:
            return False
        after = field.snapshot()
        assert {path: (before.get(path), after.get(path)) for path in before.keys() | after.keys()
                if before.get(path) != after.get(path)} == {}, (name, what, step)  # fmt: skip
        return True


SWAPPED = [*(("rebuild", what) for what in ("work", "directory")), ("rebuild --out file://", "directory"),
           *(("export", what) for what in ("work", "directory")), ("compact", "work")]  # fmt: skip


@pytest.mark.parametrize("apart", [STEPS_APART, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("name", "what"), SWAPPED)
def test_a_directory_that_is_swapped_meanwhile_leads_nowhere(plain: Path, name: str, what: str, apart: int) -> None:
    step = 1
    while swap_and_run(plain, name, what, step):
        step += apart
    assert step > (STEPS_APART if apart > 1 else 100)


def test_root_may_rescue_the_store_of_somebody_with_a_copy_of_somebody(plain: Path) -> None:
    assert check_rescue(plain, [])


def test_the_secret_is_known_where_it_is_found(field: planting.Field) -> None:
    """The judge of these tests finds what it looks for."""
    (field.store / "index" / "x").write_bytes(planting.SECRET)
    os.link(field.outside / "theirs", field.store / "y")
    assert {Path(path).name for path in field.stolen(field.store, set())} == {"x", "y"}
    assert planting.RUN in os.listdir(field.outside / "precious")
