"""How a process of the supervisor becomes that of the gRPC port: a program of its own, so that others load no gRPC.

grpcio has threads, and may not be forked. So the new process becomes a Python of its own, which gets what it needs by
descriptors: sockets, the memory of the metrics, and a file in memory with everything else.
"""

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from broker.app import GrpcAddresses
from broker.config import ServeOptions
from storage.child_process import child_environment, python_command

CODE = "from rocketlens.cli.serving import serve_grpc; serve_grpc(int(sys.argv[1]))"


@dataclass(frozen=True)
class HandedOver:
    """What the process gets; `rows`, `ready` and `meetings` are descriptors."""

    all_options: Sequence[ServeOptions]
    log_format: str
    number: int
    rows: int
    ready: int
    meetings: tuple[int, ...]
    addresses: GrpcAddresses

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All that are handed over."""
        return self.rows, self.ready, *self.meetings


def become_process(handed: HandedOver) -> NoReturn:
    """Go on as the process of the gRPC port, in place of this one."""
    descriptor = os.memfd_create("rocketlens-grpc")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        pickle.dump(handed, file)
    for each in (descriptor, *handed.descriptors):
        os.set_inheritable(each, True)
    command = python_command(CODE, str(descriptor))
    # Without this grpcio would stop all its threads whenever a process of patterns is started.
    os.execve(command[0], command, {**child_environment(), "GRPC_ENABLE_FORK_SUPPORT": "0"})


def take_over(descriptor: int) -> HandedOver:
    """What the supervisor's process has handed over in the file of a descriptor."""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        handed: HandedOver = pickle.load(file)
    for each in handed.descriptors:
        os.set_inheritable(each, False)
    return handed
