"""Numbered messages over plain TCP, both ways, two each second. A client opens a new connection 1 s after an error.

python over_tcp.py serve
python over_tcp.py ask ADDRESS
"""

import asyncio
import os
import struct
import sys

from observer import Observer

PORT = 9000
PAUSE = 0.5  # s between two messages
RETRY = 1.0  # s after a connection failed
CALM = 8.0  # s with messages both ways until the fault may start
SIZE = int(os.environ.get("MESSAGE_BYTES", "100"))
LENGTH = struct.Struct("!I")

observer = Observer()


async def send(writer: asyncio.StreamWriter) -> None:
    while True:
        message = observer.next_message(SIZE)
        writer.write(LENGTH.pack(len(message)) + message)
        observer.sent(message)
        await writer.drain()
        await asyncio.sleep(PAUSE)


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send and receive until the connection fails."""
    observer.peer_found()
    sending = asyncio.create_task(send(writer))
    try:
        while True:
            header = await reader.readexactly(LENGTH.size)
            message = await reader.readexactly(*LENGTH.unpack(header))
            observer.received(message)
    except (OSError, asyncio.IncompleteReadError) as error:
        observer.peer_lost(repr(error))
    finally:
        sending.cancel()
        writer.close()


async def serve() -> None:
    server = await asyncio.start_server(exchange, "0.0.0.0", PORT)
    await server.serve_forever()


async def calm() -> None:
    await asyncio.sleep(CALM)
    observer.fault_may_begin()


async def ask(address: str) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_connection(address, PORT)
        except OSError:
            await asyncio.sleep(RETRY)
            continue
        await exchange(reader, writer)
        await asyncio.sleep(RETRY)


async def run_client(address: str) -> None:
    await asyncio.gather(ask(address), calm())


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        asyncio.run(run_client(sys.argv[2]))
