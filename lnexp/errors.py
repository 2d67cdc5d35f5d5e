"""The two ways a run ends early on purpose: the user's input is wrong, or the numbers are not finite."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user can put right; the message is one line: key or file, value, rule, remedy.

    The command line prints it and exits with 2.
    """


class Diverged(ArithmeticError):
    """A non-finite loss or gradient at update ``t``, raised before the weights change.

    An outcome of the experiment, recorded like any other; not a crash.
    """

    def __init__(self, t: int, loss: float, grad_norm: float) -> None:
        super().__init__(f"update {t}: loss {loss}, gradient norm {grad_norm}")
        self.t, self.loss, self.grad_norm = t, loss, grad_norm


class Interrupted(Exception):
    """The process was told to end by signal ``number``; the run is to be saved and left."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number
