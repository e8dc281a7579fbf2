"""Pages of metadata tables as clients since 5.4 ask for them."""

import json

import pytest

from broker.service import _metadata_page
from broker.service._metadata_page import page_of
from storage.layout.store_config import DataVersion

NAMES = [f"t{number:02}" for number in range(10)]
VERSION = DataVersion(counter=3, state_version=1, timestamp=99)
SEEN = json.dumps({"counter": 3, "stateVersion": 1, "timestamp": 99})


def test_a_client_that_names_no_maximum_gets_everything() -> None:
    assert page_of(NAMES, 0, None, None, VERSION) == NAMES


def test_a_client_that_saw_this_version_goes_on_where_it_says() -> None:
    assert page_of(NAMES, 4, 3, SEEN, VERSION) == NAMES[4:7]
    assert page_of(NAMES, 9, 3, SEEN, VERSION) == NAMES[9:]
    assert page_of(NAMES, 10, 3, SEEN, VERSION) == []


@pytest.mark.parametrize("seen", [None, "", " ", "{}", "[]", "nonsense", SEEN.replace("99", "98"), '{"counter":"x"}'])
def test_any_other_client_starts_at_the_beginning(seen: str | None) -> None:
    assert page_of(NAMES, 4, 3, seen, VERSION) == NAMES[:3]


def test_a_page_is_never_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_metadata_page, "PAGE_LIMIT", 4)
    assert page_of(NAMES, 0, 2**31 - 1, SEEN, VERSION) == NAMES[:4]
