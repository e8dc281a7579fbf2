"""The public face as a whole: what it names, what importing it costs, and that the two ways to ask are alike."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import rocketlens
from rocketlens.several_stores import SeveralStores
from rocketlens.url_store import UrlStore

ROOT = Path(__file__).parents[2]


def python(code: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)


def test_importing_it_loads_nothing_but_itself() -> None:
    code = "import sys; before = set(sys.modules); import rocketlens; print(*sorted(set(sys.modules) - before))"
    ended = python(code)
    loaded = [name for name in ended.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names]
    assert loaded == ["rocketlens"], ended.stderr


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


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'rocketlens' has no attribute 'nothing'"):
        rocketlens.nothing  # noqa: B018


def test_every_error_is_one_of_ours() -> None:
    kinds = [getattr(rocketlens, name) for name in rocketlens.__all__]
    errors = [each for each in kinds if isinstance(each, type) and issubclass(each, Exception)]
    assert len(errors) > 8
    assert [each for each in errors if not issubclass(each, rocketlens.Error | Warning)] == []


def signature_of(method: object) -> list[tuple[str, object, object]]:
    """Names, kinds and defaults of parameters, and what is returned without the awaiting."""
    parameters = inspect.signature(method).parameters.values()  # type: ignore[arg-type]
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
