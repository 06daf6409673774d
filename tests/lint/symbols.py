"""What the object files of core/ and server/ export and use."""

import subprocess


def symbols(build):
    """By exported symbol, the source that defines it; by source, the symbols that it uses."""
    defined, used = {}, {}
    for folder in ("core", "server"):
        for path in sorted((build / folder).rglob("*.o")):
            source = path.relative_to(build).with_suffix(".c")
            if not source.exists():  # an object of a file that is gone
                continue
            for line in subprocess.run(["nm", "-g", path], check=True, capture_output=True, text=True).stdout.splitlines():
                kind, name = line.split()[-2:]
                if kind in "Uw":
                    used.setdefault(source, set()).add(name)
                else:
                    defined[name] = source
    return defined, used
