"""A BatchGenerator under many asyncio tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._batch import BatchGenerator, TokenResponse


class _Request:
    """One task's request, from its joining to its last response."""

    def __init__(self, ids: Any, options: dict[str, Any]) -> None:
        self.ids, self.options = ids, options
        self.uid = -1  # until it has joined
        self.left = False  # the task wants no more
        self.outcomes: asyncio.Queue[Any] = asyncio.Queue()  # of TokenResponse and BaseException


class AsyncRequests:
    """The tasks' requests. While there are any, one task of the loop steps the generator in a thread; requests join and
    leave between steps."""

    def __init__(self, batch: BatchGenerator) -> None:
        self._batch = batch
        self._joining: list[_Request] = []
        self._running: dict[int, _Request] = {}
        self._driver: asyncio.Task[None] | None = None

    async def stream(self, prompt: Any, options: dict[str, Any]) -> AsyncIterator[TokenResponse]:
        request = _Request(*self._batch._request(prompt, **options))
        self._joining.append(request)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        try:
            while True:
                outcome = await request.outcomes.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
                if outcome.finish_reason is not None:
                    return
        finally:
            request.left = True

    async def _drive(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._join_and_leave():
                step = await loop.run_in_executor(None, self._batch._native.next)
                for response in self._batch._take(step)[1]:
                    self._hand_over(response)
                await asyncio.sleep(0)  # tasks take their responses, and may leave
        except BaseException as error:
            for request in [*self._running.values(), *self._joining]:
                request.outcomes.put_nowait(error)
            self._running.clear()
            self._joining.clear()
            if not isinstance(error, Exception):
                raise

    def _join_and_leave(self) -> bool:
        """Whether anything runs."""
        left = [uid for uid, request in self._running.items() if request.left]
        self._batch.remove(left)
        for uid in left:
            del self._running[uid]
        joining, self._joining = self._joining, []
        for request in joining:
            if request.left:
                continue
            try:
                request.uid = self._batch._insert(request.ids, request.options)
            except Exception as error:
                request.outcomes.put_nowait(error)
            else:
                self._running[request.uid] = request
        return bool(self._running)

    def _hand_over(self, response: TokenResponse) -> None:
        request = self._running.get(response.uid)
        if request is None:
            return
        request.outcomes.put_nowait(response if response.error is None else response.error)
        if response.finish_reason is not None:
            del self._running[response.uid]
