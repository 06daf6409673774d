"""Puts the program foldback, and the libraries that it needs, into the wheel.

`pip wheel clients/python` in a clone of the repository builds the program with make. FOLDBACK_BUILD names the build folder
(default: build). FOLDBACK_WHEEL=pure makes a wheel for any platform, without the program; so does a source archive of this
folder alone.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[2]
# What every Linux with glibc has in the version that its other programs have: these never travel.
OF_GLIBC = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|anl|nsl|BrokenLocale|mvec))\.so\b.*")


def has_program() -> bool:
    wanted = os.environ.get("FOLDBACK_WHEEL", "")
    if wanted not in ("", "pure"):
        sys.exit(f"FOLDBACK_WHEEL is {wanted!r}; it can be pure, for a wheel without the program")
    return wanted != "pure" and (ROOT / "server" / "main.c").exists()


@functools.cache
def program() -> Path:
    """The program, linked to find its libraries in the folder lib beside it."""
    build = os.environ.get("FOLDBACK_BUILD", "build")
    made = f"{build}/wheel/foldback"
    jobs = [] if "-j" in os.environ.get("MAKEFLAGS", "") else [f"-j{os.cpu_count() or 1}"]
    try:
        subprocess.run(["make", "--no-print-directory", "-C", str(ROOT), *jobs, f"BUILD={build}", made], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(
            f"the program foldback cannot be built: {error}. `make deps` in {ROOT} installs what it needs; FOLDBACK_WHEEL=pure "
            "makes a wheel without the program"
        )
    return ROOT / made


def loaded(binary: Path) -> dict[str, str]:
    """By name the libraries that a program loads, when it starts or when it needs them, and where they are: of OpenBLAS the
    variant that the Makefile takes."""
    serial = ":".join(map(str, Path("/usr/lib").glob("*/openblas-serial")))
    named = [name.decode() for name in re.findall(rb"lib[\w.+-]+\.so\.\d+", binary.read_bytes())]
    environment = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_LIBRARY_PATH": serial, "LD_PRELOAD": ":".join(named)}
    listed = subprocess.run([str(binary)], env=environment, capture_output=True, text=True, check=True)
    rows = [line.split(" => ") for line in listed.stdout.splitlines() if " => " in line]
    found = {name.strip(): place.rpartition(" (")[0] or place for name, place in rows}
    return dict.fromkeys(named, "not found") | found


@functools.cache
def libraries() -> dict[str, Path]:
    """Those of them that travel with the program: all but glibc's."""
    found = {name: place for name, place in loaded(program()).items() if not OF_GLIBC.fullmatch(name)}
    missing = [name for name, place in found.items() if not place.startswith("/")]
    if missing:
        sys.exit(f"the program foldback needs {', '.join(missing)}, not found on this machine")
    return {name: Path(place).resolve() for name, place in found.items()}


@functools.cache
def oldest_glibc() -> tuple[int, ...]:
    """The glibc that the program and its libraries need at least."""
    versions = [(2, 17)]  # the oldest that manylinux_x_y names
    for file in (program(), *libraries().values()):
        listed = subprocess.run(["readelf", "-V", "-W", str(file)], capture_output=True, text=True, check=True)
        versions += [tuple(map(int, found.split("."))) for found in re.findall(r"Name: GLIBC_([0-9.]+)", listed.stdout)]
        if "GLIBC_ABI_DT_RELR" in listed.stdout:
            versions.append((2, 36))
    return max(versions)[:2]


def licence_of(library: Path) -> tuple[str, Path] | None:
    """The Debian package that a library is from, and the file with its licence."""
    for name in (str(library), str(library).removeprefix("/usr")):
        said = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True) if shutil.which("dpkg") else None
        if said is not None and said.returncode == 0:
            package = said.stdout.split(":")[0]
            file = Path("/usr/share/doc") / package / "copyright"
            return (package, file) if file.exists() else None
    return None


def pack(folder: Path) -> None:
    """Writes the program, its libraries and their licences to a folder, and looks whether it then needs anything else."""
    (folder / "lib").mkdir(parents=True)
    (folder / "licenses").mkdir()
    shutil.copy(program(), folder / "foldback")
    for name, place in libraries().items():
        shutil.copyfile(place, folder / "lib" / name)
        licence = licence_of(place)
        if licence is None:
            print(f"warning: no file with the licence of {name}", file=sys.stderr)
        else:
            shutil.copyfile(licence[1], folder / "licenses" / licence[0])
    here = str(folder.resolve())
    foreign = [
        f"{name} ({place})"
        for name, place in loaded(folder / "foldback").items()
        if not OF_GLIBC.fullmatch(name) and not str(Path(place).resolve()).startswith(here)
    ]
    if foreign:
        sys.exit(f"the program in the wheel would load libraries that the wheel does not have: {', '.join(foreign)}")


class BuildWithProgram(build_py):
    def run(self) -> None:
        super().run()
        folder = Path(self.build_lib) / "foldback" / "bin"
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier build
        if has_program() and not self.editable_mode:
            pack(folder)


class DistributionWithProgram(Distribution):
    def has_ext_modules(self) -> bool:
        return has_program()


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        if self.root_is_pure:
            return super().get_tag()
        major, minor = oldest_glibc()
        return "py3", "none", f"manylinux_{major}_{minor}_{platform.machine()}"


setup(cmdclass={"build_py": BuildWithProgram, "bdist_wheel": PlatformWheel}, distclass=DistributionWithProgram)
