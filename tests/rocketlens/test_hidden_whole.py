"""What a mask of a store hides whole is counted in a warning, by whatever method it is shown."""

import re
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

import rocketlens
from rocketlens import Store
from store_writer import START_TIMESTAMP, StoreWriter

ENDLESS = "a" * 60
SENTENCE = r"^{} hidden whole: a pattern or path of the mask did not come to an end there$"
ONE, TWO = SENTENCE.format("1 body or property value was"), SENTENCE.format("2 bodies or property values were")


def first_pending(store: Store) -> object:
    with store.pending() as pending:
        return list(pending.messages())


METHODS: dict[str, tuple[Callable[[Store], object], str]] = {
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
    "name", [pytest.param(name, marks=[] if name in IN_EACH_RUN else pytest.mark.soak) for name in METHODS]
)
def test_each_method_warns_once_of_what_was_hidden_whole_in_its_answer(root: Path, name: str) -> None:
    method, sentence = METHODS[name]
    with (
        rocketlens.open(root, mask=["/(a+)+b/"]) as store,
        pytest.warns(UserWarning, match="hidden whole") as warned,
    ):
        assert method(store)
    (warning,) = warned
    assert warning.category is UserWarning
    assert re.fullmatch(sentence, str(warning.message))
    assert warning.filename == __file__, "it names the line that asked"


@pytest.mark.parametrize("name", IN_EACH_RUN)
def test_nothing_is_warned_of_where_nothing_was(root: Path, name: str) -> None:
    with rocketlens.open(root, mask=["/secret/"]) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert METHODS[name][0](store)
