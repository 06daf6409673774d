"""A bare Debian 12 that runs systemd, in a folder: what a package meets on a server. It has no network but its own loopback."""

import os
import pathlib
import shutil
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"


def output_of(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}"
    return done.stdout


def wait_for(condition, what, seconds=300):
    for _ in range(seconds * 10):
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"after {seconds} s: {what}")


def bare_root():
    """A folder with Debian's smallest system and systemd; made once."""
    command = f'mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv {SUITE} "$FOLDER/root" {MIRROR}'
    made = [ROOT / "tests" / "kept", "debian-12", pathlib.Path(__file__), "--", "sh", "-c", command]
    return pathlib.Path(subprocess.run(made, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()) / "root"


def children_of(process):
    return (pathlib.Path("/proc") / str(process) / "task" / str(process) / "children").read_text().split()


class Machine:
    def __init__(self, root, packages, log):
        """packages: a folder of packages, which it sees as /packages; their dependencies are fetched before it starts."""
        self.root = root
        shutil.copytree(packages, root / "packages", dirs_exist_ok=True)
        shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
        inside = ["chroot", root, "env", "DEBIAN_FRONTEND=noninteractive"]
        output_of(*inside, "apt-get", "update", "-qq")
        output_of(*inside, "sh", "-c", "apt-get install -qq --yes --no-install-recommends --download-only /packages/*.deb")
        options = ["--quiet", "--register=no", "--keep-unit", "--private-network", "--link-journal=no", "--resolv-conf=off"]
        with log.open("w") as out:
            self.process = subprocess.Popen(
                ["systemd-nspawn", *options, "--directory", root, "--boot"], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        try:
            self.init = wait_for(self._init, "systemd does not start")
            wait_for(self._is_up, "systemd does not come up")
        except AssertionError:
            self.stop()
            raise AssertionError(log.read_text()[-4000:]) from None

    def _init(self):
        if self.process.poll() is not None:
            raise AssertionError("systemd-nspawn ended")
        return next(iter(children_of(self.process.pid)), None)

    def _is_up(self):
        state = self.call("systemctl", "is-system-running").stdout.strip()
        return state in ("running", "degraded")

    def call(self, *command):
        """What came of a command in it."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"}
        return subprocess.run(
            ["/usr/bin/nsenter", "-t", self.init, "-m", "-u", "-i", "-p", "-n", "-r", "-w", *map(str, command)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )

    def output_of(self, *command):
        done = self.call(*command)
        assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}"
        return done.stdout

    def path(self, name):
        return self.root / name.lstrip("/")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def can_boot():
    """Root with the tools, where namespaces and groups of processes can be made: not in most containers."""
    if os.geteuid() or not all(map(shutil.which, ("systemd-nspawn", "mmdebstrap", "unshare"))):
        return False
    spaces = subprocess.run(["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "true"],
                            stderr=subprocess.DEVNULL)
    return spaces.returncode == 0 and os.access("/sys/fs/cgroup", os.W_OK)
