"""What the options of `rocketlens serve` become: the options of the server, which is not started."""

import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.config import RegisterOptions, ServeOptions, TlsOptions
from broker.endpoint import Endpoint
from broker.limits import Limits
from command_line import rocketlens
from rocketlens.cli import serving

STORE = Path("/store")
STOPPED = 7
"""The exit code of the server that is not started."""

OPTIONS: dict[str, dict[str, Any]] = {
    "--listen 5 --listen 0.0.0.0:6": {"listen": (Endpoint("127.0.0.1", 5), Endpoint("0.0.0.0", 6))},
    "--listen 127.0.0.1:5 --listen [::1]:6": {"listen": (Endpoint("127.0.0.1", 5), Endpoint("::1", 6))},
    "--advertise broker.example:10911": {"advertise": Endpoint("broker.example", 10911)},
    "--broker-name b-1": {"broker_name": "b-1"},
    "--cluster archive": {"cluster": "archive"},
    "--vip": {"vip": True},
    "--rewrite-store-host": {"rewrite_store_host": True},
    "--filter-support-retry": {"filter_support_retry": True},
    "--loop asyncio": {"loop": "asyncio"},
    "--fast-lane": {"fast_lane": True},
    "--no-fast-lane": {"fast_lane": False},
    "--workers 3": {"workers": 3},
    "--worker-timeout 2.5": {"worker_timeout_seconds": 2.5},
    "--frame-limit 70000": {"frame_limit": 70000},
    "--limit connections=9": {"limits": Limits(connections=9)},
    "--register 127.0.0.1:9876;[::1]:9877 --register-id 5000": {
        "register": RegisterOptions((Endpoint("127.0.0.1", 9876), Endpoint("::1", 9877)), broker_id=5000)
    },
    "--register-as broker": {"register": RegisterOptions(is_replica=False)},
    "--http 8080": {"http": Endpoint("127.0.0.1", 8080)},
    "--http 0.0.0.0:8080 --http-host a.example --http-host b.example": {
        "http": Endpoint("0.0.0.0", 8080),
        "http_hosts": ("a.example", "b.example"),
    },
    "--trusted-proxy 10.0.0.0/8 --trusted-proxy ::1": {
        "http_proxies": (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1"))
    },
    "--slow-query 5": {"slow_query_milliseconds": 5.0},
    "--log-format json": {},
    "--tls-mode permissive --tls-cert /c --tls-key /k --tls-key-password-file /p": {
        "tls": TlsOptions("permissive", Path("/c"), Path("/k"), Path("/p"))
    },
    "--tls-mode enforcing --tls-cert /c --tls-client-ca /a --tls-client-auth required": {
        "tls": TlsOptions("enforcing", Path("/c"), client_ca=Path("/a"), client_auth="required")
    },
    "--proxy-protocol-from 10.1.0.0/16": {"proxies": (ipaddress.ip_network("10.1.0.0/16"),)},
    "--acl /acl.yml": {"acl": Path("/acl.yml")},
    "--acl /acl.yml --acl-admin-has-all": {"acl": Path("/acl.yml"), "acl_admin_has_all": True},
    "--audit-log /audit": {"audit_log": Path("/audit")},
    "--commit-log /a,/b": {"commit_log_directories": (Path("/a"), Path("/b"))},
    "--index-slots 97 --index-entries 150": {"index_slots": 97, "index_entries": 150},
    "--state-dir /state": {"state_directory": Path("/state")},
    "--tier /tier": {"tier": Path("/tier")},
    "--mask keys --mask $.phone": {"masked": ("keys", "$.phone")},
}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[list[ServeOptions]]:
    """The options with which servers were to run."""
    found: list[list[ServeOptions]] = []

    def run(all_options: list[ServeOptions]) -> int:
        found.append(list(all_options))
        return STOPPED

    monkeypatch.setattr(serving, "run_server", run)
    monkeypatch.setattr("rocketlens.cli.serve.configure_logging", lambda log_format: None)
    monkeypatch.setattr("rocketlens.cli.serve._stop_quietly_while_starting", lambda: None)
    monkeypatch.setattr("rocketlens.cli.serve._allow_many_files", lambda: None)
    return found


@pytest.mark.parametrize("options", [*OPTIONS, ""])
def test_an_option_reaches_the_server(served: list[list[ServeOptions]], options: str) -> None:
    outcome = rocketlens("serve", STORE, *options.split())
    assert outcome.code == STOPPED, outcome.errors
    assert served == [[replace(ServeOptions(STORE), **OPTIONS.get(options, {}))]]


def test_rules_of_masks_come_from_files_too(served: list[list[ServeOptions]], tmp_path: Path) -> None:
    (tmp_path / "masks").write_text("tags\n$.mail\n")
    outcome = rocketlens("serve", STORE, "--mask", "keys", "--mask-file", tmp_path / "masks")
    assert outcome.code == STOPPED, outcome.errors
    assert served == [[ServeOptions(STORE, masked=("keys", "tags", "$.mail"))]]


def test_options_that_contradict_each_other_start_no_server(served: list[list[ServeOptions]]) -> None:
    for options, says in (
        ("--tls-cert /c", "TLS files have no effect"),
        ("--tls-mode enforcing", "needs a certificate"),
        ("--register 127.0.0.1:9876 --register-id 5", "expected 100 or more"),
        ("--index-slots 97", "give both or neither"),
        ("--state-dir /store/state", "lies inside the store"),
        ("--proxy-protocol-from 10.1.0.0/99", "is not an IP address or a network"),
        ("--listen store", "expected HOST:PORT"),
        ("--advertise a:0", "cannot connect to port 0"),
        ("--http 0.0.0.0:9180 --http-auth basic --acl /acl.yml", "keys would pass the network in plain text"),
        ("--grpc 0 --workers 0", "a process of its own"),
        ("--grpc 0 --tls-mode enforcing --tls-cert c.pem --tls-key-password-file p", "no key with a password"),
    ):
        outcome = rocketlens("serve", STORE, *options.split())
        assert (outcome.code, outcome.output) == (2, b""), options
        assert says in outcome.errors
    assert served == []
