"""The signatures of the transformations that worked on a node: `node.transformations`, as Optimum calls them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import Any

from torch.fx import GraphModule, Node

from .tensors import State, restore

MARKS = "foldback_transformations"  # in a node's meta, which copies of a graph share: sets that nobody changes in place


def marks_of(node: Node) -> frozenset[Any]:
    """Gives the node's marks, also where its module was unpickled."""
    module = node.graph.owning_module
    if isinstance(module, GraphModule):
        restore(module)
    marks: frozenset[Any] = node.meta.get(MARKS, frozenset())
    return marks


def set_marks(node: Node, marks: Iterable[Any]) -> None:
    """Gives the node these marks, which copies and pickles of its module keep."""
    marks_of(node)
    node.meta[MARKS] = frozenset(marks)
    module = node.graph.owning_module
    history = State.of(module).history if isinstance(module, GraphModule) else None
    if history is not None:
        history.note_marks(node)


class Transformations(MutableSet[Any]):
    """The marks of a node, now and later: what is added or removed here is added to the node or removed from it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __contains__(self, signature: object) -> bool:
        return signature in marks_of(self._node)

    def __iter__(self) -> Iterator[Any]:
        return iter(marks_of(self._node))

    def __len__(self) -> int:
        return len(marks_of(self._node))

    def add(self, value: Any) -> None:
        """Marks the node."""
        set_marks(self._node, marks_of(self._node) | {value})

    def discard(self, value: Any) -> None:
        """Takes the mark off the node, if it has it."""
        set_marks(self._node, marks_of(self._node) - {value})

    def __repr__(self) -> str:
        return repr(set(self))

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return set(it)  # of `|`, `&` and `-`

    def __getattr__(self, name: str) -> Any:
        """Any other method of a set."""
        copied = set(self)
        method = getattr(copied, name)
        if not name.endswith("update"):
            return method

        def update(*others: Iterable[Any]) -> None:
            method(*others)
            set_marks(self._node, copied)

        return update


def _read(node: Node) -> Transformations:
    marks_of(node)
    if MARKS not in node.meta:
        raise AttributeError("no transformation has marked this node")
    return Transformations(node)


def _clear(node: Node) -> None:
    set_marks(node, ())
    del node.meta[MARKS]


Node.transformations = property(_read, set_marks, _clear)  # type: ignore[attr-defined]
