"""A plugin of pytest. It writes lines of JSON to the pipe $FOLDBACK_TOLD: how many tests were collected, and, as soon as a test
has ended, [its name, its outcome, how it failed]. The tests of a file that has fixtures of its own run in one process, so that
each fixture is made once."""

import json
import os
import re

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        fixtures = [fixture for found in item._fixtureinfo.name2fixturedefs.values() for fixture in found]
        if any(fixture.scope == "module" for fixture in fixtures):
            item.add_marker(pytest.mark.xdist_group(item.location[0]))


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # of xdist's processes the first one hears of all tests
        config.pluginmanager.register(Told(), "told to tests/run")


class Told:
    def __init__(self):
        self.pipe = open(os.environ["FOLDBACK_TOLD"], "a", buffering=1)
        self.has_number = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        if ids and not self.has_number:
            self.has_number = True
            print(len(ids), file=self.pipe)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            name = re.sub(r"@[\w/]+\.py$", "", report.nodeid)  # without its group
            print(json.dumps([name, report.outcome, report.longreprtext if report.failed else ""]), file=self.pipe)

    def pytest_collectreport(self, report):
        if report.failed:
            print(json.dumps([report.nodeid, "failed", report.longreprtext]), file=self.pipe)
