"""A stand-in for S3 on the loopback address, and stores put into it."""

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import s3fs
from moto.server import ThreadedMotoServer

from faulty_proxy import FaultPlan, faulty_proxy


@dataclass(frozen=True)
class ObjectStore:
    """An object store with one bucket; `options` are what fsspec needs to know of it, as JSON."""

    options: str

    def put(self, directory: Path, name: str) -> str:
        """Copy a directory into the bucket; its URL."""
        system = s3fs.S3FileSystem(**json.loads(self.options))
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                system.pipe_file(f"stores/{name}/{path.relative_to(directory)}", path.read_bytes())
        return f"s3://stores/{name}"

    @contextlib.contextmanager
    def behind(self, plan: FaultPlan, *, asks_again: bool = False) -> Iterator["ObjectStore"]:
        """The same store behind a proxy that spoils answers; if the client itself never `asks_again`, we alone do."""
        options = json.loads(self.options)
        with faulty_proxy(options["endpoint_url"], plan) as endpoint:
            more = {} if asks_again else {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
            yield ObjectStore(json.dumps(options | {"endpoint_url": endpoint, **more}))


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run one."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    try:
        # What an earlier one in this process held is kept by moto.
        urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/reset", data=b"", timeout=60).close()
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "test", "secret": "test"}
        s3fs.S3FileSystem(**options).mkdir("stores")
        yield ObjectStore(json.dumps(options))
    finally:
        server.stop()
