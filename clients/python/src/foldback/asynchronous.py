"""The client for programs that wait for many things at once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from .client import Client
from .jobs import Job

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 16  # requests at a time
_END = object()


def _awaited(method: Callable[Concatenate[Client, P], T]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The method of Client, which a thread runs."""

    @functools.wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(functools.partial(method, self.client, *args, **kwargs))

    return call


def _iterated(
    method: Callable[Concatenate[Client, P], Iterator[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    """The method of Client that gives an iterator; a thread takes one step after the other."""

    @functools.wraps(method)
    def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._steps(functools.partial(method, self.client, *args, **kwargs))

    return call


class AsyncClient:
    """Client for asyncio: `async with AsyncClient(url) as client: run = await client.optimize(graph, passes)`.

    It takes the same arguments and has the same methods; lists are for `async for`. Threads send the requests, so that the loop
    goes on meanwhile."""

    def __init__(self, url: str, **options: Any) -> None:
        self.client = Client(url, **options)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="foldback")

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections, and does not wait for requests that threads are sending. `async with` does it at the end."""
        await self._run(self.client.close)
        self._threads.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _steps(self, make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        steps = await self._run(make)
        while (found := await self._run(lambda: next(steps, _END))) is not _END:
            yield found  # type: ignore[misc]

    async def wait(self, job: Job, timeout: float | None = None) -> Any:
        """What `Job.wait` gives."""
        return await self._run(functools.partial(job.wait, timeout))

    def events(self, job: Job | None = None, after: int | None = None, **query: Any) -> AsyncIterator[Any]:
        """What `Job.events` gives; without a job what `Client.events` gives, whose arguments it takes by name."""
        if job is not None:
            return self._steps(functools.partial(job.events, after))
        return self._steps(functools.partial(self.client.events, **query))

    put_graph = _awaited(Client.put_graph)
    put_archive = _awaited(Client.put_archive)
    put_onnx = _awaited(Client.put_onnx)
    archive = _awaited(Client.archive)
    version_archive = _awaited(Client.version_archive)
    alias_archive = _awaited(Client.alias_archive)
    checkpoint = _awaited(Client.checkpoint)
    graph = _awaited(Client.graph)
    picture = _awaited(Client.picture)
    code = _awaited(Client.code)
    diff = _awaited(Client.diff)
    optimize = _awaited(Client.optimize)
    run = _awaited(Client.run)
    edits = _awaited(Client.edits)
    reverse = _awaited(Client.reverse)
    rollback = _awaited(Client.rollback)
    record = _awaited(Client.record)
    submit = _awaited(Client.submit)
    optimize_many = _awaited(Client.optimize_many)
    job = _awaited(Client.job)
    evaluate = _awaited(Client.evaluate)
    compare = _awaited(Client.compare)
    bisect = _awaited(Client.bisect)
    missing = _awaited(Client.missing)
    upload = _awaited(Client.upload)
    bind = _awaited(Client.bind)
    weights = _awaited(Client.weights)
    download = _awaited(Client.download)
    materialize = _awaited(Client.materialize)
    graphs = _iterated(Client.graphs)
    delete_graph = _awaited(Client.delete_graph)
    nodes = _iterated(Client.nodes)
    tensors = _iterated(Client.tensors)
    lineage = _awaited(Client.lineage)
    runs = _iterated(Client.runs)
    reverse_graph = _awaited(Client.reverse_graph)
    pin = _awaited(Client.pin)
    pinned = _awaited(Client.pinned)
    unpin = _awaited(Client.unpin)
    models = _iterated(Client.models)
    model = _awaited(Client.model)
    versions = _iterated(Client.versions)
    version = _awaited(Client.version)
    put_version = _awaited(Client.put_version)
    delete_version = _awaited(Client.delete_version)
    aliases = _iterated(Client.aliases)
    alias = _awaited(Client.alias)
    deploy = _awaited(Client.deploy)
    delete_alias = _awaited(Client.delete_alias)
    history = _iterated(Client.history)
    rollback_alias = _awaited(Client.rollback_alias)
    rollback_plan = _awaited(Client.rollback_plan)
    alias_graph = _awaited(Client.alias_graph)
    alias_events = _iterated(Client.alias_events)
    passes = _awaited(Client.passes)
    pass_ = _awaited(Client.pass_)
    put_rule = _awaited(Client.put_rule)
    rules = _iterated(Client.rules)
    rule = _awaited(Client.rule)
    rule_versions = _iterated(Client.rule_versions)
    put_layout = _awaited(Client.put_layout)
    layouts = _iterated(Client.layouts)
    layout = _awaited(Client.layout)
    layout_versions = _iterated(Client.layout_versions)
    jobs = _iterated(Client.jobs)
    gc = _awaited(Client.gc)
    create_token = _awaited(Client.create_token)
    tokens = _iterated(Client.tokens)
    token = _awaited(Client.token)
    revoke_token = _awaited(Client.revoke_token)
    audit = _iterated(Client.audit)
    blobs = _iterated(Client.blobs)
