"""What systemd is to a service: the socket of sd_notify."""

import socket
import time


class Manager:
    """systemd, as far as a service sees it."""

    def __init__(self, folder, is_abstract=False):
        self.path = f"@{folder}" if is_abstract else str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path.replace("@", "\0"))

    def hears(self, word, seconds):
        """Whether the service says it within that time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                if word in self.socket.recv(1000):
                    return True
            except TimeoutError:
                return False
        return False

    def forget(self):
        self.socket.setblocking(False)
        try:
            while True:
                self.socket.recv(1000)
        except BlockingIOError:
            pass
