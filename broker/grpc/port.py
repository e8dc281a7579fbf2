"""The gRPC port: a server of grpcio in the process's event loop, bounded by the same limits as the broker's port.

asyncio serves it although a thread for each call would cost a third less CPU: each client of RocketMQ 5 keeps a stream
open as long as it lives, and waits in pulls, and either would hold a thread.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import grpc

from broker.config import CannotListen, TlsOptions
from broker.endpoint import Endpoint
from broker.grpc.calls import PACKAGE, CallRunner
from broker.limits import Limits
from broker.net.tls import load_context
from broker.security.watched_files import Watched
from protocol.errors import ConfigError

STREAMS_PER_CONNECTION: Final = 1024
METADATA_BYTES: Final = 16 * 1024
STOP_SECONDS: Final = 1.0

Services: TypeAlias = "Mapping[str, Mapping[str, grpc.RpcMethodHandler[Any, Any]]]"
"""Handlers by method, by service."""


class GrpcPort:
    """Serves calls on some addresses, with `certificates` by TLS alone; all methods are the event loop's."""

    def __init__(
        self,
        runner: CallRunner,
        services: Services,
        addresses: Sequence[Endpoint],
        limits: Limits,
        answer_bytes: int,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        """Answer no more than `answer_bytes` at once."""
        self._runner, self._services, self._addresses = runner, services, addresses
        self._limits, self._answer_bytes, self._credentials = limits, answer_bytes, credentials
        self._server: grpc.aio.Server | None = None

    @property
    def is_idle(self) -> bool:
        """Whether its threads have nothing to do."""
        return self._runner.threads.is_idle

    async def start(self) -> None:
        """Accept connections. Raises `CannotListen` when an address went to somebody else since it was bound."""
        self._server = grpc.aio.server(
            options=_options(self._limits, self._answer_bytes), maximum_concurrent_rpcs=self._limits.connections
        )
        for name, handlers in self._services.items():
            handler = grpc.method_handlers_generic_handler(f"{PACKAGE}.{name}", dict(handlers))
            self._server.add_generic_rpc_handlers((handler,))
        for address in self._addresses:
            try:
                if self._credentials is None:
                    self._server.add_insecure_port(str(address))
                else:
                    self._server.add_secure_port(str(address), self._credentials)
            except RuntimeError as error:
                raise CannotListen(f"cannot listen on {address} by gRPC") from error
        await self._server.start()

    def note_stopping(self) -> None:
        """End what stays open by itself; clients learn of it when the port closes."""
        self._runner.note_stopping()

    async def stop(self) -> None:
        """Finish what is being answered, for a second at most, and close."""
        if self._server is not None:
            await self._server.stop(STOP_SECONDS)
        self._runner.threads.close()


def _options(limits: Limits, answer_bytes: int) -> list[tuple[str, int]]:
    """The limits in the words of grpc-core."""
    return [
        ("grpc.so_reuseport", 1),  # the supervisor keeps the address for the next process
        ("grpc.max_receive_message_length", limits.body_bytes),
        ("grpc.max_send_message_length", answer_bytes),
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.max_connection_idle_ms", limits.idle_seconds * 1000),
        ("grpc.server_handshake_timeout_ms", limits.handshake_seconds * 1000),
        # A client that vanished is noticed, and may ask whether we are there.
        ("grpc.keepalive_time_ms", limits.idle_seconds * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ]


def watched_certificates(options: TlsOptions) -> Watched[grpc.ServerCertificateConfiguration]:
    """The certificate of these options, read anew when a file changes. Raises `ConfigError`."""
    files = (options.certificate, options.key, options.client_ca)
    return Watched("TLS certificate of gRPC", [path for path in files if path is not None], lambda: _load(options))


def credentials_of(
    certificates: Watched[grpc.ServerCertificateConfiguration], options: TlsOptions
) -> grpc.ServerCredentials:
    """What a port presents: always the certificate that was read last."""
    return grpc.dynamic_ssl_server_credentials(
        certificates.current,
        lambda: certificates.current,
        require_client_authentication=options.client_auth == "required",
    )


def _load(options: TlsOptions) -> grpc.ServerCertificateConfiguration:
    load_context(options)  # says what is wrong with which file
    assert options.certificate is not None
    try:
        chain = options.certificate.read_bytes()
        key = chain if options.key is None else options.key.read_bytes()
        authorities = None if options.client_ca is None else options.client_ca.read_bytes()
    except OSError as error:
        raise ConfigError(f"TLS: {error.filename} cannot be read: {error.strerror}") from None
    return grpc.ssl_server_certificate_configuration([(key, chain)], authorities)
