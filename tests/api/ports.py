"""Ports for the servers that tests start beside foldback, and that must be told one."""

import pathlib
import random
import socket


def free_port():
    """Below those that the kernel gives to connections: nobody takes it before the server listens, or while it is down."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(1000):
        port = random.SystemRandom().randrange(min(10000, low // 2), low)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no port is free")
