"""The service of the API tests, and the canonicaliser of the tests with PyTorch, which knows nothing of the client."""

import importlib.util
import pathlib
import sys

import pytest

import foldback

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "python")]

specification = importlib.util.spec_from_file_location("pytorch_conftest", ROOT / "tests" / "python" / "conftest.py")
pytorch_conftest = importlib.util.module_from_spec(specification)
specification.loader.exec_module(pytorch_conftest)
service = pytorch_conftest.service


passes = pytorch_conftest.passes


@pytest.fixture(scope="session")
def client(service):
    with foldback.Client(service.url) as client:
        yield client
