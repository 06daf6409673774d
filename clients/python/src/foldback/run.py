"""What the service says of a run."""

from __future__ import annotations

import html
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


class Run(dict[str, Any]):
    """A run as the service describes it. A notebook shows it as the table of its passes."""

    @property
    def refused(self) -> list[Refusal]:
        """What the passes left as it was, in their order."""
        return [
            Refusal(row["name"], item["reason"], tuple(item["nodes"]), item["detail"])
            for row in self.get("passes", [])
            for item in row.get("refused", [])
        ]

    def _repr_html_(self) -> str:
        passes = self.get("passes", [])
        rows = [_cells("td", [row["name"], row.get("applied", ""), _reasons(row.get("refused", []))]) for row in passes]
        named = [f"{key} {self[key]}" for key in ("kind", "id", "source", "result") if self.get(key)]
        head = _cells("th", ["pass", "applied", "refused"])
        return f"<p>{html.escape(', '.join(named))}</p><table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _cells(kind: str, texts: list[Any]) -> str:
    return "<tr>" + "".join(f"<{kind}>{html.escape(str(text))}</{kind}>" for text in texts) + "</tr>"


def _reasons(refused: list[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for item in refused:
        counts[item["reason"]] = counts.get(item["reason"], 0) + 1
    return ", ".join(reason if count == 1 else f"{reason} ×{count}" for reason, count in counts.items())
