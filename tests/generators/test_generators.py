"""The description of the API as others use it: linters find nothing, and the clients of three generators work as they come."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINARY = pathlib.Path(os.environ["FOLDBACK_BINARY"]).resolve()
NODE = pathlib.Path(os.environ["FOLDBACK_NODE_FOLDER"])
DOCUMENT = ROOT / "tests" / "fixtures" / "toy" / "graph.json"
SERVED = BINARY.parent / "generated" / "openapi.yaml"


def output_of(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **options)
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def node(program, *arguments, **options):
    return output_of(NODE / "node_modules" / ".bin" / program, *arguments, **options)


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    """The address of a service, and a token."""
    folder = tmp_path_factory.mktemp("service")
    made = output_of(BINARY, "token", "create", "--scope", "admin", "--name", "generators", "--data", folder / "data", "--json")
    process = subprocess.Popen(
        [BINARY, "serve", "--listen", "127.0.0.1:0", "--data", folder / "data"],
        stdout=subprocess.PIPE, stderr=(folder / "log").open("w"), text=True,
    )
    address = process.stdout.readline().split()[-1]
    yield address, json.loads(made)["token"]
    process.terminate()
    assert process.wait(30) == 0


@pytest.fixture(scope="session")
def description(service, tmp_path_factory):
    """What the service serves, as a file."""
    import urllib.request

    path = tmp_path_factory.mktemp("description") / "openapi.yaml"
    path.write_bytes(urllib.request.urlopen(service[0] + "/openapi.yaml").read())
    assert path.read_bytes() == SERVED.read_bytes()
    return path


# bundle.py gives the operations in openapi.yaml their 4xx responses, and uses the components for them. Redocly does not see
# what is used beside a $ref.
SKIPPED = {"served": [], "strict": ["no-unused-components"], "source": ["operation-4xx-response", "no-unused-components"]}


@pytest.mark.parametrize(("which", "skipped"), SKIPPED.items())
def test_redocly_finds_nothing(which, skipped, description):
    path = {"served": description, "strict": SERVED.with_suffix(".json"), "source": ROOT / "openapi.yaml"}[which]
    said = node("redocly", "lint", path, "--config", HERE / "redocly.yaml", "--format", "json",
                *(f"--skip-rule={rule}" for rule in skipped))
    found = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert found["problems"] == [] and found["totals"]["errors"] == found["totals"]["warnings"] == 0, found


def test_spectral_finds_nothing(description):
    said = node("spectral", "lint", description, "--ruleset", HERE / "spectral.yaml", "--fail-severity", "hint")
    assert "No results" in said, said[-4000:]


def test_a_comma_that_is_not_quoted_fails_the_build(tmp_path):
    text = (ROOT / "openapi.yaml").read_text()
    broken = re.sub(r"description: 'Where its bytes are, or ([^']*)'", r"description: Where its bytes are, or \1", text)
    assert broken != text
    (tmp_path / "openapi.yaml").write_text(broken)
    shutil.copytree(ROOT / "schema", tmp_path / "schema")
    done = subprocess.run(
        ["/usr/bin/python3", tmp_path / "schema" / "tools" / "bundle.py", tmp_path / "openapi.yaml", tmp_path / "out"],
        capture_output=True, text=True
    )
    assert done.returncode != 0 and "quote a text that has a comma" in done.stderr, done.stderr


def test_typescript(service, description, tmp_path):
    for name in ("calls.ts", "tsconfig.json"):
        shutil.copy(HERE / name, tmp_path / name)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").symlink_to(NODE / "node_modules")
    node("openapi-typescript", description, "-o", tmp_path / "api.d.ts")
    node("tsc", "-p", tmp_path)
    assert "ten calls" in output_of("node", tmp_path / "calls.js", *service, DOCUMENT.read_text())


def test_openapi_python_client(service, description, tmp_path):
    said = node_free("openapi-python-client", "generate", "--path", description, "--output-path", tmp_path / "client",
                     "--meta", "none")
    # What cannot be generated is told as a warning. Only the description itself is left out, as application/yaml.
    warned = re.findall(r"WARNING parsing (\S+ \S+)", said)
    assert warned == ["GET /openapi.yaml"] and "Unable to" not in said, said
    run_calls("openapi_python_client", tmp_path, service)


def test_openapi_generator(service, description, tmp_path):
    said = node_free("openapi-generator-cli", "generate", "-i", description, "-g", "python", "-o", tmp_path,
                     "--additional-properties=packageName=client")
    assert " ERROR " not in said, said
    run_calls("openapi_generator", tmp_path, service)


CLIENTS = ROOT / "clients"


def generated(language, description, folder):
    """With the options that the example names."""
    said = node_free("openapi-generator-cli", "generate", "-i", description, "-c",
                     CLIENTS / language / "generator.yaml", "-o", folder)
    assert " ERROR " not in said, said
    return folder


def test_go(service, description, tmp_path):
    """The example compiles, and does what it says. Without modules: what it needs is Debian's."""
    generated("go", description, tmp_path / "src" / "foldback")
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": f"{tmp_path}:/usr/share/gocode",
                   "GOCACHE": str(BINARY.parent / "go-cache")}
    output_of("go", "vet", CLIENTS / "go" / "example.go", env=environment)
    output_of("go", "build", "-o", tmp_path / "example", CLIENTS / "go" / "example.go", env=environment)
    assert output_of(tmp_path / "example", *service, DOCUMENT) == "applied: 1 undone: true\n"


# Of javax.annotation-api; the rest of what the client needs is in the generator's own archive.
GENERATED = """package javax.annotation;
public @interface Generated { String[] value(); String date() default ""; String comments() default ""; }
"""


def test_java(service, description, tmp_path):
    import openapi_generator_cli

    libraries = pathlib.Path(openapi_generator_cli.__file__).with_name("openapi-generator.jar")
    sources = generated("java", description, tmp_path / "client") / "src" / "main" / "java"
    (sources / "javax" / "annotation").mkdir(parents=True)
    (sources / "javax" / "annotation" / "Generated.java").write_text(GENERATED)
    output_of("javac", "-nowarn", "-d", tmp_path / "out", "-cp", libraries, *sources.rglob("*.java"),
              CLIENTS / "java" / "Example.java")
    said = output_of("java", "-cp", f"{tmp_path / 'out'}:{libraries}", "Example", *service, DOCUMENT)
    assert said == "applied: 1 undone: true\n"


def node_free(program, *arguments):
    """A program of the venv; generators put what they write in order with ruff, where it is, which is not what is tested."""
    return output_of(pathlib.Path(sys.executable).parent / program, *arguments)


def run_calls(name, folder, service):
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    assert "ten calls" in output_of(sys.executable, HERE / f"calls_{name}.py", *service, DOCUMENT, env=environment)
