"""Runs the binary as a person or a script does."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios

from conftest import binary

TIMEOUT = 600


def environment(**more):
    kept = {name: value for name, value in os.environ.items()
            if name not in ("FOLDBACK_DATA", "FOLDBACK_SERVER", "NO_COLOR", "TERM", "USER")}
    return {**kept, "TERM": "xterm", "LC_ALL": "C.UTF-8", **more}


class Result:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def json(self):
        assert self.status == 0 and self.out.endswith("\n"), self
        return json.loads(self.out)

    def __repr__(self):
        return f"<{self.status} out={self.out[:2000]!r} err={self.err[:2000]!r}>"


class CommandLine:
    """foldback in a folder; `place` is what every verb that needs a store is told: --data DIR, or --server URL."""

    def __init__(self, folder, *place):
        self.folder, self.place = folder, [str(word) for word in place]

    def path(self, name):
        return self.folder / name

    def put(self, name, document):
        self.path(name).write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
        return name

    def run(self, *words, input=b"", **variables):
        """Without a place."""
        done = subprocess.run(
            [binary(), *map(str, words)], cwd=self.folder, input=input, capture_output=True, timeout=TIMEOUT,
            env=environment(**variables),
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def __call__(self, verb, *words, **options):
        return self.run(verb, *words, *self.place, **options)

    def on_terminal(self, verb, *words, width=0, **variables):
        """With standard output, not standard error, on a terminal; of this width, or of one that does not say its width."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40 if width else 0, width, 0, 0))
        process = subprocess.Popen(
            [binary(), verb, *map(str, words), *self.place], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=theirs,
            stderr=subprocess.PIPE, env=environment(**variables),
        )
        os.close(theirs)
        out = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            out += piece
        os.close(ours)
        err = process.communicate(timeout=TIMEOUT)[1]
        return Result(process.returncode, out.decode().replace("\r\n", "\n"), err.decode())
