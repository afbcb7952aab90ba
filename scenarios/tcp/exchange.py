"""Exchanges messages over TCP, each over a connection of its own, without a timeout of its own.

python exchange.py serve ADDRESS
python exchange.py ask ADDRESS NUMBER     all at the same time; reports the fraction that is complete

The fraction is reported as `accuracy`, which sweeps compare.
"""

import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

PORT = 9000
MESSAGE = bytes(20_000)


def receive(connection: socket.socket) -> None:
    left = len(MESSAGE)
    while left:
        data = connection.recv(left)
        if not data:
            raise ConnectionError("the connection was closed")
        left -= len(data)


def answer(connection: socket.socket) -> None:
    with connection:
        receive(connection)
        connection.sendall(MESSAGE)


def serve(address: str) -> None:
    with socket.create_server((address, PORT), backlog=1000) as server, ThreadPoolExecutor(1000) as pool:
        while True:
            pool.submit(answer, server.accept()[0])


def exchange(address: str) -> str:
    """How an exchange ended."""
    started = time.monotonic()
    done = "could not connect"
    try:
        with socket.create_connection((address, PORT)) as connection:
            done = "lost its connection"
            connection.sendall(MESSAGE)
            receive(connection)
        done = "complete"
    except OSError as error:
        done = f"{done}: {error.strerror or error}"
    return f"{done}, after {time.monotonic() - started:.1f} s"


def ask(address: str, number: int) -> None:
    complete = 0
    with ThreadPoolExecutor(number) as pool:
        for future in as_completed([pool.submit(exchange, address) for _ in range(number)]):
            result = future.result()
            complete += result.startswith("complete")
            print(result)
            print(f"::edgebed {json.dumps({'accuracy': complete / number, 'scope': 'own'})}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ask(sys.argv[2], int(sys.argv[3]))
