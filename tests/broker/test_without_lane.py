"""The folder of the fast lane may be deleted: what is left serves, and no option has to say so."""

import asyncio
import shutil
from pathlib import Path

import pytest

from broker.endpoint import Endpoint
from broker_harness import connected
from process import ROOT, serving_process
from protocol.codes import RequestCode

REQUESTS = (
    (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}),
    (
        RequestCode.QUERY_MESSAGE,
        {"topic": "TopicTest", "key": "key-0", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": "9" * 13},
    ),
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"}),
    (9999, {}),
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a server is made of, without the folder."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("broker", "protocol", "storage"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tree / "broker" / "lane")
    return tree


async def answers_of(port: int) -> list[tuple[int, bytes]]:
    """What a server answers to the requests, again and again as consumers do."""
    async with connected(Endpoint("127.0.0.1", port)) as client:
        found = [await client.ask(code, fields) for code, fields in REQUESTS * 3]
    # Addresses in routes differ with the port.
    return [(answer.code, answer.body.replace(b":%d" % port, b"")) for answer in found]


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.soak), "1"])
def test_without_the_folder_of_the_fast_lane_the_server_answers_the_same(
    workers: str, tree: Path, g1_store: Path, tmp_path: Path
) -> None:
    answers = []
    for root in (tree, ROOT):
        options = ("--workers", workers, "--state-dir", str(tmp_path / "state"))
        with serving_process(g1_store, tmp_path, *options, tree=root) as server:
            loaded = Path(f"/proc/{server.workers[0] if server.workers else server.process.pid}/maps").read_text()
            # The code that served lay where it should: its kernels were mapped from there.
            assert f"{root}/protocol/kernels/" in loaded
            answers.append(asyncio.run(answers_of(server.endpoints[0].port)))
            assert server.stop() == 0
    assert answers[0] == answers[1]
    assert {code for code, _ in answers[0]} >= {0, 3}
