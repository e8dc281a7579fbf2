"""Stand-ins for object stores and Hadoop on the loopback address, and stores put into them.

S3 is moto's, in this process. Google's is fake-gcs-server, which Go builds once. Hadoop's file system is that of its
own mini-cluster, of the version that pyspark has the client of, which Maven brings once: a name node and a data node.

Late imports: these packages take seconds, and every process that collects tests has this module.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.server_process import free_port
from faulty_proxy import FaultPlan, faulty_proxy
from interop.jars import build_go, cached, copy_jars
from interop.stages import wait_until
from needed_tools import tool
from spark_jobs.places.output_place import OutputPlace
from verifying import upload

GOOGLE_SERVER = "github.com/fsouza/fake-gcs-server"
GOOGLE_VERSION = "v1.56.1"
HADOOP_POM = Path(__file__).with_name("hadoop-pom.xml")
START_SECONDS = 180

# gcsfs asks by gRPC for the kind of a bucket, which no emulator answers. Spark's workers have the variable from here.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"


Fresh: TypeAlias = Callable[[], OutputPlace]
"""Gives empty places for output, one after the other."""


@dataclass(frozen=True)
class ObjectStore:
    """A place for stores below the URL `root`; `options` are what fsspec needs to know of it, as JSON."""

    options: str
    root: str = "s3://stores"

    def put(self, directory: Path, name: str) -> str:
        """Copy a directory to the place; its URL."""
        upload(directory, f"{self.root}/{name}", self.options)
        return f"{self.root}/{name}"

    @contextlib.contextmanager
    def behind(self, plan: FaultPlan, *, asks_again: bool = False) -> Iterator["ObjectStore"]:
        """The same store behind a proxy that spoils answers; if the client itself never `asks_again`, we alone do."""
        options = json.loads(self.options)
        with faulty_proxy(options["endpoint_url"], plan) as endpoint:
            more = {} if asks_again else {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
            yield ObjectStore(json.dumps(options | {"endpoint_url": endpoint, **more}))


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run one: moto's application of S3 alone, since its server asks for each request which service is meant."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        def log_request(self, *_: object) -> None:
            """pytest would keep a line of each."""

    for held in s3_backends.values():
        held.reset()  # what an earlier one in this process held
    server = make_server("127.0.0.1", 0, create_backend_app("s3"), threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield _with_bucket(f"http://127.0.0.1:{server.port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def object_store_process(work: Path) -> Iterator[ObjectStore]:
    """Run one in a process of its own, for clients that hold Python's lock while they ask."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with _running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], work):
        wait_until(lambda: _answers(f"{endpoint}/moto-api/data.json"), f"an object store at {endpoint}", START_SECONDS)
        yield _with_bucket(endpoint)


def _with_bucket(endpoint: str) -> ObjectStore:
    import s3fs

    options = {"endpoint_url": endpoint, "key": "key-of-the-tests", "secret": "secret-of-the-tests"}
    s3fs.S3FileSystem(**options).mkdir("stores")
    return ObjectStore(json.dumps(options))


@contextlib.contextmanager
def google_store(work: Path) -> Iterator[ObjectStore]:
    """Run one that speaks Google's protocol. Raises ClientUnavailable."""
    import gcsfs  # reads the variable above when it is loaded

    server = cached(
        f"fake-gcs-server-{GOOGLE_VERSION}", lambda folder: build_go(f"{GOOGLE_SERVER}@{GOOGLE_VERSION}", folder)
    )
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    options = ("-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory")
    with _running([str(server / "fake-gcs-server"), *options, "-external-url", endpoint], work):
        wait_until(lambda: _answers(f"{endpoint}/storage/v1/b"), f"an object store at {endpoint}", START_SECONDS)
        known = {"endpoint_url": endpoint, "token": "anon", "project": "tests"}
        gcsfs.GCSFileSystem(**known).mkdir("stores")
        yield ObjectStore(json.dumps(known), "gs://stores")


@contextlib.contextmanager
def hadoop_store(work: Path) -> Iterator[ObjectStore]:
    """Run Hadoop's mini-cluster. Raises ClientUnavailable."""
    import pyspark

    client = next((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar"))
    version = client.stem.removeprefix("hadoop-client-api-")
    jars = cached(f"hadoop-{version}", lambda folder: copy_jars(HADOOP_POM, folder, f"-Dhadoop.version={version}"))
    details = work / "details.json"
    options = ("-format", "-datanodes", "1", "-nnport", "0", "-httpport", "0", "-writeDetails", str(details))
    java = [tool("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    with _running([*java, "org.apache.hadoop.test.MiniDFSClusterManager", *options], work):
        wait_until(lambda: details.exists() and details.read_text().endswith("}"), "a name node", START_SECONDS)
        yield ObjectStore("{}", f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}/stores")


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=60).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _running(command: Sequence[str], work: Path) -> Iterator[None]:
    """A process that writes below a directory, until the end."""
    with (work / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=work, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
