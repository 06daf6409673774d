"""What the service says of runs, graphs and versions, as notebooks show it."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Refusal:
    """A place that a pass left as it was, and why."""

    transformation: str
    reason: str
    nodes: tuple[str, ...]
    detail: str

    def __str__(self) -> str:
        return f"{self.transformation} left {', '.join(self.nodes)}: {self.detail} ({self.reason})"


class Picture(str):
    """An SVG document, which a notebook draws."""

    def _repr_html_(self) -> str:
        return f'<div style="overflow: auto; max-height: 600px">{self}</div>'


class Drawn(dict[str, Any]):
    """What a notebook shows with its picture, if the client that gave it can still ask the service."""

    draw: Callable[[], Picture] | None = None

    def __getstate__(self) -> None:
        """Copies and pickles hold no connection, and so no picture."""

    def _picture(self) -> str:
        try:
            return self.draw()._repr_html_() if self.draw else ""
        except Exception:
            return ""


class Run(Drawn):
    """A run as the service describes it. A notebook shows what it changed, and the table of its passes."""

    @property
    def refused(self) -> list[Refusal]:
        """What the passes left as it was, in their order."""
        return [
            Refusal(row["name"], item["reason"], tuple(item["nodes"]), item["detail"])
            for row in self.get("passes", [])
            for item in row.get("refused", [])
        ]

    def _repr_html_(self) -> str:
        passes = [row for row in self.get("passes", []) if row.get("applied", 1) or row.get("refused") or row.get("detail")]
        rows = [[row["name"], row.get("applied", ""), _reasons(row.get("refused", []))] for row in passes]
        idle = len(self.get("passes", [])) - len(passes)
        if idle:
            rows.append([f"{idle} pass{'' if idle == 1 else 'es'} changed nothing", "", ""])
        named = [f"{key} {self[key]}" for key in ("kind", "id", "source", "result") if self.get(key)]
        nodes = self.get("nodes")
        counts = [f"nodes {nodes['before']} → {nodes['after']}"] if nodes else []
        return self._picture() + _table(", ".join([*self._requested(), *counts, *named]), ["pass", "applied", "refused"], rows)

    def _requested(self) -> list[str]:
        """inference + MergeLinears"""
        asked = [entry if isinstance(entry, str) else entry["name"] for entry in self.get("requested", [])]
        return [" + ".join(asked)] if asked else []


NODES = 50  # of a graph in a notebook


class Graph(Drawn):
    """A document. A notebook shows its picture and the table of its first nodes."""

    # Asks the service whether each run that made it began at a graph without recipes
    begins_at_original: Callable[[], bool] | None = None

    def _repr_html_(self) -> str:
        nodes = self.get("nodes", [])
        counts = [f"{len(self.get(key, []))} {key}" for key in ("nodes", "modules", "tensors")]
        rows = [[row["name"], row["op"], row["target"], *_type_of(row.get("meta", {}))] for row in nodes[:NODES]]
        more = f"; the first {NODES} nodes" if len(nodes) > NODES else ""
        named = f"graph {self.get('name', '')}: {', '.join(counts)}{more}"
        return self._picture() + _table(named, ["node", "op", "target", "shape", "dtype"], rows)


class Version(dict[str, Any]):
    """A version of a model. A notebook shows it as the table of what is known of it."""

    def _repr_html_(self) -> str:
        rows = [[key, item] for key, item in self.items() if key not in ("model", "version") and item is not None]
        return _table(f"model {self.get('model', '')}, version {self.get('version', '')}", ["", ""], rows)


def _type_of(meta: dict[str, Any]) -> list[str]:
    shape = meta.get("shape")
    return ["" if shape is None else "×".join(map(str, shape)) or "()", meta.get("dtype", "")]


def _table(title: str, head: list[str], rows: list[list[Any]]) -> str:
    body = "".join(_cells("td", row) for row in rows)
    return f"<p>{html.escape(title)}</p><table><thead>{_cells('th', head)}</thead><tbody>{body}</tbody></table>"


def _cells(kind: str, texts: Sequence[Any]) -> str:
    return "<tr>" + "".join(f"<{kind}>{html.escape(str(text))}</{kind}>" for text in texts) + "</tr>"


def _reasons(refused: list[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for item in refused:
        counts[item["reason"]] = counts.get(item["reason"], 0) + 1
    return ", ".join(reason if count == 1 else f"{reason} ×{count}" for reason, count in counts.items())
