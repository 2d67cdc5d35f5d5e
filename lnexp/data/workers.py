"""Work on the parts of a text in several processes, in order and with bounded memory.

What comes out does not depend on the number of processes, and no process outlives the one that
started it, not even a killed one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from threading import Thread
from typing import Any, TypeVar

from lnexp.errors import InputError

Part = TypeVar("Part")
Result = TypeVar("Result")

PARTS_PER_WORKER = 2
"""Parts that are in memory at once: one being worked on, one waiting."""


def in_order(
    setup: Callable[[], Callable[[Part], Result]], parts: Iterable[Part], *, workers: int
) -> Iterator[Result]:
    """What ``setup()`` makes of each of ``parts``, in their order.

    ``setup`` is called once in every process and must be picklable, as parts and results must; with
    one worker all is done in this process.  Raises `InputError` if a worker is killed.
    """
    if workers <= 1:
        yield from map(setup(), parts)
        return
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start, initargs=(setup,)
    )
    waiting: deque[Future[Result]] = deque()
    try:
        for part in parts:
            waiting.append(pool.submit(_work, part))
            if len(waiting) == workers * PARTS_PER_WORKER:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise InputError(
            f"one of {workers} worker processes was killed (is the memory used up?); run the same "
            "command again with fewer workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_function: Callable[[Any], Any]


def _start(setup: Callable[[], Callable[[Any], Any]]) -> None:
    global _function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which ends the pool
    Thread(target=_end_with_the_parent, daemon=True).start()
    _function = setup()


def _work(part: Any) -> Any:
    return _function(part)


def _end_with_the_parent() -> None:
    # A worker waits on a pipe that it holds open itself, and would wait for ever.
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
