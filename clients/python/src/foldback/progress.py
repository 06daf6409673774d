"""How far something large has come."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

Progress = bool | Callable[[int, int], None]  # called with the bytes (of a trace: the nodes) that are done, and all


class Meter:
    """Counts bytes or nodes, for a function of the caller's or else for a bar of tqdm, where that is installed and standard
    error is a terminal. The bar says how much time is left; it appears after `delay` seconds."""

    def __init__(
        self, what: str, total: int, progress: Progress, *, done: int = 0, unit: str = "B", delay: float = 0
    ) -> None:
        self._total, self._done = total, done
        self._tell = progress if callable(progress) else None
        self._bar = _bar(what, total, done, unit, delay) if progress is True else None
        if self._tell:
            self._tell(done, total)

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def at(self, done: int) -> None:
        """So many are done now; fewer than before when a part has to be sent again."""
        if self._bar is not None:
            self._bar.update(done - self._done)
        self._done = done
        if self._tell:
            self._tell(done, self._total)


def _bar(what: str, total: int, done: int, unit: str, delay: float) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(desc=what, total=total, initial=done, unit=unit, unit_scale=True, disable=None, leave=False, delay=delay)
