"""What the tasks of either engine count is what this process counts."""

import pytest

from command_line import rocketlens
from store_writer import StoreWriter


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    writer = StoreWriter(tmp_path_factory.mktemp("spark-space"), segment_size=4096)
    for number in range(150):
        writer.append(f"T{number % 3}", b"body %d" % number, tags="AB"[number % 2], queue_id=number % 5)
    writer.overwrite(writer.written[20].physical_offset + 4, b"\0\0\0\0")
    writer.close()
    return writer


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", ["--engine local", "--master local[1]", "--conf spark.task.maxFailures=1"])
def test_the_command_counts_on_an_engine_what_it_counts_here(writer: StoreWriter, engine: str) -> None:
    kinds = [part for kind in ("topic", "queue", "tag", "host", "hour", "largest") for part in ("--by", kind)]
    there = rocketlens("space", writer.root, *kinds, "--json", *engine.split())
    here = rocketlens("space", writer.root, *kinds, "--json")
    assert (there.code, here.code) == (0, 0)
    assert there.messages[0]["messages"] == 149
    assert there.messages[:-1] == here.messages[:-1]  # the last one is the forecast, and the disk is never the same
    assert there.errors == here.errors
    assert "in 1 place hold no intact record" in there.errors
