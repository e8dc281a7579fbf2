"""Publishing: whatever kills it, each directory is wholly old or wholly new, and the next run ends it."""

import errno
import os
import random
import shutil
import stat

import pytest

from killing import Renames, SmallParent, every_kill, limit
from protocol.errors import ConfigError, StoreError
from publishing import (
    NAMES,
    OLD,
    TIME,
    Scene,
    holding,
    new,
    old,
    publish_scene,
    read_tree,
    roll_scene_forward,
    write_tree,
)
from spark_jobs.publish import _atomic_rename, _publish_checks, store_lock
from spark_jobs.publish._open_writers import find_writers
from spark_jobs.publish.publish import EXCHANGE, FSYNC, Published, Staged, publish
from spark_jobs.publish.publish_journal import Journal, remove_journal, write_journal
from spark_jobs.publish.publish_names import find_unfinished
from spark_jobs.publish.store_lock import StoreLock

MISSING = {"nothing missing": (), "some missing": ("index", "batchconsumequeue"), "all missing": NAMES}
ALL_MISSING = pytest.mark.parametrize("missing", MISSING.values(), ids=MISSING.keys())
IN_EACH_RUN = {("some missing", Renames.ALL), ("some missing", Renames.PLAIN), ("all missing", Renames.NO_EXCHANGE)}
"""Where a kill comes before each step, with `make test`."""


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path / "scene")
    made.reset()
    return made


@pytest.fixture(scope="module")
def parent():
    with SmallParent() as parent:
        yield parent


@pytest.fixture
def limited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Renames:
    monkeypatch.setattr(_atomic_rename, "renameat2", _atomic_rename.renameat2)
    limit(request.param)
    return request.param


@ALL_MISSING
@pytest.mark.parametrize("limited", list(Renames), indirect=True, ids=lambda renames: renames.value)
@pytest.mark.parametrize("names", [NAMES, ("consumequeue", "checkpoint")], ids=",".join)
def test_the_new_is_in_its_place_and_the_old_is_kept(tmp_path, limited, names, missing) -> None:
    scene = Scene(tmp_path / "scene", names, missing)
    scene.reset()
    published = scene.publish()
    scene.assert_published()
    kept = tuple(scene.backup(name) for name in scene.names if name not in missing)
    assert published == Published(TIME, tuple(scene.names), kept)


def test_everything_is_fsynced_before_anything_is_renamed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, str]] = []
    fsync, renameat2 = os.fsync, _atomic_rename.renameat2

    def note_fsync(descriptor: int) -> None:
        steps.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def note_rename(source, target, flags):
        steps.append(("rename", target.name))
        return renameat2(source, target, flags)

    staged = {str(path) for path in (scene.work / "staged").rglob("*")}
    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(_atomic_rename, "renameat2", note_rename)
    with StoreLock(scene.store) as lock:
        publish(lock, scene.staged, scene.journal, TIME, enter=lambda phase: steps.append(("enter", phase)))
    phases = [place for place, step in enumerate(steps) if step[0] == "enter"]
    assert [steps[place][1] for place in phases] == [FSYNC, EXCHANGE]
    assert phases[0] == 0
    assert staged <= {path for kind, path in steps[: phases[1]] if kind == "fsync"}
    # The journal is on the disk before the first rename, the store's directory after each.
    first = next(place for place, step in enumerate(steps) if step[0] == "rename")
    assert str(scene.work) in {path for _, path in steps[phases[1] : first]}
    exchanged = [place for place, step in enumerate(steps) if step == ("rename", step[1]) and step[1] in NAMES]
    assert [steps[place][1] for place in exchanged] == list(NAMES)
    for here, following in zip(exchanged, [*exchanged[1:], len(steps)], strict=True):
        assert ("fsync", str(scene.store)) in steps[here:following]


@pytest.mark.parametrize(
    ("renames", "what"),
    [
        pytest.param(renames, what, marks=[] if (renames, what) in IN_EACH_RUN else pytest.mark.soak)
        for what in MISSING
        for renames in Renames
    ],
    ids=lambda value: value.value if isinstance(value, Renames) else value,
)
def test_a_kill_before_any_step_leaves_each_whole_and_the_next_run_ends_it(scene, parent, renames, what) -> None:
    scene.missing = MISSING[what]
    scene.reset()
    states, kills = set(), 0
    for _ in every_kill(publish_scene, (scene,), renames, parent.gets_through):
        kills += 1
        states.add(scene.digest())
        scene.assert_whole(may_be_missing=renames is not Renames.ALL)
        began = scene.journal.exists()
        rolled = scene.roll_forward()
        assert (rolled is not None) == began
        if rolled is None:
            scene.assert_untouched()
            rolled = scene.publish()
        scene.assert_published()
        assert rolled.names == NAMES
        assert rolled.left == ()
        assert scene.roll_forward() == rolled
        remove_journal(scene.journal)
        assert scene.roll_forward() is None
        scene.reset()
    scene.assert_published()
    # Each of five is staged, beside its place, in its place; the old of each under two names: the kills saw them all.
    assert len(states) >= 5 * (2 if MISSING[what] == NAMES else 3)
    assert kills > len(states)


def broker_starts(scene: Scene) -> None:
    """A broker that starts writes to `lock`, and makes what it finds missing."""
    status = (scene.store / "lock").stat()
    (scene.store / "lock").write_text("lock")
    os.utime(scene.store / "lock", ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


@pytest.mark.parametrize(
    ("why", "missing", "renames"),
    [
        ("a broker ran", (), Renames.PLAIN),
        ("another source", ("index",), Renames.ALL),
        *(
            pytest.param(why, missing, renames, marks=pytest.mark.soak)
            for why, missing in (("a broker ran", ()), ("another source", ("index",)))
            for renames in Renames
        ),
    ],
)
def test_what_has_fallen_behind_the_store_is_not_brought_in(scene, parent, renames, why, missing) -> None:
    scene.missing = missing
    scene.reset()
    left = set()
    for _ in every_kill(publish_scene, (scene,), renames, parent.gets_through):
        if scene.journal.exists():
            if why == "a broker ran":
                broker_starts(scene)
            was = {name: read_tree(scene.store / name) for name in NAMES}
            rolled = scene.roll_forward(source="" if why == "a broker ran" else "another")
            left.add(rolled.left)
            for name in NAMES:
                found = read_tree(scene.store / name)
                if was[name] is not None or name in missing:
                    assert found == was[name], name
                else:
                    assert found == old(name), name
                assert (name in rolled.names) == (found == new(name)), name
                if name in rolled.names:
                    assert read_tree(scene.backup(name)) == (None if name in missing else old(name)), name
                else:
                    assert read_tree(scene.backup(name)) is None, name
                    assert read_tree(scene.work / "staged" / name) == new(name), name
            assert rolled.names + rolled.left == NAMES
            assert find_unfinished(scene.store) == []
            assert scene.journal.exists() == (rolled.left == ())
        scene.reset()
    # However far it had come, from nothing to everything.
    assert left == {NAMES[number:] for number in range(len(NAMES) + 1)}


def test_a_broker_that_made_its_own_in_the_gap_of_two_renames_keeps_it(scene: Scene, parent: SmallParent) -> None:
    for _ in every_kill(publish_scene, (scene,), Renames.PLAIN, parent.gets_through):
        if not (scene.store / "consumequeue").exists():
            break
        scene.reset()
    broker_starts(scene)
    (scene.store / "consumequeue").mkdir()
    rolled = scene.roll_forward()
    assert rolled.names == ("consumequeue_ext",)
    assert read_tree(scene.store / "consumequeue") == {}
    assert read_tree(scene.backup("consumequeue")) == old("consumequeue")


def refused(scene: Scene, text: str, staged: list[Staged] | None = None, time: str = TIME) -> None:
    before = scene.digest()
    with StoreLock(scene.store) as lock, pytest.raises((StoreError, ConfigError), match=text):
        publish(lock, scene.staged if staged is None else staged, scene.journal, time)
    assert scene.digest() == before


def test_names_and_times_that_are_none(scene: Scene) -> None:
    for names in (["commitlog"], ["index", "index"], ["../index"]):
        staged = [Staged(name, scene.work / "staged/index") for name in names]
        refused(scene, "expected some of consumequeue_ext, ", staged)
    for time in ("2024022912345x", "../../../index", "\uff12" * 14):
        refused(scene, "is not the time of a backup, expected yyyyMMddHHmmss", time=time)


def test_what_is_in_the_way_or_not_there(scene: Scene) -> None:
    for suffix in ("bak", "new"):
        (scene.store / f"index.{suffix}-{TIME}").mkdir()
        refused(scene, f"index.{suffix}-{TIME}: exists already: move it away")
        (scene.store / f"index.{suffix}-{TIME}").rmdir()
    shutil.rmtree(scene.work / "staged" / "index")
    refused(scene, "staged/index: is missing, so .*store/index was left as it is")


@pytest.mark.parametrize("place", ["store", "work/staged"])
def test_a_file_where_a_directory_should_be_and_the_other_way_round(scene: Scene, place: str) -> None:
    shutil.rmtree(scene.root / place / "index")
    (scene.root / place / "index").write_text("a file")
    refused(scene, f"{place}/index: is not a directory")
    (scene.root / place / "index").unlink()
    (scene.root / place / "index").mkdir()
    (scene.root / place / "checkpoint").unlink()
    (scene.root / place / "checkpoint").mkdir()
    refused(scene, f"{place}/checkpoint: is not a regular file")


def test_a_work_directory_on_another_file_system(scene, disk_path) -> None:
    if disk_path.stat().st_dev == scene.store.stat().st_dev:
        pytest.skip(f"{scene.store} and {disk_path} are of one file system")
    elsewhere = disk_path / "index"
    write_tree(elsewhere, {"20240101000000000": b"new 1"})
    staged = [*scene.staged[1:], Staged("index", elsewhere)]
    staged = [each for each in staged if each.name != "index" or each.path == elsewhere]
    refused(scene, "lie on different file systems; the work directory must be on", staged)
    assert read_tree(elsewhere) == {"20240101000000000": b"new 1"}


@pytest.mark.parametrize("how", ["lock", "map shared"])
def test_a_store_that_somebody_else_writes_to_since_the_lock_was_taken(scene, monkeypatch, how) -> None:
    """A broker that starts meanwhile: it holds the lock if ours was lost, else files at least."""
    monkeypatch.setattr(store_lock, "find_writers", find_writers)
    before = scene.digest()
    path = scene.store / ("lock" if how == "lock" else "index/20240101000000000")
    with StoreLock(scene.store) as lock:
        if how == "lock":
            os.close(os.open(path, os.O_RDONLY))
        with holding(path, how) as pid, pytest.raises(StoreError, match=f"by process {pid} "):
            publish(lock, scene.staged, scene.journal, TIME)
    assert scene.digest() == before


def failing_rename(monkeypatch, path, number) -> None:
    original = _atomic_rename.renameat2

    def fail(source, target, flags):
        return number if target == path else original(source, target, flags)

    monkeypatch.setattr(_atomic_rename, "renameat2", fail)


@pytest.mark.parametrize("name", [f"index.new-{TIME}", "consumequeue_ext"])
def test_a_rename_that_fails_before_anything_has_its_place_undoes_all(scene, monkeypatch, name) -> None:
    """Two mounts of one file system have the same device and no rename between them."""
    with monkeypatch.context() as patch:
        failing_rename(patch, scene.store / name, errno.EXDEV)
        with pytest.raises(StoreError, match=r"store: was left as it was: .*Invalid cross-device link.*work directory"):
            scene.publish()
    scene.assert_untouched()
    scene.publish()
    scene.assert_published()


def test_a_rename_that_fails_later_leaves_each_whole_and_the_next_run_goes_on(scene, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        failing_rename(patch, scene.store / "index", errno.EIO)
        with pytest.raises(StoreError) as caught:
            scene.publish()
    assert "was published in part (consumequeue_ext, consumequeue, batchconsumequeue new, the rest" in str(caught.value)
    assert str(scene.journal) in str(caught.value)
    scene.assert_whole(may_be_missing=False)
    with pytest.raises(StoreError, match="belongs to an unfinished publishing: finish it first"):
        scene.publish()
    assert scene.roll_forward() is not None
    scene.assert_published()


@pytest.mark.parametrize("what", ["target", "incoming"])
def test_something_else_in_the_way_is_never_touched(scene: Scene, parent: SmallParent, what: str) -> None:
    for _ in every_kill(publish_scene, (scene,), Renames.ALL, parent.gets_through):
        if len(find_unfinished(scene.store)) == len(NAMES):
            break
        scene.reset()
    path = scene.store / ("index" if what == "target" else f"index.new-{TIME}")
    path.rename(scene.root / "away")
    write_tree(path, {"by": b"somebody"})
    with pytest.raises(StoreError, match=f"published in part .*{path.name}: was (removed or )?replaced"):
        scene.roll_forward()
    assert read_tree(path) == {"by": b"somebody"}
    assert scene.journal.exists()
    shutil.rmtree(path)
    (scene.root / "away").rename(path)
    scene.roll_forward()
    scene.assert_published()


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x81\xa7version\x01"])
def test_a_file_that_is_no_journal_is_refused_by_name(scene: Scene, content: bytes) -> None:
    scene.journal.write_bytes(content)
    with pytest.raises(StoreError, match=r"publish\.msgpack: is not a journal of a publishing .* remove this file"):
        scene.roll_forward()
    refused(scene, "is not a journal of a publishing")


def test_a_journal_of_another_store_or_version_is_refused(scene: Scene) -> None:
    write_journal(scene.journal, Journal(1, "/other", 1, (0, 0), "", TIME, ()))
    with pytest.raises(StoreError, match=r"belongs to another store /other, expected .*/store"):
        scene.roll_forward()
    write_journal(scene.journal, Journal(2, "/other", 1, (0, 0), "", TIME, ()))
    with pytest.raises(StoreError, match=r"was written by another version.* 2, expected 1"):
        scene.roll_forward()


def test_a_second_publishing_keeps_the_first_backup(scene: Scene) -> None:
    scene.publish()
    remove_journal(scene.journal)
    write_tree(scene.work / "staged" / "index", {"20240101000000000": b"newest"})
    later = "20240229123457"
    with StoreLock(scene.store) as lock:
        publish(lock, [Staged("index", scene.work / "staged" / "index")], scene.journal, later)
    assert read_tree(scene.store / "index") == {"20240101000000000": b"newest"}
    assert read_tree(scene.store / f"index.bak-{later}") == new("index")
    assert read_tree(scene.backup("index")) == old("index")


@pytest.mark.parametrize(("rights", "files"), [(0o700, 0o600), (0o2775, 0o664)])
def test_what_is_published_has_the_rights_of_what_it_replaces(scene: Scene, rights: int, files: int) -> None:
    for name in OLD:
        (scene.store / name).chmod(rights)
    (scene.store / "checkpoint").chmod(0o640)
    (scene.work / "staged" / "index" / "20240101000000000").chmod(0o400)
    scene.publish()
    for name in scene.names[:-1]:
        for path in [scene.store / name, *(scene.store / name).rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) == (rights if path.is_dir() else files), path
    assert stat.S_IMODE((scene.store / "checkpoint").stat().st_mode) == 0o640


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files another user's")
def test_what_root_publishes_belongs_to_the_stores_owner(scene: Scene) -> None:
    for path in [scene.store, *scene.store.rglob("*")]:
        os.chown(path, 1234, 4321)
    shutil.rmtree(scene.store / "index")
    scene.publish()
    paths = list(scene.store.rglob("*"))
    assert scene.store / "index" in paths
    for path in paths:
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321), path


@pytest.mark.parametrize("renames", list(Renames), ids=lambda renames: renames.value)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_publishing_that_is_killed_again_and_again_gets_through(scene, parent, renames, seed) -> None:
    chance = random.Random(seed)
    scene.missing = chance.choice([(), ("consumequeue",)])
    scene.reset()
    while not parent.gets_through(publish_scene, (scene,), chance.randint(1, 30), renames):
        scene.assert_whole(may_be_missing=renames is not Renames.ALL)
    scene.assert_published()


@pytest.mark.parametrize(
    "renames",
    [Renames.PLAIN, *(pytest.param(each, marks=pytest.mark.soak) for each in (Renames.ALL, Renames.NO_EXCHANGE))],
)
def test_giving_up_survives_kills_too(scene: Scene, parent: SmallParent, renames: Renames) -> None:
    begun = 1
    while not parent.gets_through(publish_scene, (scene,), begun, renames):
        number = 1
        while not parent.gets_through(roll_scene_forward, (scene, "another"), number, renames):
            scene.assert_whole(may_be_missing=renames is not Renames.ALL)
            number += 1
        for name in NAMES:
            assert read_tree(scene.store / name) in (old(name), new(name)), name
        assert find_unfinished(scene.store) == []
        scene.reset()
        begun += 5


def test_a_target_that_is_a_link(scene: Scene) -> None:
    (scene.store / "index").rename(scene.root / "elsewhere")
    (scene.store / "index").symlink_to(scene.root / "elsewhere")
    refused(scene, "store/index: is a link to .*elsewhere: .*--out")


@pytest.mark.parametrize("place", ["index", "index with space"])
def test_a_target_that_is_a_mount_point(scene: Scene, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    if place != "index":
        scene.root.rename(scene.root.with_name("with space"))
        scene = Scene(scene.root.with_name("with space"))
    mounted = str(scene.store.resolve() / "index").replace(" ", "\\040")
    table = scene.root / "mounts"
    table.write_text(f"23 29 0:21 / /proc rw - proc proc rw\n31 29 254:0 / {mounted} rw shared:1 - ext4 /dev/vda rw\n")
    monkeypatch.setattr(_publish_checks, "_MOUNTS", table)
    refused(scene, "store/index: is a mount point, which cannot be renamed")
