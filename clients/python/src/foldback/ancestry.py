"""Notes in `meta` where the new nodes of a graph are from, as PyTorch's own passes do: `from_node`, and what all nodes that
were replaced agree on. The service finds the same for the archives that it writes (core/analysis/ancestry.c)."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch.fx
from torch.fx.node import map_arg
from torch.fx.traceback import NodeSource, NodeSourceAction

MOST = 64  # ancestors of a node, and theirs, the nearest


def makers_of(passes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By node the pass of a run that made it, "MergeLinears 7c9f…": its name and signature. `passes` are the run's reports."""
    return {name: f"{report['name']} {report['signature']}" for report in passes for name in report.get("inserted", ())}


@dataclass
class _Was:
    """A node before the edits."""

    op: str
    target: Any
    reads: list[torch.fx.Node]


class Ancestry:
    """Made before a graph is edited; `note` writes to the new nodes what they were made of."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.was = {node: _Was(node.op, node.target, _reads(node)) for node in graph.nodes}
        self.found: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        self.claimed: set[torch.fx.Node] = set()  # gone, and a new node gives what they gave

    def note(self, makers: Mapping[str, str]) -> None:
        """Fills `meta` of the calls that are new, or call something else. `makers` are those of `makers_of`; without one the
        pass is "foldback"."""
        nodes = list(self.graph.nodes)
        self.gone = set(self.was) - set(nodes) | {node for node in nodes if self._is_changed(node)}
        self.found = {node: [node] if node in self.was else [] for node in nodes
                      if node.op.startswith("call_") and (node not in self.was or self._is_changed(node))}
        self.claimed = self.gone & self.found.keys()
        for node in nodes:
            self._pair(node)
        for node in reversed(nodes):
            if node in self.found:
                self._look_behind(node)
        for node in self.found:
            self._look_ahead(node)
        for node, described in [(node, self._described(node, makers.get(node.name, "foldback"))) for node in self.found]:
            for key, item in described.items():
                if item is None:
                    node.meta.pop(key, None)
                else:
                    node.meta[key] = item

    def _is_changed(self, node: torch.fx.Node) -> bool:
        was = self.was.get(node)
        return was is not None and (was.op, was.target) != (node.op, node.target)

    def _add(self, node: torch.fx.Node, ancestors: Iterable[torch.fx.Node]) -> None:
        known = self.found[node]
        for ancestor in ancestors:
            if ancestor not in known and len(known) < MOST:
                known.append(ancestor)

    def _pair(self, node: torch.fx.Node) -> None:
        """Pairs the new nodes that a node reads now with the nodes that it read in their places before."""
        was, now = self.was.get(node), _reads(node)
        if was is None or len(was.reads) != len(now):
            return
        for old, new in zip(was.reads, now, strict=True):
            if new in self.found and old is not new:
                self._add(new, [old])
                self.claimed |= {old} & self.gone

    def _look_behind(self, node: torch.fx.Node) -> None:
        """With what it replaces go the nodes before that which are gone. What only new nodes read is made of what they are."""
        known = self.found[node]
        is_inner = not known
        for ancestor in known:  # grows meanwhile
            if ancestor in self.gone:
                reads = self.was[ancestor].reads
                self._add(node, [read for read in reads if read in self.gone and read not in self.claimed])
        if is_inner:
            for user in node.users:
                self._add(node, self.found.get(user, ()))

    def _look_ahead(self, node: torch.fx.Node) -> None:
        """Or of what it reads, or else it was made for the old nodes that read it."""
        if self.found[node]:
            return
        for read in node.all_input_nodes:
            self._add(node, self.found.get(read, [read] if read in self.was and read.op != "get_attr" else []))
        if not self.found[node]:
            self._add(node, [user for user in node.users if user in self.was])

    def _described(self, node: torch.fx.Node, maker: str) -> dict[str, Any]:
        """The members for `meta`; None for one on which the ancestors do not agree."""
        metas = [ancestor.meta for ancestor in self.found[node] if self.was[ancestor].op.startswith("call_")]
        stacks = [list((meta.get("nn_module_stack") or {}).items()) for meta in metas]
        depth = 0
        while stacks and all(stack[depth : depth + 1] == stacks[0][depth : depth + 1] != [] for stack in stacks):
            depth += 1
        agreed = {key: next(iter(said), None) if len(said) == 1 else None
                  for key in ("stack_trace", "torch_fn") for said in [{meta.get(key) for meta in metas}]}
        return {**agreed, "nn_module_stack": dict(stacks[0][:depth]) if depth else None,
                "from_node": _nearest([self._source(ancestor, maker) for ancestor in self.found[node]])}

    def _source(self, ancestor: torch.fx.Node, maker: str) -> NodeSource:
        action = NodeSourceAction.REPLACE if ancestor in self.gone else NodeSourceAction.CREATE
        source = NodeSource(None, maker, action)  # with the node it would copy all its sources
        source.node_info = NodeSource.NodeInfo(ancestor.name, str(self.was[ancestor].target), id(ancestor.graph))
        source.from_node = ancestor.meta.get("from_node", [])
        return source


def _nearest(sources: list[NodeSource]) -> list[NodeSource]:
    """Copies of the first MOST, by levels: with all of them, what is edited again and again would have exponentially many."""
    found: list[NodeSource] = []
    waiting, left = deque((source, found) for source in sources), MOST
    while waiting and left:
        source, siblings = waiting.popleft()
        copied = copy.copy(source)
        copied.from_node, copied._dict = [], None
        siblings.append(copied)
        waiting.extend((one, copied.from_node) for one in source.from_node)
        left -= 1
    return found


def _reads(node: torch.fx.Node) -> list[torch.fx.Node]:
    found: list[torch.fx.Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return found
