"""Load on a port, as a program: connections that idle, that read or write a byte a second, that open and close.

`python tests/support/port_load.py PORT IDLE SLOW CHURN SECONDS`; says `ready` when all are open, ends by itself.
"""

import asyncio
import contextlib
import os
import socket
import struct
import sys
import time

from protocol.codes import RequestCode
from protocol.command import encode_request

RECORD = encode_request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "6581"}, opaque=1)
MANY = RECORD * 40_000
"""Answers to these are more than what sockets and the server hold for a client that does not read."""


async def write_slowly(port: int, stop: asyncio.Event) -> None:
    """Send one request a byte a second; come back when cut off."""
    while not stop.is_set():
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            for byte in RECORD:
                writer.write(bytes([byte]))
                await asyncio.sleep(1)
                if stop.is_set() or writer.is_closing():
                    break
            writer.transport.abort()


async def read_slowly(port: int, stop: asyncio.Event) -> None:
    """Ask for much and read a byte a second; come back when cut off."""
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            with contextlib.suppress(OSError, BrokenPipeError):
                await loop.sock_connect(connection, ("127.0.0.1", port))
                with contextlib.suppress(BlockingIOError):
                    connection.send(MANY)
                while not stop.is_set() and await loop.sock_recv(connection, 1):  # noqa: ASYNC110 - a byte a second
                    await asyncio.sleep(1)


async def churn(port: int, rate: int, stop: asyncio.Event) -> None:
    """Open and close so many connections a second, every third in the middle of a frame."""
    loop, number = asyncio.get_running_loop(), 0
    started = time.monotonic()
    while not stop.is_set():
        due = int((time.monotonic() - started) * rate)
        for _ in range(min(due - number, 50)):
            number += 1
            with socket.socket() as connection:
                connection.setblocking(False)
                with contextlib.suppress(OSError):
                    await loop.sock_connect(connection, ("127.0.0.1", port))
                    connection.send(RECORD if number % 3 else RECORD[:20])
                if number % 2:
                    # Reset instead of closed.
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # As from many machines: each at a time of its own.
        await asyncio.sleep(0.0005)
    print("opened and closed", number, flush=True)


async def main(port: int, idle: int, slow: int, rate: int, seconds: float) -> None:
    stop = asyncio.Event()
    kept = []
    for _ in range(idle):
        kept.append(await asyncio.open_connection("127.0.0.1", port))
        kept[-1][1].write(RECORD)
    tasks = [asyncio.create_task((read_slowly, write_slowly)[number % 2](port, stop)) for number in range(slow)]
    tasks.append(asyncio.create_task(churn(port, rate, stop)))
    print("ready", flush=True)
    await asyncio.sleep(seconds)
    stop.set()
    await asyncio.wait(tasks, timeout=60)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    # It stands for other machines, which take no processor from the server.
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(19)
    asyncio.run(main(*map(int, sys.argv[1:5]), float(sys.argv[5])))
