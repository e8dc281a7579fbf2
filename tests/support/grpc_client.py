"""The gRPC port of some stores on a thread of the test, and a client of it made of the messages' own descriptors."""

import contextlib
import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# grpcio would stop its threads at each fork, of which other tests of the process make many.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import grpc

from benchmarks.server_process import free_port
from broker.app import GrpcAddresses, StoreShare, build_servers
from broker.config import ServeOptions
from broker.endpoint import Endpoint
from broker.grpc.messages import admin_pb2, service_pb2
from broker.metrics.metrics_rows import MetricsRows
from broker.net.listeners import bind_listeners, close_listeners
from broker.server import Server
from broker_harness import LOOPBACK, in_a_thread
from golden_store import G1, GOLDEN, unpack
from storage.store.message_store import MessageStore
from storage.store.snapshot import StoreOptions

RECORDED = {
    "crashed": ("store-crashed", G1),
    "light": ("store", GOLDEN / "g2" / "g2-rocksdb-double"),
    "plain": ("store", G1),
    "queues": ("store", GOLDEN / "g2" / "g2-queues"),
    "rocksdb": ("store", GOLDEN / "g2" / "g2-rocksdb"),
    "tier": ("store", GOLDEN / "g2" / "g2-tier"),
}

SECONDS = 60
DATE_TIME = "20261127T193000Z"
FILES = (admin_pb2, service_pb2)


def signed(access_key: str, secret_key: str, date_time: str = DATE_TIME) -> dict[str, str]:
    signature = hmac.new(secret_key.encode(), date_time.encode(), hashlib.sha1).hexdigest()
    credential = f"Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": f"MQv2-HMAC-SHA1 {credential}", "x-mq-date-time": date_time}


class GrpcClient:
    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        options = [("grpc.max_receive_message_length", -1)]
        if credentials is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, credentials, options)
        self.metadata: dict[str, str] = {}

    def call(self, name, request=None, **fields):
        service, _, method = name.partition("/")
        module = next(file for file in FILES if service in file.DESCRIPTOR.services_by_name)
        found = module.DESCRIPTOR.services_by_name[service]
        described = found.methods_by_name[method]
        if request is None:
            request = getattr(module, described.input_type.name)(**fields)
        data = request if isinstance(request, bytes) else request.SerializeToString()
        make = self.channel.unary_stream if described.server_streaming else self.channel.unary_unary
        output = getattr(module, described.output_type.name)
        call = make(f"/{found.full_name}/{method}", request_serializer=bytes, response_deserializer=output.FromString)
        answer = call(data, timeout=SECONDS, metadata=list(self.metadata.items()), wait_for_ready=True)
        return list(answer) if described.server_streaming else answer

    def admin(self, method, request=None, **fields):
        return self.call(f"Admin/{method}", request, **fields)

    def messaging(self, method, request=None, **fields):
        self.metadata.setdefault("x-mq-client-id", "client@1")
        return self.call(f"MessagingService/{method}", request, **fields)


@dataclass
class GrpcServing:
    """A served port: its address, the stores and services behind it, and the address of the first broker's port."""

    address: Endpoint
    roots: Sequence[Path]
    broker: Endpoint
    servers: Sequence[Server]
    rows: MetricsRows


@contextlib.asynccontextmanager
async def _served(roots, folder, options):
    address = Endpoint("127.0.0.1", free_port())
    all_options = [
        ServeOptions(
            root, listen=(LOOPBACK,), broker_name=f"broker-{'abc'[number]}", state_directory=folder / f"state-{number}",
            grpc=address, **options,
        )
        for number, root in enumerate(roots)
    ]  # fmt: skip
    bound = [bind_listeners([LOOPBACK]) for _ in roots]
    stores = [MessageStore.open(root, StoreOptions(tier=options.get("tier"))) for root in roots]
    rows = MetricsRows(1, len(roots))
    brokers = tuple(tuple(each.endpoint for each in listeners) for listeners in bound)
    shares = [StoreShare(0, number) for number, _ in enumerate(roots)]
    addresses = GrpcAddresses((address,), brokers)
    servers = build_servers([each.check() for each in all_options], stores, shares, bound, [], rows, grpc=addresses)
    try:
        for server in servers:
            await server.start()
        yield GrpcServing(address, roots, brokers[0][0], servers, rows)
    finally:
        for server in servers:
            await server.stop()
        for listeners in bound:
            close_listeners(listeners)


@contextlib.contextmanager
def serving_grpc(*roots, folder, **options):
    with in_a_thread(lambda: _served(roots, folder, options)) as served:
        yield served


@contextlib.contextmanager
def serving_recorded(name, folder):
    archive, archives = RECORDED[name]
    root = unpack(archive, folder / "store", archives=archives)
    with serving_grpc(root, folder=folder, tier=root / "tiered" if name == "tier" else None) as served:
        yield served


@contextlib.contextmanager
def grpc_client(serving, credentials=None):
    client = GrpcClient(str(serving.address), credentials)
    try:
        yield client
    finally:
        client.channel.close()
