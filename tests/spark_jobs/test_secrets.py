"""Keys of object stores and tokens of catalogs are in no error, log, report, journal or list of processes."""

import http.server
import json
import os
import subprocess
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

from command_line import rocketlens
from process import COMMAND, ROOT
from store_writer import StoreWriter

SECRETS = {name: f"hidden-{name}-7f3a/+= x" for name in ("secret", "token", "password")}


class Echo(http.server.BaseHTTPRequestHandler):
    """Refuses everything, and says back all that it was sent."""

    def answer(self) -> None:
        error = {"message": str(dict(self.headers)), "type": "NotAuthorized", "code": 401}
        body = json.dumps({"error": error}).encode()
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = answer  # noqa: N815 - the names of http.server

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def echo():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreWriter(tmp_path / "store") as writer:
        writer.append("T", b"body")
    return writer.root


def storage(echo: str) -> str:
    keys = {"key": SECRETS["password"], "secret": SECRETS["secret"], "token": SECRETS["token"]}
    return json.dumps({**keys, "client_kwargs": {"endpoint_url": echo}})


def cases(store: Path, folder: Path, echo: str) -> dict[str, list[str]]:
    """Commands that fail, each where somebody else words the error."""
    table = str(folder / "table")
    append = ["export", str(store), "--to", table, "--since-last", "--engine", "local"]
    token, password = SECRETS["token"], SECRETS["password"]
    return {
        "a catalog that refuses": [*append, "--format", "iceberg", "--catalog", "type=rest", "--catalog", f"uri={echo}",
                                   "--catalog", f"token={token}", "--catalog", f"credential=me:{SECRETS['secret']}"],
        "a catalog that is not there": [*append, "--format", "iceberg", "--catalog",
                                        f"uri=postgresql://me:{password}@127.0.0.1:1/x"],
        "an object store that refuses": ["export", str(store), "--to", "s3://bucket/table", "--since-last", "--format",
                                         "delta", "--engine", "local", "--out-storage-options", storage(echo)],
        "a store that refuses": ["verify", "s3://bucket/store", "--storage-options", storage(echo)],
        "an option that is none": ["verify", "memory://x", "--storage-options",
                                   json.dumps({"password": password, "nonsense": [1]})],
        "a url with a password": ["verify", f"ftp://me:{quote(password, safe='')}@127.0.0.1:1/store"],
    }  # fmt: skip


CASES = list(cases(Path(), Path(), ""))
WHOLE = "an object store that refuses"
"""The job of a process of its own: what is said after a command has ended counts too."""


def run_whole(arguments: list[str], temporary: Path) -> tuple[int, list[bytes]]:
    environment = {**os.environ, "TMPDIR": str(temporary), "AWS_MAX_ATTEMPTS": "1"}
    command = [*COMMAND, *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, env=environment, check=False, timeout=180)
    return ended.returncode, [ended.stdout, ended.stderr]


@pytest.mark.parametrize(
    ("case", "is_whole"),
    [
        (WHOLE, True),
        *((case, False) for case in CASES if case != WHOLE),
        *(pytest.param(case, True, marks=pytest.mark.soak) for case in CASES if case != WHOLE),
    ],
)
def test_no_secret_is_in_what_a_failing_job_says_and_leaves(
    case, is_whole, store, tmp_path, echo, monkeypatch, capfdbinary
) -> None:
    arguments, temporary = cases(store, tmp_path, echo)[case], tmp_path / "temporary"
    temporary.mkdir()
    if is_whole:
        code, said = run_whole(arguments, temporary)
    else:
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        monkeypatch.setattr("spark_jobs.places.remote_file.FIRST_PAUSE_SECONDS", 0)
        outcome = rocketlens(*arguments)
        code, said = outcome.code, [outcome.output, outcome.errors.encode(), *capfdbinary.readouterr()]
    assert code in (2, 3), said
    left = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for secret in SECRETS.values():
        for spelled in (secret, secret.split(" ")[0], json.dumps(secret)[1:-1], quote(secret, safe="")):
            assert not any(spelled.encode() in each for each in (*said, *left)), spelled
