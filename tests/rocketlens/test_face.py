"""The public face as a whole: what it names, shows and imports, what it keeps, and that two ways to ask are alike."""

import asyncio
import doctest
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile
from itertools import islice
from pathlib import Path

import pytest

import rocketlens
from command_line import rocketlens as command
from planted import plant_foreign, was_imported
from rocketlens.opening import open_message_store
from rocketlens.own_packages import PACKAGES
from rocketlens.several_stores import SeveralStores
from rocketlens.url_store import UrlStore
from storage.index.state_cache import FILE_NAME
from storage.log.commit_log import CommitLog
from storage.log.segment_end import EndSearch
from storage.store import snapshot
from store_writer import START_TIMESTAMP, StoreWriter

ROOT = Path(__file__).parents[2]


def python(code: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)


def test_opening_a_store_and_viewing_an_offset_loads_no_arrays_and_no_network(g1_store: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import rocketlens\n"
        f"assert rocketlens.open({str(g1_store)!r}).view(0)[0].physical_offset == 0\n"
        "loaded = set(sys.modules) - before\n"
        "assert 'rocketlens' in loaded\n"
        "print(*{'numpy', 'asyncio', 'ssl', 'socket', 'pyarrow', 'pyspark', 'click'} & loaded)"
    )
    ended = python(code)
    assert ended.stdout == "\n", ended.stderr


def test_every_name_is_there_and_in_order() -> None:
    assert sorted(rocketlens.__all__) == rocketlens.__all__
    assert len(rocketlens.__all__) > 20
    for name in rocketlens.__all__:
        assert getattr(rocketlens, name) is not None
        assert getattr(rocketlens, name).__doc__
    assert set(rocketlens.__all__) <= set(dir(rocketlens))


def signature_of(method: object) -> list[tuple[str, object, object]]:
    parameters = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters]


KINDS = (rocketlens.Store, SeveralStores, UrlStore, rocketlens.RemoteStore, rocketlens.AsyncRemoteStore)
METHODS = sorted(name for name in vars(rocketlens.Source) if not name.startswith("_") and name != "why_not")


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_is_asked_with_the_same_words_and_says_the_same_of_itself(kind: type) -> None:
    missing = {name for name in METHODS if not hasattr(kind, name)}
    assert missing == ({"look_up", "refresh"} if kind is rocketlens.AsyncRemoteStore else set())
    for name in set(METHODS) - missing:
        asked = getattr(kind, name)
        assert signature_of(asked) == signature_of(getattr(rocketlens.Source, name)), name
        is_other = name == "close" or (kind, name) == (rocketlens.RemoteStore, "pending")
        assert is_other or inspect.getdoc(asked) == inspect.getdoc(getattr(rocketlens.Source, name)), name
        assert asked.__qualname__ in (f"{kind.__name__}.{name}", f"Source.{name}")
    assert signature_of(rocketlens.connect) == signature_of(rocketlens.connect_async)


PAGE = Path(__file__).parents[2] / "docs" / "python.md"
ADDRESS = "127.0.0.1:10911"
METHODS_OF_DOCUMENTED = ("doctor", "find", "follow", "groups", "info", "life", "look_up", "pending", "pull", "query")
METHODS_OF_DOCUMENTED += ("queues", "search", "space")
METHODS_OF_DOCUMENTED += ("topics", "view")
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
MODULES = ("protocol.question", *(f"rocketlens.{name}" for name in ("answers", "arrow_reader", "looking_up", "remote")))
MODULES += ("rocketlens.searching", "rocketlens.source")


def run(test, server, path) -> int:
    for example in test.examples:
        example.source = example.source.replace(ADDRESS, str(server)).replace("/path/to/store", str(path))
    report: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert outcome.failed == 0, "".join(report)
    return outcome.attempted


@pytest.mark.parametrize("name", MODULES)
def test_what_docstrings_show_is_what_happens(name, g1_store, server) -> None:
    module = importlib.import_module(name)
    with rocketlens.open(g1_store) as store, rocketlens.connect(str(server)) as remote:
        names = {"store": store, "remote": remote, "path": g1_store, "rocketlens": rocketlens, "asyncio": asyncio}
        tests = doctest.DocTestFinder(exclude_empty=True).find(module, name, extraglobs=names)
        assert sum(run(each, server, g1_store) for each in tests) > 0


def test_what_the_page_shows_is_what_happens(g1_store, server) -> None:
    text = re.sub(r"^```.*$", "", PAGE.read_text(), flags=re.M)
    test = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert run(test, server, g1_store) > 20


COMMAND = Path(sys.executable).with_name("rocketlens")


def run_of_own_packages(*command, cwd, path="", code=2) -> "subprocess.CompletedProcess[str]":
    """Run something with a PYTHONPATH; a failure is one sentence on stderr."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    environment |= {"PYTHONPATH": path} if path else {}
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    return ended


def assert_named(ended: "subprocess.CompletedProcess[str]", path: Path) -> None:
    """The path in the way is named in one sentence, and nothing of it was run."""
    assert ended.stderr.startswith(f"RocketLens cannot run: {path} is in the way of its own package {path.stem} in ")
    assert ended.stderr.count("\n") == 1
    assert not was_imported(path.parent)


@pytest.mark.parametrize("name", ["protocol", pytest.param("storage", marks=pytest.mark.soak)])
def test_the_command_names_a_foreign_package_that_pythonpath_leads_to(name: str, tmp_path: Path) -> None:
    foreign = plant_foreign(tmp_path / "theirs", name)
    assert_named(run_of_own_packages(COMMAND, "--help", cwd=tmp_path, path=str(foreign)), foreign / name)


@pytest.mark.parametrize("name", ["storage", pytest.param("broker", marks=pytest.mark.soak)])
def test_the_command_names_a_foreign_package_of_the_folder_that_python_looks_in_first(name, tmp_path) -> None:
    plant_foreign(tmp_path, name)
    assert_named(run_of_own_packages(sys.executable, "-m", "rocketlens", "--help", cwd=tmp_path), tmp_path / name)


def test_the_command_itself_does_not_look_into_the_current_folder(tmp_path: Path) -> None:
    plant_foreign(tmp_path, *PACKAGES)
    assert "Usage:" in run_of_own_packages(COMMAND, "--help", cwd=tmp_path, code=0).stdout
    assert not was_imported(tmp_path)


def test_an_archive_that_is_imported_from_is_to_be_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ours.zip", "w") as archive:
        for source in (ROOT / "rocketlens").rglob("*.py"):
            archive.write(source, source.relative_to(ROOT))
    code = "import rocketlens; rocketlens.open"
    ended = run_of_own_packages(sys.executable, "-c", code, cwd=tmp_path, path=str(tmp_path / "ours.zip"), code=1)
    assert ended.stderr.splitlines()[-1] == (
        "ImportError: RocketLens cannot run: no Python loads compiled modules out of the archive "
        f"{tmp_path / 'ours.zip'}: install or unpack it"
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's state directory of our own, and stores of which all are large."""
    monkeypatch.setattr(snapshot, "MUCH", 0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def store(g1_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(g1_store, tmp_path / "store"))


def kept(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


def test_a_second_command_goes_on_where_the_first_found_the_logs_end(home, store, monkeypatch) -> None:
    starts: list[int] = []

    def run(search: EndSearch, known_end: int = 0) -> object:
        starts.append(known_end)
        return find(search, known_end)

    find = EndSearch.run
    monkeypatch.setattr(EndSearch, "run", run)
    first = command("find", store, "none", "--topic", "none", "--as", "key")
    (path,) = kept(home)
    assert path.name == FILE_NAME
    assert command("find", store, "none", "--topic", "none", "--as", "key") == first
    assert starts[0] == 0
    assert starts[-1] == CommitLog.open([store / "commitlog"]).end > 0


def test_what_was_kept_does_not_hide_what_came(home: Path, store: Path) -> None:
    open_message_store(store)
    (path,) = kept(home)
    segment = max((store / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.write(b"\xff" * 8)
    problems = open_message_store(store).problems
    assert problems
    path.unlink()
    assert open_message_store(store).problems == problems


@pytest.mark.parametrize("place", ["inside the store", "no directory", "no home"])
def test_a_store_is_opened_where_nothing_can_be_kept(home, store, monkeypatch, place) -> None:
    before = sorted(store.rglob("*"))
    if place == "inside the store":
        monkeypatch.setenv("XDG_STATE_HOME", str(store / "state"))
    elif place == "no directory":
        home.write_text("a file")
    else:
        monkeypatch.delenv("XDG_STATE_HOME")
        monkeypatch.setattr(Path, "home", _no_home)
    assert open_message_store(store).commit_log.end > 0
    assert sorted(store.rglob("*")) == before


def _no_home() -> Path:
    raise RuntimeError("there is no home")


ENDLESS = "a" * 60
SENTENCE = r"^{} hidden whole: a pattern or path of the mask did not come to an end there$"
ONE, TWO = SENTENCE.format("1 body or property value was"), SENTENCE.format("2 bodies or property values were")


def first_pending(store) -> object:
    with store.pending() as pending:
        return list(pending.messages())


METHODS_OF_HIDDEN_WHOLE = {
    "view": (lambda store: store.view("U0"), ONE),
    "view before the store is opened": (lambda store: store.view(0), ONE),
    "query": (lambda store: store.query("T", key="k"), TWO),
    "query of a key": (lambda store: store.query("T", unique_key="U1"), ONE),
    "find": (lambda store: store.find("k"), TWO),
    "pull": (lambda store: store.pull("T", 0, 0), TWO),
    "follow": (lambda store: list(islice(store.follow("T", {0: 0}), 1)), TWO),
    "search": (lambda store: list(store.search(topic="T", key="k")), TWO),
    "pieces of a search": (lambda store: list(store.search(topic="T").pieces()), TWO),
    "life": (lambda store: store.life("U0"), ONE),
    "pending": (first_pending, ONE),
}
IN_EACH_RUN = ("view before the store is opened", "find", "pull", "search", "life")
"""A pattern takes all its time at each message; `make soak` has the other methods."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    writer = StoreWriter(tmp_path_factory.mktemp("hidden") / "store")
    for number in range(2):
        writer.append("T", b"%s%d" % (ENDLESS.encode(), number), keys="k", unique_key=f"U{number}")
    waits = {"TIMER_OUT_MS": str(START_TIMESTAMP + 3_600_000), "REAL_TOPIC": "W", "p": ENDLESS}
    writer.append("rmq_sys_wheel_timer", properties=waits, unique_key="W")
    writer.close()
    return writer.root


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in IN_EACH_RUN else pytest.mark.soak) for name in METHODS_OF_HIDDEN_WHOLE],
)
def test_each_method_warns_once_of_what_was_hidden_whole_in_its_answer(root: Path, name: str) -> None:
    method, sentence = METHODS_OF_HIDDEN_WHOLE[name]
    with rocketlens.open(root, mask=["/(a+)+b/"]) as store, pytest.warns(UserWarning, match="hidden whole") as warned:
        assert method(store)
    (warning,) = warned
    assert warning.category is UserWarning
    assert re.fullmatch(sentence, str(warning.message))
    assert warning.filename == __file__, "it names the line that asked"
