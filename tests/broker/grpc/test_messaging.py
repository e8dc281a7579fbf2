"""`MessagingService`: what the official proxy answers is answered here too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from grpc_cases import CASES, asked_of, recorded
from grpc_client import GrpcServing, serving_grpc


@pytest.fixture(scope="module")
def served(g1_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServing]:
    with serving_grpc(g1_store, folder=tmp_path_factory.mktemp("messaging")) as served:
        yield served


DIFFERENT = {
    "route-no-scheme": "BAD_REQUEST with a sentence; the proxy names a line of its source",
    "settings-pull": "consumers that pull are served",
    "heartbeat-pull": "consumers that pull are served",
    "pull": "served",
    "get-offset": "served",
    "query-offset": "served",
    "update-offset": "served",
}
"""Cases that are answered in another way than by the proxy, and why."""


def test_answers_are_those_of_the_official_proxy(served: GrpcServing) -> None:
    theirs = recorded()
    ours = {answer["name"]: answer for answer in asked_of(str(served.address))}
    assert (theirs.keys(), len(theirs)) == (ours.keys(), len(CASES))
    assert {name for name, answer in ours.items() if answer != theirs[name]} == DIFFERENT.keys()
