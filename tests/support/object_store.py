"""Stand-ins for object stores and Hadoop on the loopback address: moto, fake-gcs-server, Hadoop's mini-cluster.

Late imports: these packages take seconds, and every process that collects tests has this module.
"""

import contextlib
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.server_process import free_port
from blocking_client import eventually
from interop.jars import build_go, cached, copy_jars
from needed_tools import tool
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.places.placed_run import read_manifest
from verifying import upload

BUSY, CUT, SHORT, LOST = "busy", "cut", "short", "lost"
FAULTS = (BUSY, CUT, SHORT)
MOST_ON_ONE = 2
SLOW_DOWN = b"<Error><Code>ServiceUnavailable</Code><Message>Busy.</Message></Error>"


class FaultPlan:
    """Which answers are spoiled: a `share` of them by chance, and all to paths that end with `never`.

    With `writes` those to writes are, too; the first write of a path that ends with `lost` is done and not answered.
    """

    def __init__(self, seed: int, share: float, never: str = "", *, writes: bool = False, lost: str = "") -> None:
        self.done: Counter[str] = Counter()
        self._seed, self._share, self._never = seed, share, never
        self._writes, self._lost = writes, lost
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def fault(self, method: str, path: str, byte_range: str) -> str:
        """The fault of the next answer, nothing for none; bytes are only lacking where a range was asked for."""
        with self._lock:
            if self._never and urlsplit(path).path.endswith(self._never) and method == "GET":
                return self._note(BUSY)
            inside = "/".join(path.split("/")[3:])  # without the names of the bucket and the store
            asked = f"{method} {inside} {byte_range}"
            self._asked[asked] += 1
            # By what is asked for, not by when: threads ask in any order.
            if self._lost and method == "PUT" and urlsplit(path).path.endswith(self._lost) and self._asked[asked] == 1:
                return self._note(LOST)
            chance = random.Random(f"{self._seed} {asked} {self._asked[asked]}")
            if chance.random() >= self._share or self._asked[asked] > MOST_ON_ONE:
                return ""
            if method not in ("GET", "HEAD"):
                return self._note(chance.choice((BUSY, LOST))) if self._writes else ""
            return self._note(chance.choice(FAULTS) if byte_range else BUSY)

    def _note(self, fault: str) -> str:
        self.done[fault] += 1
        return fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    plan: FaultPlan
    target: tuple[str, int]

    def handle_expect_100(self) -> bool:
        """Have a client that waits for leave to send its body get it at once, past the buffer."""
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.plan.fault(self.command, self.path, self.headers.get("Range", ""))
        if fault == BUSY:
            self._send(503, [], b"" if self.command == "HEAD" else SLOW_DOWN)
            return
        with contextlib.closing(http.client.HTTPConnection(*self.target)) as upstream:
            upstream.request(self.command, self.path, body, dict(self.headers.items()))
            answer = upstream.getresponse()
            data = answer.read()
        if fault == LOST:
            self.close_connection = True
            return
        left_out = ("connection", "transfer-encoding", "server", "date")
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in left_out]
        if fault == SHORT:
            data = data[: len(data) // 2]
        if fault == SHORT or self.command != "HEAD":
            headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            headers.append(("Content-Length", str(len(data))))
        self._send(answer.status, headers, data[: len(data) // 2] if fault == CUT else data)
        if fault == CUT:
            self.close_connection = True

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if "content-length" not in [name.lower() for name, _ in headers]:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        self.wfile.flush()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _hand_on  # noqa: N815 — names of http.server

    def log_message(self, format: str, *args: object) -> None: ...


@contextlib.contextmanager
def faulty_proxy(endpoint, plan):
    address = urlsplit(endpoint)
    fields = {"plan": plan, "target": (address.hostname, address.port)}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), fields))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


GOOGLE_SERVER = "github.com/fsouza/fake-gcs-server"
GOOGLE_VERSION = "v1.56.1"
HADOOP_POM = Path(__file__).with_name("hadoop-pom.xml")
START_SECONDS = 180

# gcsfs asks by gRPC for the kind of a bucket, which no emulator answers. Spark's workers have the variable from here.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"


def orphans(place):
    committed = read_manifest(place)
    named = {each.name for each in committed.parts} if committed else set()
    return set(place.objects("")) - named - {MANIFEST}


def create_in_any_case(place, name, data) -> None:
    """`OutputPlace.create` of a store that ignores If-None-Match."""
    with contextlib.closing(place.new_object(name)) as new:
        new.write(data)
        new.commit()


@dataclass(frozen=True)
class ObjectStore:
    options: str
    root: str = "s3://stores"

    def put(self, directory: Path, name: str) -> str:
        upload(directory, f"{self.root}/{name}", self.options)
        return f"{self.root}/{name}"

    @contextlib.contextmanager
    def behind(self, plan, *, asks_again=False):
        """The same store behind a proxy that spoils answers; if the client itself never `asks_again`, we alone do."""
        options = json.loads(self.options)
        with faulty_proxy(options["endpoint_url"], plan) as endpoint:
            more = {} if asks_again else {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
            yield ObjectStore(json.dumps(options | {"endpoint_url": endpoint, **more}))


@contextlib.contextmanager
def object_store():
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
def object_store_process(work):
    """Run one in a process of its own, for clients that hold Python's lock while they ask."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with _running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], work):
        eventually(lambda: _answers(f"{endpoint}/moto-api/data.json"), f"an object store at {endpoint}", START_SECONDS)
        yield _with_bucket(endpoint)


def _with_bucket(endpoint: str) -> ObjectStore:
    import s3fs

    options = {"endpoint_url": endpoint, "key": "key-of-the-tests", "secret": "secret-of-the-tests"}
    s3fs.S3FileSystem(**options).mkdir("stores")
    return ObjectStore(json.dumps(options))


@contextlib.contextmanager
def google_store(work):
    import gcsfs  # reads the variable above when it is loaded

    server = cached(f"fake-gcs-server-{GOOGLE_VERSION}", partial(build_go, f"{GOOGLE_SERVER}@{GOOGLE_VERSION}"))
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    options = ("-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory")
    with _running([str(server / "fake-gcs-server"), *options, "-external-url", endpoint], work):
        eventually(lambda: _answers(f"{endpoint}/storage/v1/b"), f"an object store at {endpoint}", START_SECONDS)
        known = {"endpoint_url": endpoint, "token": "anon", "project": "tests"}
        gcsfs.GCSFileSystem(**known).mkdir("stores")
        yield ObjectStore(json.dumps(known), "gs://stores")


@contextlib.contextmanager
def hadoop_store(work):
    import pyspark

    client = next((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar"))
    version = client.stem.removeprefix("hadoop-client-api-")
    jars = cached(f"hadoop-{version}", lambda folder: copy_jars(HADOOP_POM, folder, f"-Dhadoop.version={version}"))
    details = work / "details.json"
    options = ("-format", "-datanodes", "1", "-nnport", "0", "-httpport", "0", "-writeDetails", str(details))
    java = [tool("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    with _running([*java, "org.apache.hadoop.test.MiniDFSClusterManager", *options], work):
        eventually(lambda: details.exists() and details.read_text().endswith("}"), "a name node", START_SECONDS)
        yield ObjectStore("{}", f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}/stores")


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=60).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _running(command, work):
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
