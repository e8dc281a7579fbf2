"""What docs/spark.md says of PySpark is so: when one of these fails, a faster way to count may have opened."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

BUILDER = "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"
TEXTS = pa.array(["a topic"] * 100)
SHORTER: dict[str, Callable[[], Any]] = {
    "dictionary": TEXTS.dictionary_encode,
    "string_view": lambda: TEXTS.cast(pa.string_view()),
    "large_string": lambda: TEXTS.cast(pa.large_string()),
    "run_end_encoded": lambda: pa.RunEndEncodedArray.from_arrays([100], ["a topic"]),
    "null": lambda: pa.nulls(100),
}


def source_of(array: Any) -> type[DataSource]:
    """A format with one column of texts, which gives what it is made with."""

    class Given(DataSource):
        @classmethod
        def name(cls) -> str:
            return "given"

        def schema(self) -> str:
            return "topic string"

        def reader(self, schema: object) -> DataSourceReader:
            class Reader(DataSourceReader):
                def read(self, partition: object) -> "Iterator[pa.RecordBatch]":
                    yield pa.RecordBatch.from_arrays([array], names=["topic"])

            return Reader()

    return Given


def count(session: "SparkSession", array: Any) -> int:
    session.dataSource.register(source_of(array))
    return session.read.format("given").load().count()


def test_no_interface_names_to_a_data_source_which_columns_are_needed(session: "SparkSession") -> None:
    jvm: Any = session.sparkContext._jvm
    interfaces = [each.getSimpleName() for each in jvm.java.lang.Class.forName(BUILDER).getInterfaces()]
    assert interfaces == ["SupportsPushDownFilters"]


def test_texts_are_counted_as_plain_texts(session: "SparkSession") -> None:
    assert count(session, TEXTS) == 100


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if number == 0 else pytest.mark.soak) for number, kind in enumerate(SHORTER)]
)
def test_a_shorter_kind_of_texts_is_refused(session: "SparkSession", kind: str) -> None:
    with pytest.raises(Exception, match="DATA_SOURCE_RETURN_SCHEMA_MISMATCH"):
        count(session, SHORTER[kind]())
