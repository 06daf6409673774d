"""How long the service needs after a burst of connections: 10 times as many as it takes, each of which asks for /livez and
leaves without waiting. The time runs from the moment when the last of them has left until a new client is answered.

    burst.py BINARY [ROUNDS]"""

import pathlib
import shutil
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))

import bursts
import conftest

LIMIT = 1024  # --max-connections


def measure(rounds, addresses, *options):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="foldback-burst-"))
    service = conftest.Service(folder / "data", "--access-log", "off", "--max-connections", str(LIMIT), *options).start()
    needed = []
    for _ in range(rounds):
        bursts.burst(service.port, 10 * LIMIT // len(addresses), addresses)
        needed.append(bursts.recovery(service.port))
        if needed[-1] is None:
            sys.exit("it does not answer any more")
        time.sleep(2)
    if service.stop() != 0:
        sys.exit("it did not stop as it should")
    shutil.rmtree(folder, ignore_errors=True)
    needed.sort()
    print(f"{len(addresses)} addresses, {' '.join(options) or 'defaults'}: {rounds} bursts of {10 * LIMIT}, recovered after "
          f"{needed[len(needed) // 2]:.2f} s (median), {needed[-1]:.2f} s (longest)", flush=True)


def main():
    conftest.binary = lambda: pathlib.Path(sys.argv[1]).resolve()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    measure(rounds, ["127.0.0.1"], "--max-connections-per-address", "0")
    measure(rounds, ["127.0.0.1", "127.0.0.2", "127.0.0.3"])


if __name__ == "__main__":
    main()
