"""Writes a software bill of materials (CycloneDX 1.5, JSON) of a binary of foldback to standard output.

    deploy/sbom.py build/foldback VERSION

Its parts are the Debian packages that own the shared libraries which it names, and which the dynamic linker gives to it when it
starts or when it needs them, with their versions, licences and SHA-256 digests. The same binary on the same packages gives the
same bytes.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid


def output_of(*command, **variables):
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | variables).stdout


def libraries_of(binary):
    """The files of its shared libraries, links resolved."""
    named = [name.decode() for name in re.findall(rb"lib[\w.+-]+\.so\.\d+", binary.read_bytes())]
    linked = output_of(str(binary.resolve()), LD_TRACE_LOADED_OBJECTS="1", LD_PRELOAD=":".join(named))
    found = dict(re.findall(r"(\S+) => (/\S+)", linked))
    if missing := [name for name in named if name not in found]:
        raise SystemExit(f"sbom.py: not found on this machine: {', '.join(missing)}")
    return sorted({pathlib.Path(path).resolve() for path in found.values()})


def package_of(library):
    """dpkg knows a library below /usr/lib by the one or by the other of its two paths."""
    path = str(library)
    for known in (path, path.removeprefix("/usr")):
        answer = subprocess.run(["dpkg-query", "-S", known], capture_output=True, text=True)
        if answer.returncode == 0:
            return answer.stdout.rsplit(": ", 1)[0]
    raise SystemExit(f"sbom.py: no package owns {library}")


def licences_of(package):
    """The short names in the package's machine-readable copyright file, if it has one."""
    path = pathlib.Path("/usr/share/doc") / package.split(":")[0] / "copyright"
    if not path.exists():
        return []
    names = re.findall(r"^License:[ \t]*(\S.*)$", path.read_text(errors="replace"), re.M)
    return [{"license": {"name": name}} for name in sorted({name.strip() for name in names})]


def digest_of(path):
    return {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}


def component_of(package, libraries):
    version, architecture, homepage = output_of(
        "dpkg-query", "-W", "-f", "${Version}\n${Architecture}\n${Homepage}", package
    ).split("\n")
    name = package.split(":")[0]
    reference = f"pkg:deb/debian/{name}@{version}?arch={architecture}&distro=debian-12"
    component = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
        "licenses": licences_of(package),
        "components": [
            {"type": "file", "name": str(library), "hashes": [digest_of(library)]} for library in libraries
        ],
    }
    if homepage:
        component["externalReferences"] = [{"type": "website", "url": homepage}]
    return component


def bill_of(binary, version):
    owned = {}
    for library in libraries_of(binary):
        owned.setdefault(package_of(library), []).append(library)
    components = [component_of(package, libraries) for package, libraries in sorted(owned.items())]
    product = {
        "type": "application",
        "bom-ref": f"foldback@{version}",
        "name": "foldback",
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "hashes": [digest_of(binary)],
    }
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": product},
        "components": components,
        "dependencies": [
            {"ref": product["bom-ref"], "dependsOn": [component["bom-ref"] for component in components]}
        ],
    }
    bill["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True)).urn
    return bill


def main():
    if len(sys.argv) != 3 or not os.access(sys.argv[1], os.X_OK):
        raise SystemExit(__doc__)
    json.dump(bill_of(pathlib.Path(sys.argv[1]), sys.argv[2]), sys.stdout, indent=2)
    print()


main()
