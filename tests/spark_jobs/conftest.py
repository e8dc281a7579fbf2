"""What tests of jobs share: a session with the data source, and servers that are started once."""

import itertools

import pytest

from loop_engine import run_jobs_here
from object_store import google_store, hadoop_store, object_store
from publishing import look_for_nobody
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.publish import store_lock


@pytest.fixture(scope="session")
def session(spark):
    from pyspark.sql import SparkSession

    from spark_jobs.read.data_source import register

    session = SparkSession.builder.getOrCreate()
    assert session.sparkContext is spark
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    register(session)
    return session


@pytest.fixture(scope="module", autouse=True)
def here():
    with pytest.MonkeyPatch.context() as patch:
        run_jobs_here(patch)
        yield


@pytest.fixture(scope="module", autouse=True)
def nobody_writes():
    """No process is looked for that writes to a store, which takes longer than most of a job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_lock, "find_writers", look_for_nobody)
        yield


@pytest.fixture(scope="module")
def objects():
    with object_store() as objects:
        yield objects


@pytest.fixture(params=["s3", "file"])
def new_place(request, tmp_path):
    numbers = itertools.count()
    if request.param == "file":
        return lambda: OutputPlace(f"file://{tmp_path}/out{next(numbers)}")
    objects = request.getfixturevalue("objects")
    return lambda: OutputPlace(f"s3://stores/{tmp_path.name}/{next(numbers)}", objects.options)


@pytest.fixture(scope="session")
def google(tmp_path_factory):
    with google_store(tmp_path_factory.mktemp("google")) as objects:
        yield objects


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory):
    with hadoop_store(tmp_path_factory.mktemp("hadoop")) as objects:
        yield objects
