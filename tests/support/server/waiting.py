"""A request that waits in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.server.scheduling.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.scheduling.request import Answer


class Waiting(Request):
    """A request that remembers what became of it."""

    __slots__ = ("result",)

    def __init__(
        self,
        *,
        arrived: float = 0.0,
        priority: int = 0,
        rows: int = 1,
        key: object = "same",
        deadline: float = float("inf"),
        is_gone: Callable[[], bool] | None = None,
    ) -> None:
        self.result: Answer | EdgeInferError | None = None
        super().__init__(
            {},
            None,
            rows=rows,
            key=key,
            arrived=arrived,
            finish=self._finish,
            priority=priority,
            deadline=deadline,
            is_gone=is_gone,
        )

    def _finish(self, result: Answer | EdgeInferError) -> None:
        self.result = result
