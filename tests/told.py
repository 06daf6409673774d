"""A plugin of pytest: as soon as a test has ended, it writes [its name, its outcome, how it failed] as a line of JSON to the
pipe $FOLDBACK_TOLD."""

import json
import os


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # of xdist's processes the first one hears of all tests
        config.pluginmanager.register(Told(), "told to tests/run")


class Told:
    def __init__(self):
        self.pipe = open(os.environ["FOLDBACK_TOLD"], "a", buffering=1)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            print(json.dumps([report.nodeid, report.outcome, report.longreprtext if report.failed else ""]), file=self.pipe)

    def pytest_collectreport(self, report):
        if report.failed:
            print(json.dumps([report.nodeid, "failed", report.longreprtext]), file=self.pipe)
