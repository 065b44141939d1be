"""Work in the background of which only the newest request counts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Request, Answer = TypeVar("Request"), TypeVar("Answer")
Wanted = Callable[[], bool]


class Superseded(Exception):
    """A newer request has come; what is being computed is no longer wanted."""


class Latest(Generic[Request, Answer]):
    """One worker thread; a newer request replaces older ones, whether they wait or are being computed.

    compute: (request, wanted) -> answer; it asks `wanted()` from time to time and raises `Superseded` when that is False.
    done: called with the answer of a request that is still the newest. failed: called with the exception of such a request.
    """

    def __init__(
        self,
        compute: Callable[[Request, Wanted], Answer],
        done: Callable[[Request, Answer], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._compute, self._done, self._failed = compute, done, failed
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="panel")
        self._newest = 0

    def request(self, request: Request) -> Future[None]:
        """Ask for `request`; everything asked for before is forgotten."""
        self._newest += 1
        ticket = self._newest

        def wanted() -> bool:
            return ticket == self._newest

        future = self._pool.submit(self._work, request, wanted)
        future.add_done_callback(lambda found: self._report(found, wanted))
        return future

    def _work(self, request: Request, wanted: Wanted) -> None:
        if not wanted():
            raise Superseded
        answer = self._compute(request, wanted)
        if wanted():
            self._done(request, answer)

    def _report(self, future: Future[None], wanted: Wanted) -> None:
        if future.cancelled() or not wanted():
            return
        error = future.exception()
        if error is not None and not isinstance(error, Superseded):
            self._failed(error)

    def wait(self) -> None:
        """Return when everything that was asked for so far has been answered or dropped."""
        self._pool.submit(lambda: None).result()

    def close(self) -> None:
        """Stop the worker once it has finished what it is doing."""
        self._newest += 1
        self._pool.shutdown(wait=True, cancel_futures=True)
