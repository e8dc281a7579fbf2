"""A catalog of Iceberg behind REST, on the loopback address, as far as pyiceberg and Spark ask one for tables."""

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import uvicorn
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from interop.jars import cached, copy_jars
from needed_tools import tool

START_SECONDS = 60
ICEBERG = "1.11.0"
"""The newest whose servlet is published: it is among the tests of iceberg-core."""

ICEBERG_POM = Path(__file__).with_name("iceberg-rest-pom.xml")
ICEBERG_SERVER = Path(__file__).with_name("IcebergRestServer.java")


@dataclass
class RestCatalog:
    """Where it listens; `fault` is called with each commit that is to be made, and may answer it instead."""

    uri: str = ""
    fault: Callable[[Callable[[], None]], Response | None] = field(default=lambda _make: None)


@contextlib.contextmanager
def rest_catalog(directory, options=MappingProxyType({})):
    """Run one whose tables are known below a directory; `options` are those of the object store of its tables."""
    directory.mkdir(parents=True, exist_ok=True)
    known = SqlCatalog("rest", uri=f"sqlite:///{directory}/rest.db", warehouse=f"file://{directory}", **options)
    catalog = RestCatalog()
    server = uvicorn.Server(uvicorn.Config(_application(known, catalog), port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until = time.monotonic() + START_SECONDS
        while not server.started:
            assert time.monotonic() < until, "the catalog does not come up"
            time.sleep(0.01)
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        catalog.uri = f"http://{host}:{port}"
        yield catalog
    finally:
        server.should_exit = True
        thread.join()
        known.close()


@contextlib.contextmanager
def iceberg_rest_catalog(directory):
    """Run Iceberg's own, with tables of this machine's files; yields its URI. Raises ClientUnavailable."""
    options = (f"-Diceberg.version={ICEBERG}", "-DincludeScope=runtime")
    jars = cached(f"iceberg-rest-{ICEBERG}", lambda folder: copy_jars(ICEBERG_POM, folder, *options))
    directory.mkdir(parents=True, exist_ok=True)
    java = [tool("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    with (directory / "errors").open("wb") as errors:
        server = subprocess.Popen([*java, str(ICEBERG_SERVER), str(directory)], stdout=subprocess.PIPE, stderr=errors)
    with server.stdout:
        try:
            port = server.stdout.readline().strip()
            assert port.isdigit(), (directory / "errors").read_text()
            yield f"http://127.0.0.1:{port.decode()}"
        finally:
            server.kill()
            server.wait()


def _application(known: SqlCatalog, catalog: RestCatalog) -> Starlette:
    def config(_request):
        return JSONResponse({"defaults": {}, "overrides": {}})

    def namespaces(request, body):
        known.create_namespace_if_not_exists(tuple(body["namespace"]))
        return JSONResponse({"namespace": body["namespace"], "properties": {}})

    def namespace(request):
        return JSONResponse({"namespace": [request.path_params["namespace"]], "properties": {}})

    def create(request, body):
        wanted = CreateTableRequest.model_validate(body)
        table = known.create_table(
            (request.path_params["namespace"], wanted.name), wanted.table_schema, location=wanted.location,
            partition_spec=wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC, properties=wanted.properties,
        )  # fmt: skip
        return _answer(table)

    def load(request):
        return _answer(known.load_table(_identifier(request)))

    def commit(request, body):
        # The name is in the path; Spark does not repeat it.
        name = {"namespace": [request.path_params["namespace"]], "name": request.path_params["table"]}
        wanted = CommitTableRequest.model_validate({**body, "identifier": name})

        def make() -> None:
            known.commit_table(known.load_table(_identifier(request)), wanted.requirements, wanted.updates)

        spoiled = catalog.fault(make)
        if spoiled is not None:
            return spoiled
        make()
        return _answer(known.load_table(_identifier(request)))

    routes = [
        Route("/v1/config", config),
        Route("/v1/namespaces", _with_body(namespaces), methods=["POST"]),
        Route("/v1/namespaces/{namespace}", namespace),
        Route("/v1/namespaces/{namespace}/tables", _with_body(create), methods=["POST"]),
        Route("/v1/namespaces/{namespace}/tables/{table}", load),
        Route("/v1/namespaces/{namespace}/tables/{table}", _with_body(commit), methods=["POST"]),
    ]
    refusals = {404: (NoSuchTableError, NoSuchNamespaceError), 409: (TableAlreadyExistsError, CommitFailedException)}
    handlers = {error: _refusal(status) for status, errors in refusals.items() for error in errors}
    return Starlette(routes=routes, exception_handlers=handlers)


def _with_body(answer):
    async def read(request):
        return answer(request, json.loads(await request.body()))

    return read


def _identifier(request):
    return request.path_params["namespace"], request.path_params["table"]


def _answer(table):
    metadata = json.loads(table.metadata.model_dump_json())
    return JSONResponse({"metadata-location": table.metadata_location, "metadata": metadata, "config": {}})


def _refusal(status):
    def refuse(_request, error):
        said = {"message": str(error), "type": type(error).__name__, "code": status}
        return JSONResponse({"error": said}, status)

    return refuse
