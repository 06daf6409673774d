"""Reads Prometheus' text format (version 0.0.4) and holds it to its rules, as `promtool check metrics` does."""

import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')


class Metric:
    def __init__(self, help_text):
        self.help, self.kind, self.samples = help_text, None, {}


def labels_of(text):
    found, at = {}, 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, f"no label: {text[at:]}"
        assert match[1] not in found, text
        found[match[1]], at = match[2], match.end()
    return found


def family_of(name, metrics):
    for suffix in ("_bucket", "_sum", "_count"):
        base = name.removesuffix(suffix)
        if base != name and base in metrics and metrics[base].kind == "histogram":
            return base
    return name


def parse(text):
    """{name: Metric}; a metric's samples are {(name, ((label, value), …)): number}."""
    assert text.endswith("\n") and "\r" not in text
    metrics, current = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, current, help_text = line.split(" ", 3)
            assert re.fullmatch(NAME, current) and current not in metrics and help_text, line
            metrics[current] = Metric(help_text)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and kind in ("counter", "gauge", "histogram") and not metrics[name].kind, line
            metrics[name].kind = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match[1], labels_of(match[2] or ""), float(match[3])
            assert family_of(name, metrics) == current, f"{line} is not with its family"
            key = (name, tuple(sorted(labels.items())))
            assert key not in metrics[current].samples, f"{line} is there twice"
            metrics[current].samples[key] = value
    for name, metric in metrics.items():
        check(name, metric)
    return metrics


def check(name, metric):
    assert metric.kind, f"{name} has no type"
    if metric.kind == "counter":
        assert name.endswith("_total") and all(value >= 0 for value in metric.samples.values()), name
    else:
        assert not name.endswith("_total"), name
    assert not name.endswith(("_milliseconds", "_ms", "_kilobytes")), f"{name}: base units only"
    if metric.kind == "histogram":
        check_histogram(name, metric.samples)


def check_histogram(name, samples):
    series = {}
    for (sample, labels), value in samples.items():
        plain = tuple(pair for pair in labels if pair[0] != "le")
        one = series.setdefault(plain, {"buckets": []})
        if sample == name + "_bucket":
            one["buckets"].append((float(dict(labels)["le"]), value))
        else:
            one[sample.removeprefix(name)] = value
    for labels, one in series.items():
        buckets = one["buckets"]
        assert buckets == sorted(buckets) and buckets[-1][0] == math.inf, (name, labels)
        assert [count for _, count in buckets] == sorted(count for _, count in buckets), (name, labels)
        assert one["_count"] == buckets[-1][1] and one["_sum"] >= 0, (name, labels)


def value(metrics, name, **labels):
    family = family_of(name, metrics)
    return metrics[family].samples.get((name, tuple(sorted(labels.items()))))
