"""Runs `patchtrace serve` with an ear on every socket: whatever would leave the machine ends it.

python audited.py FOLDER [options]
"""

from __future__ import annotations

import os
import socket
import sys

LOOPBACK = ("127.0.0.1", "::1", "localhost", "", None)
LEFT_THE_MACHINE = 77


def listen(event: str, arguments: tuple) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # a path: a socket of this machine
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0]
    else:
        return
    if host not in LOOPBACK:
        os.write(2, f"left the machine: {event} {arguments}\n".encode())
        os._exit(LEFT_THE_MACHINE)


if __name__ == "__main__":
    sys.addaudithook(listen)
    if sys.argv[1:] == ["check"]:  # that the ear hears
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))

    from patchtrace.cli.serve import serve

    sys.exit(serve.main(["--train", *sys.argv[1:], "--no-open"], prog_name="serve", standalone_mode=False))
