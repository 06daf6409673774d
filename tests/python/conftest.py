"""The service of the API tests, for tests that need PyTorch."""

import importlib.util
import pathlib
import sys

import pytest
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parent / "api"))

from passes import Passes

specification = importlib.util.spec_from_file_location("api_conftest", HERE.parent / "api" / "conftest.py")
api = importlib.util.module_from_spec(specification)
specification.loader.exec_module(api)

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    service = api.Service(tmp_path_factory.mktemp("service") / "data").start()
    yield service
    status = service.stop()
    assert status == 0, service.log()[-4000:]


@pytest.fixture(scope="session")
def passes(service):
    return Passes(service)
