"""The page through which faults.c takes its orders, and a service that runs with it."""

import ctypes
import errno
import mmap
import pathlib

import buckets
import databases
from conftest import Service, binary

LIBRARY = binary().parent / "tests" / "fault" / "faults.so"
FIELDS = ("is_armed", "calls", "first", "goes_on", "reason", "of_jobs", "counted", "failed", "allocated")

# Kinds of calls: the number in faults.c, and what they fail with.
CALLS = {
    "memory": (1, [errno.ENOMEM]),
    "write": (2, [errno.ENOSPC, errno.EIO]),
    "fsync": (4, [errno.EIO]),
    "rename": (8, [errno.EIO]),
    "open": (16, [errno.EMFILE, errno.EIO]),
    "read": (32, [errno.EIO]),
    "mmap": (64, [errno.ENOMEM]),
    "accept": (128, [errno.EMFILE, errno.ECONNABORTED]),
}
if buckets.IN_USE:
    del CALLS["rename"]  # what was uploaded becomes an object, and no file
if databases.IN_USE:
    CALLS |= {"send": (256, [errno.ECONNRESET, errno.EPIPE]), "receive": (512, [errno.ECONNRESET, errno.ETIMEDOUT])}


class Page(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in FIELDS]


class GuardedService(Service):
    """Asks with a token, once there is one."""

    bearer = {}

    def request(self, method, path, body=None, headers=None, **options):
        return super().request(method, path, body, {**self.bearer, **(headers or {})}, **options)


class FaultyService(GuardedService):
    """`faults` are off until `arm`."""

    def __init__(self, data, *options):
        self.page_file = pathlib.Path(data).parent / "faults"
        self.page_file.write_bytes(bytes(mmap.PAGESIZE))
        with open(self.page_file, "r+b") as file:
            self.page = Page.from_buffer(mmap.mmap(file.fileno(), mmap.PAGESIZE))
        environment = {"FOLDBACK_FAULTS": str(self.page_file), "LD_PRELOAD": str(LIBRARY)}
        super().__init__(data, *options, environment=environment)

    def arm(self, calls, first, goes_on=False, reason=0, of_jobs=False):
        """`first` more calls of that kind succeed; the next fails, or with `goes_on` all later ones do. Those of threads that
        do jobs count apart."""
        number, reasons = CALLS[calls]
        page = self.page
        page.calls, page.first, page.goes_on, page.reason = number, first, goes_on, reason or reasons[0]
        page.of_jobs = of_jobs
        page.counted = page.failed = 0
        page.is_armed = 1

    def disarm(self):
        """How many calls there were, and how many failed."""
        self.page.is_armed = 0
        return self.page.counted, self.page.failed
