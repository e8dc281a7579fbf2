"""What Spark's workers count is what this process counts."""

import pytest
from pyspark import SparkContext

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


def test_the_command_counts_on_a_master_what_it_counts_here(spark: SparkContext, writer: StoreWriter) -> None:
    kinds = [part for kind in ("topic", "queue", "tag", "host", "hour", "largest") for part in ("--by", kind)]
    there = rocketlens("space", writer.root, *kinds, "--json", "--master", "local[1]")
    here = rocketlens("space", writer.root, *kinds, "--json")
    assert (there.code, here.code) == (0, 0)
    assert there.messages[0]["messages"] == 149
    assert there.messages[:-1] == here.messages[:-1]  # the last one is the forecast, and the disk is never the same
    assert there.errors == here.errors
    by_conf = rocketlens("space", writer.root, *kinds, "--json", "--conf", "spark.task.maxFailures=1")
    assert by_conf.messages[:-1] == here.messages[:-1]
    assert "in 1 place hold no intact record" in there.errors
