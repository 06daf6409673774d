"""Many connections at once, each of which asks for /livez and leaves without waiting for the answer."""

import resource
import socket
import time

REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def allow_descriptors(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    assert hard == resource.RLIM_INFINITY or wanted <= hard, f"{wanted} descriptors are needed, {hard} allowed"
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def dial(port, address="127.0.0.1"):
    """A connection from that address that is on its way; the kernel finishes it when there is room in the backlog."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.bind((address, 0))
    try:
        connection.connect(("127.0.0.1", port))
    except BlockingIOError:
        pass
    return connection


def burst(port, count, addresses=("127.0.0.1",)):
    """`count` connections from each address."""
    allow_descriptors(count * len(addresses))
    made = [dial(port, address) for _ in range(count) for address in addresses]
    for connection in made:
        try:
            connection.send(REQUEST)
        except OSError:
            pass  # not connected yet, or ended by the service already
    for connection in made:
        connection.close()


def is_live(port, timeout):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.sendall(REQUEST)
            return b" 200 " in connection.recv(100)
    except OSError:
        return False


def recovery(port, patience=60):
    """Seconds until a new client is answered; None when none is within `patience`."""
    begun = time.monotonic()
    while time.monotonic() - begun < patience:
        if is_live(port, 10):
            return time.monotonic() - begun
    return None
