"""Workers give what one process gives, in order, and none is left behind."""

import fcntl
import multiprocessing
import os
import signal
import time
from functools import partial

import pytest

from lnexp.data.workers import in_order
from lnexp.errors import InputError


def doubled(part):
    time.sleep(0.02 * (part == 0))  # the first is not the first to be ready
    return 2 * part


def doubling():
    return doubled


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_results_come_in_the_order_of_the_parts(workers):
    assert list(in_order(doubling, range(9), workers=workers)) == list(range(0, 18, 2))
    assert list(in_order(doubling, [], workers=workers)) == []


def test_only_a_bounded_number_of_parts_is_taken_in_advance():
    taken = []

    def parts():
        for part in range(12):
            taken.append(part)
            yield part

    for n, _ in enumerate(in_order(doubling, parts(), workers=2)):
        assert len(taken) - n <= 4


def fatal(part):
    os.kill(os.getpid(), signal.SIGKILL)


def dying():
    return fatal


def test_a_worker_that_is_killed_is_an_error():
    with pytest.raises(InputError, match=r"one of 2 worker processes was killed .*fewer workers"):
        list(in_order(dying, range(9), workers=2))


def refuse(part):
    raise InputError(f"part {part}")


def refusing():
    return refuse


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_arrives(workers):
    with pytest.raises(InputError, match="part 0"):
        list(in_order(refusing, range(9), workers=workers))


def holding(path, started):
    """Keeps a file locked as long as the process lives."""
    file = open(path, "ab")  # noqa: SIM115
    fcntl.flock(file, fcntl.LOCK_SH)
    started.touch()

    def work(part, file=file):
        return part

    return work


def _parent(path, started):
    for _ in in_order(partial(holding, path, started), range(4), workers=2):
        time.sleep(600)


def test_workers_end_with_a_killed_parent(tmp_path):
    path, started = tmp_path / "held", tmp_path / "started"
    parent = multiprocessing.get_context("spawn").Process(target=_parent, args=(path, started))
    parent.start()
    while not started.exists():
        time.sleep(0.01)
    parent.kill()
    parent.join()
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # comes back when no worker holds the file any more
