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


def skip_without_a_tracer(item):
    """Skips what needs the tracer of transformers for torch.fx, which version 5 lacks; the client says so too."""
    try:
        return (yield)
    except Exception as error:
        said = str(error)
        is_lacking = isinstance(error, ImportError) and "transformers.utils" in said and "fx" in said
        is_lacking |= "transformers 5 has no tracer for torch.fx" in said
        if is_lacking and importlib.util.find_spec("transformers.utils.fx") is None:
            pytest.skip("transformers 5 has no tracer for torch.fx")
        raise


pytest_runtest_setup = pytest.hookimpl(wrapper=True)(skip_without_a_tracer)
pytest_runtest_call = pytest.hookimpl(wrapper=True)(skip_without_a_tracer)


@pytest.fixture(scope="session")
def client(service):
    with foldback.Client(service.url) as client:
        yield client
