"""The doctor foretells a broker's start: first of all that it would cut the log, and no advice that would lose it."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from command_line import rocketlens
from doctoring import SEGMENT, findings_of, held_lock, make_store, put
from read_only import as_user, reachable_directory
from read_only_guard import NOBODY
from spark_jobs.publish._new_checkpoint import write_checkpoint
from storage.doctor import _linked_parts
from storage.doctor._next_start import AFTER_NAMES, MADE_ANEW, RIGHT_NAMES
from storage.doctor.examine import examine
from storage.doctor.finding import Severity
from storage.layout.closed_parts import FORBIDDEN
from storage.recovery.start_place import CHECKED_BACK

WORDS = "do not start a broker on this store: its recovery will cut"


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{SEGMENT * number:020d}"


@cache
def whole_store(crashed):
    """The files of a store of eight segments but for its checkpoint, written once for all tests."""
    with tempfile.TemporaryDirectory() as directory:
        writer, written = make_store(Path(directory), 900)
        (writer.crash if crashed else writer.close)()
        paths = [path for path in Path(directory).rglob("*") if path.is_file() and path.name != "checkpoint"]
        files = {path.relative_to(directory): path.read_bytes() for path in paths}
    return files, written


def make_damaged(root, *damaged, crashed=True, checkpoint=None):
    """A store of eight segments with zeros in some of them; its checkpoint, by default, knows nothing."""
    files, written = whole_store(crashed)
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    fields = {"index_msg_timestamp": written[-1].store_timestamp} | (checkpoint or {})
    write_checkpoint(root / "checkpoint", root / "checkpoint", **fields)
    for number in damaged:
        put(segment(root, number), SEGMENT // 2, bytes(2000))
    return written


def lost_and_behind(written, number):
    """The message in which the zeros in a segment begin, and those behind them."""
    start = SEGMENT * number + SEGMENT // 2
    lost = [each for each in written if each.physical_offset <= start][-1]
    return lost.physical_offset, [each for each in written if each.physical_offset >= start + 2000]


def first(diagnosis):
    cut = [each for each in diagnosis.findings if each.check == "next-start" and "does not start" not in each.found]
    assert len(cut) == 1
    finding = diagnosis.findings[0]
    assert (finding.check, finding.severity) == ("next-start", Severity.ERROR)
    return finding


def test_abort_before_damage_is_first_of_all_a_warning_not_to_start(tmp_path: Path) -> None:
    root = tmp_path / "store"
    written = make_damaged(root, 4)
    diagnosis = examine(root)
    finding = first(diagnosis)
    (lost, behind), end = lost_and_behind(written, 4), written[-1].physical_offset + written[-1].size
    assert finding.found == f"{WORDS} {end - lost:,} bytes, about {len(behind)} messages of T"
    assert {each.cut_topics for each in diagnosis.next_starts} == {("T",)}
    assert (finding.path, finding.physical_offset) == (str(segment(root, 4)), lost)
    assert "deletes 4 segments behind" in finding.meaning  # three with messages, and the one made in advance
    for outcome in diagnosis.next_starts:
        assert (outcome.start, outcome.end, outcome.cut_bytes) == (0, lost, end - lost)
        assert outcome.cut_messages == len(behind)
        assert outcome.deleted == tuple(str(segment(root, number)) for number in (5, 6, 7, 8))


def line_for(root: Path, *, gives: bool = False) -> str:
    old, new, kept = (shlex.quote(f"{root}{ending}") for ending in ("", "-rescued", "-damaged"))
    given = f"chown -Rh --reference={old} {new} && " if gives else ""
    return (
        f"rocketlens rescue {old} --out {new}; test -d {new}/commitlog && {given}mv -T {old} {kept} && "
        f"mv -T {new} {old} && echo {shlex.quote(f'done; to undo that: mv -T {old} {new} && mv -T {kept} {old}')}"
    )


@pytest.mark.parametrize("owned", [True, False])
def test_the_line_lets_what_was_made_take_the_place_of_what_was_there(tmp_path, owned, monkeypatch) -> None:
    root = tmp_path / "store"
    make_damaged(root, 4)
    if not owned:
        us = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
        account = "sudo " if not us else f"sudo -u {root.owner()} "
        assert first(examine(root)).remedy == f"{account}sh -c {shlex.quote(line_for(root))}"
    remedy = first(examine(root)).remedy
    assert "chown" not in remedy
    command = tmp_path / "bin" / "rocketlens"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\n[ "$*" = "$EXPECTED" ] && mkdir -p "$4/commitlog"; exit 4\n')
    (command.parent / "sudo").write_text('#!/bin/sh\n[ "$1" = -u ] && shift 2; exec "$@"\n')
    for path in command.parent.iterdir():
        path.chmod(0o755)
    expected = f"rescue {root} --out {root}-rescued"
    undo = ""
    before = sorted(tmp_path.rglob("*"))
    subprocess.run(["sh", "-c", remedy], env={"PATH": "/usr/bin:/bin"}, check=False)
    assert sorted(tmp_path.rglob("*")) == before, "the rescue failed"
    environment = {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "EXPECTED": expected}
    for _ in range(2 if owned else 1):  # a second time it does nothing, and says so
        said = subprocess.run(["sh", "-c", remedy], env=environment, check=False, capture_output=True, text=True)
        undo = said.stdout.partition("to undo that: ")[2] or undo
        assert [path.name for path in root.iterdir()] == ["commitlog"]
        assert segment(root.with_name("store-damaged"), 4).exists()
        assert not root.with_name("store-rescued").exists()
        environment["EXPECTED"] = "no rescue"
    subprocess.run(["sh", "-c", undo], check=True)
    assert segment(root, 4).exists()
    assert [path.name for path in root.with_name("store-rescued").iterdir()] == ["commitlog"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_what_the_owner_could_exchange_between_two_steps_is_moved_as_the_owner(tmp_path: Path) -> None:
    parent = tmp_path / "of its owner"
    root = parent / "store"
    make_damaged(root, 4)
    for path in (parent, root):
        os.chown(path, 65534, 65534)
    remedy = first(examine(root)).remedy
    assert remedy.startswith("setpriv --reuid=65534 --regid=65534 --clear-groups sh -c ")
    assert shlex.split(remedy)[-1] == line_for(root)
    os.chown(parent, 0, 0)
    assert first(examine(root)).remedy == line_for(root, gives=True)


def test_brokers_that_recover_differently_are_told_apart(tmp_path: Path) -> None:
    written = make_damaged(tmp_path, 6, crashed=False)
    diagnosis = examine(tmp_path)
    finding = first(diagnosis)
    assert [each.cut_messages for each in diagnosis.next_starts] == [0, 0, *[len(lost_and_behind(written, 6)[1])] * 2]
    said = "messages of T (brokers 5.0 to 5.3.0 and 4.x); a broker 5.5 or 5.3.1 to 5.4 cuts nothing"
    assert finding.found.endswith(said)
    assert finding.remedy.startswith("rocketlens rescue ")


def test_a_checkpoint_that_keeps_a_recovery_from_damage_is_not_to_be_removed(tmp_path: Path) -> None:
    make_damaged(tmp_path, 3)
    ahead = dict.fromkeys(("logics_msg_timestamp", "physic_msg_timestamp"), 2_000_000_000_000)
    write_checkpoint(tmp_path / "checkpoint", tmp_path / "checkpoint", logics_physical_offset=SEGMENT * 6, **ahead)
    diagnosis = examine(tmp_path)
    assert findings_of(diagnosis, "next-start") == []
    remedies = {finding.remedy for finding in findings_of(diagnosis, "checkpoint")}
    assert remedies
    assert all("leave it as it is" in remedy and "rm " not in remedy for remedy in remedies)


def test_abort_before_damage_is_never_nothing_to_do(tmp_path: Path) -> None:
    """By default a recovery starts behind the damage here; with an option of the broker's it does not."""
    root = tmp_path / "store"
    written = make_damaged(root)
    spoilt, _ = lost_and_behind(written, 3)
    put(segment(root, 3), spoilt - 3 * SEGMENT + 90, b"\xff\xff")
    late = dict.fromkeys(("logics_msg_timestamp", "physic_msg_timestamp"), written[-1].store_timestamp + 3000)
    write_checkpoint(root / "checkpoint", root / "checkpoint", logics_physical_offset=SEGMENT * 6, **late)
    diagnosis = examine(root)
    assert {each.cut_bytes for each in diagnosis.next_starts} == {0}
    (abort,) = findings_of(diagnosis, "liveness")
    assert abort.severity is Severity.WARNING
    assert "messageIndexSafe=true reads more, meets damage" in abort.meaning
    assert abort.remedy.startswith(f"rocketlens rescue {root} --out {root}-rescued; ")


def test_a_broker_that_runs_is_not_to_be_restarted_before_damage(tmp_path: Path) -> None:
    make_damaged(tmp_path, 7, crashed=False)
    (tmp_path / "abort").write_text("1")
    with held_lock(tmp_path):
        finding = first(examine(tmp_path))
    assert finding.found.startswith("do not restart the broker on this store: its recovery will cut ")
    assert finding.remedy.startswith(f"let it run; before it is stopped, copy {segment(tmp_path, 7)} from a slave")


def lagging_queues(root: Path) -> None:
    for path in (root / "consumequeue").rglob("0*0"):
        if path.is_file() and int(path.name) >= 3000:
            path.unlink()


def torn_end(root: Path) -> None:
    last = max(path for path in (root / "commitlog").iterdir() if any(path.read_bytes()))
    end = len(last.read_bytes().rstrip(b"\0"))
    put(last, end + 2, b"torn" * 30)


@pytest.mark.parametrize(("harm", "number"), [(lagging_queues, 4), (torn_end, 7)])
def test_no_other_advice_starts_a_broker_or_rebuilds_what_ends_at_the_damage(tmp_path, harm, number) -> None:
    root = tmp_path / "store"
    make_damaged(root, number)
    harm(root)
    diagnosis = examine(root)
    first(diagnosis)
    others = [finding for finding in diagnosis.findings if finding.check != "next-start"]
    assert {"liveness", "log-end"} <= {finding.check for finding in others}
    assert not [finding for finding in others if finding.remedy.startswith("nothing to do")]
    assert not [finding for finding in others if "rebuild" in finding.remedy or "compact" in finding.remedy]
    assert len(others) > 2
    (abort,) = findings_of(diagnosis, "liveness")
    assert (abort.severity, "first finding" in abort.remedy) == (Severity.WARNING, True)


def test_messages_that_a_start_would_take_out_of_a_queue_are_said_first_of_all(tmp_path: Path) -> None:
    root = tmp_path / "store"
    written = make_damaged(root, crashed=False)
    path = sorted((root / "consumequeue" / "T" / "1").iterdir())[-2]
    put(path, 60, bytes(20))
    number, queued = int(path.name) // 20 + 3, [each for each in written if each.queue_id == 1]
    finding = examine(root).findings[0]
    assert (finding.check, finding.severity, finding.path) == ("next-start", Severity.ERROR, str(path.parent))
    assert finding.found == (
        f"do not start a broker on this store: its recovery ends 1 queue at damage, and {len(queued) - number - 1} "
        "messages of T will be in none"
    )
    assert finding.remedy == f"rocketlens rebuild queues {root}"
    for outcome in examine(root).next_starts:  # the very last message is where the other queue ends: older ones have it
        passed_over = int(outcome.broker in CHECKED_BACK)
        assert [(each.end, each.lost) for each in outcome.queues] == [(number, len(queued) - number - 2 + passed_over)]


def test_where_a_rescue_is_advised_nothing_else_is_to_be_typed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_damaged(root, 1, crashed=False)  # no start meets it
    (root / "consumequeue" / "T" / "1" / "notes").write_text("x")
    (root / "config" / "topics.json").rename(root / "config" / "topics.json.bak")
    (root / "config" / "topics.json").write_text("{")
    (root / "checkpoint").write_bytes(b"")
    shutil.rmtree(root / "index")
    remedies = {each.remedy for each in examine(root).findings}
    assert line_for(root) in remedies
    assert not [each for each in remedies if each.startswith(("mkdir", "cp", "rm", "rocketlens rebuild"))]


@pytest.mark.parametrize(("is_misplaced", "crashed"), [(True, False), (False, True)])
def test_beside_a_last_segment_that_is_none_no_advice_forgets_any(tmp_path, g1_store, is_misplaced, crashed) -> None:
    root = tmp_path / "store"
    shutil.copytree(g1_store, root)
    if crashed:
        (root / "abort").touch()
    first_segment, last = sorted((root / "commitlog").iterdir())
    last.write_bytes(first_segment.read_bytes() if is_misplaced else b"junk" * (last.stat().st_size // 4))
    remedies = {each.remedy for each in examine(root).findings}
    assert remedies == ({RIGHT_NAMES, AFTER_NAMES} if is_misplaced else {line_for(root), MADE_ANEW})
    last.write_bytes((g1_store / "commitlog" / last.name).read_bytes())
    assert not {each.remedy for each in examine(root).findings} & remedies


def test_a_name_that_looks_like_an_option_is_typed_as_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_damaged(tmp_path / "-store")
    shutil.rmtree(tmp_path / "-store" / "index")
    monkeypatch.chdir(tmp_path)
    assert "rocketlens rebuild index ./-store" in {each.remedy for each in examine(Path("-store")).findings}


PARTS = (
    "commitlog", "commitlog/00000000000000000000", "commitlog/00000000000000016384", "consumequeue", "consumequeue/T",
    "consumequeue/T/0", "consumequeue/T/1/00000000000000000000", "index", "config", "config/topics.json",
    "config/consumerOffset.json", "checkpoint", "lock",
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good") / "store"
    make_store(root)[0].close()
    (root / "lock").write_text("lock")
    (root / "config" / "consumerOffset.json").write_text("{}")
    assert examine(root).findings == ()
    assert [name for name in PARTS if not (root / name).exists()] == []
    return root


@pytest.fixture
def store(good):
    """A copy of which the user who looks is the owner, as `as_user` becomes."""
    with reachable_directory() as directory:
        yield copied(good, directory)


def copied(good: Path, directory: Path) -> Path:
    root = directory / "store"
    shutil.copytree(good, root)
    for name in ("away", "mounted"):
        (directory / "disk" / name).mkdir(parents=True)
    if not os.geteuid():
        for path in directory.rglob("*"):
            os.chown(path, NOBODY, NOBODY)
    return root


def without_rights(path: Path) -> None:
    path.chmod(0)


def not_to_be_entered(path: Path) -> None:
    path.chmod(0o444 if path.is_dir() else 0)


def linked_to_nothing(path: Path) -> None:
    """Lie on another disk, which is not mounted."""
    path.rename(on_disk(path, "away"))
    path.symlink_to(on_disk(path, "mounted"))


def on_disk(path: Path, name: str) -> Path:
    root = next(each for each in path.parents if each.name == "store")
    return root.with_name("disk") / name / str(path.relative_to(root)).replace("/", "-")


FAULTS = (without_rights, not_to_be_entered, linked_to_nothing)


def follow(root: Path) -> list[str]:
    """Type what is printed, and mount what is to be mounted, until nothing is wrong; all that was printed."""
    told: list[str] = []
    for _ in range(5):
        findings = [(each.path, each.remedy) for each in checked(examine(root)).findings]
        if not findings:
            return told
        for path, remedy in dict.fromkeys(findings):
            if remedy.startswith("mount what holds "):
                on_disk(Path(path), "away").rename(on_disk(Path(path), "mounted"))
            elif remedy not in told or len(told) < len(findings):
                assert remedy.startswith("chmod ")
                subprocess.run(shlex.split(remedy), check=True)
            told.append(remedy)
    raise AssertionError(f"no end: {told}")


def checked(diagnosis):
    """A diagnosis, of which nothing is said but what cannot be opened if anything is."""
    if diagnosis.findings:
        assert {each.check for each in diagnosis.findings} == {"access"}
        assert diagnosis.next_starts == ()
        assert not diagnosis.is_clean
    return diagnosis


@settings(max_examples=3, deadline=None)
@given(faults=st.dictionaries(st.sampled_from(PARTS), st.sampled_from(FAULTS), min_size=1, max_size=3))
@example(faults={"commitlog/00000000000000016384": without_rights})
@example(faults={"commitlog/00000000000000016384": linked_to_nothing})
@example(faults={"commitlog": linked_to_nothing})
@example(faults={"consumequeue/T": not_to_be_entered, "index": linked_to_nothing, "lock": without_rights})
def test_the_owner_opens_what_is_closed_by_the_lines_that_are_printed(good, faults) -> None:
    with reachable_directory() as directory:
        root = copied(good, directory)
        for name in sorted(faults, reverse=True):  # what is in a directory before the directory
            faults[name](root / name)
        with as_user():
            assert follow(root)
            assert examine(root).findings == ()


@pytest.mark.parametrize(("name", "error", "remedy"), [
    ("checkpoint", PermissionError(13, "Permission denied"), FORBIDDEN),
    ("index", OSError(107, "Transport endpoint is not connected"), "mount what holds {path}: "),
])  # fmt: skip
def test_root_too_is_told_what_a_file_system_refuses(store, monkeypatch, name, error, remedy) -> None:
    """As one does that is mounted from elsewhere and does not trust it, or whose server is away."""
    path, opened = store / name, os.open

    def refuse(name: object, *arguments: object, **options: object) -> int:
        if name == path:
            raise type(error)(*error.args, str(path))
        return opened(name, *arguments, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "open", refuse)
    (finding,) = checked(examine(store)).findings
    assert finding.path == str(path)
    assert finding.remedy.startswith(remedy.format(path=path))


def test_a_rescue_leaves_no_message_out_that_it_may_only_not_read(store: Path, tmp_path: Path) -> None:
    segment = store / "commitlog" / f"{16384:020d}"
    linked_to_nothing(segment)
    outcome = rocketlens("rescue", store, "--out", tmp_path / "new")
    assert outcome.code == 3
    assert f"mount what holds {on_disk(segment, 'mounted')}" in outcome.errors
    assert not (tmp_path / "new").exists()


SOURCES = Path(__file__).parents[3]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    with make_store(tmp_path / "store", 400)[0] as writer:
        writer.append_inner_batch("B", [(b"one", {}), (b"two", {})])
    return writer.root


def moved_away(whole: Path, part: str) -> Path:
    place = whole.parent / "other disk" / f"of {part}"
    place.parent.mkdir(exist_ok=True)
    (whole / part).rename(place)
    (whole / part).symlink_to(place)
    return place


def harm(whole: Path, part: str) -> None:
    if part == "index":
        min((whole / "index").iterdir()).unlink()
    elif part == "checkpoint":
        (whole / "checkpoint").write_bytes(bytes(10))
    else:
        shutil.rmtree(whole / part / "T" / "0")


def lines(whole: Path) -> list[str]:
    findings = [each for each in examine(whole).findings if each.severity != "info"]
    return list(dict.fromkeys(each.remedy for each in findings))


def typed(line: str, tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    command = tmp_path / "bin" / "rocketlens"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketlens "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(SOURCES)}
    return subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("linked", "harmed"), [
    (("consumequeue", "batchconsumequeue", "index", "checkpoint"), ("consumequeue", "index")),
    *(
        pytest.param(linked.split(), harmed.split(), marks=pytest.mark.soak)
        for linked, harmed in (
            ("consumequeue batchconsumequeue", "consumequeue"), ("index checkpoint", "checkpoint"),
            ("consumequeue", "consumequeue"), ("batchconsumequeue", "consumequeue"), ("checkpoint", "checkpoint"),
            ("index", "index"), ("checkpoint", "index"), ("index", "consumequeue index"),
        )
    ),
])  # fmt: skip
def test_the_line_puts_what_it_makes_where_the_link_leads(whole, tmp_path, linked, harmed) -> None:
    places = {part: moved_away(whole, part) for part in linked}
    for part in harmed:
        harm(whole, part)
    (line,) = lines(whole)
    ended = typed(line, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert lines(whole) == []
    trees = [part for part in linked if part != "checkpoint"]  # one that is damaged is removed, as ever
    assert all((whole / part).resolve() == places[part] for part in trees)
    assert all((whole / part).exists() for part in linked)
    for part in {"consumequeue", "index"} & {*harmed}:
        place = (whole / part).resolve()
        assert list(place.parent.glob(f"{place.name}.bak-*"))
    assert not list(tmp_path.glob("store-rebuilt*"))


def test_of_a_mount_point_behind_a_link_it_is_said_that_no_command_helps(whole, monkeypatch) -> None:
    place = moved_away(whole, "consumequeue")
    harm(whole, "consumequeue")
    monkeypatch.setattr(_linked_parts, "is_mount_point", lambda path: path == place)
    (remedy,) = lines(whole)
    assert remedy.startswith(f"no command puts it there: {whole}/consumequeue is a link to {place}, a mount point")
