"""Where networks are measured: over seeds, each once, and again only if the code changed.

Every reading is appended to a file as soon as it is there, so that interrupted work goes on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

import lnexp
from lnexp.atomic import naming
from lnexp.theory.observe import LAST, Observation, observe
from lnexp.theory.setting import Assumptions, PlacementFactory, Size, Text

LABELS = {"post_ln": "Post-LN", "pre_ln": "Pre-LN"}
BOTH = ("post_ln", "pre_ln")
STACKS = ("decoder", "encoder")
"""Of the real model, in the order in which they are read."""

MEASURING = (
    *(f"theory/{name}" for name in ("setting", "observe", "real", "lab", "lemmas", "concentration",
                                    "statements")),
    "build", "train", "tasks/translation", "data/batching", "model/*",
)  # fmt: skip
"""Modules of lnexp that a reading depends on."""


@dataclass(frozen=True)
class Sizes:
    """How large and how many."""

    d: int
    depths: tuple[int, ...]
    """Of Theorem 1, in both settings."""
    widths: tuple[int, ...]
    width_depth: int
    norms_depth: int
    """Deepest network of Lemma 2, all of whose depths are looked at."""
    single_depth: int
    """The same with one position."""
    networks: int
    """Averaged for each seed where a norm is the question: an expectation over weights."""
    bounded_d: int
    """Width where concentration is the question: the paper's, for a narrow network has less."""
    bounded_depths: tuple[int, ...]
    sequences: int
    """In one network, there."""
    placement_depths: tuple[int, ...]
    """Of the real model, where other placements are compared."""
    factor_depth: int
    """Network of appendix F; its "large l" is the upper half of the deepest of ``depths``."""
    switch_d: int
    switch_depths: tuple[int, ...]
    samples: int
    """Draws of a Gaussian vector, for each seed."""


FULL = Sizes(
    d=512, depths=(6, 8, 10, 12, 14, 24, 48), widths=(64, 128, 256, 512, 1024), width_depth=12,
    norms_depth=48, single_depth=12, networks=16,
    bounded_d=512, bounded_depths=(6, 48), sequences=16,
    placement_depths=(6, 10, 14), factor_depth=12,
    switch_d=256, switch_depths=(6, 12, 24, 48), samples=20_000,
)  # fmt: skip
QUICK = Sizes(
    d=96, depths=(6, 12, 24), widths=(32, 64, 128), width_depth=6,
    norms_depth=12, single_depth=6, networks=2,
    bounded_d=512, bounded_depths=(6,), sequences=8,
    placement_depths=(6, 12), factor_depth=12,
    switch_d=48, switch_depths=(6, 12), samples=20_000,
)  # fmt: skip


class RealModel(Protocol):
    """The model that is trained, with its text."""

    d: int
    text: Text

    def key(self) -> dict[str, Any]:
        """What a reading depends on, beside placement, depth, seed and layers."""

    def observe(self, placement: str, n_layers: int, seed: int, layers: str) -> list[Observation]:
        """Draw one model and read its decoder and its encoder."""


class Journal:
    """Readings in a file of JSON lines, by a hash of what they depend on.

    ``context`` is what all of them depend on, beside the code: how the placements are set.
    """

    def __init__(self, path: Path | None, context: Any = None) -> None:
        self.path = path
        self.known: dict[str, Any] = {}
        self.torn = False
        if path is not None and path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            self.torn = bool(text) and not text.endswith("\n")
            for line in text.splitlines():
                try:
                    row = json.loads(line)
                    if isinstance(row["reading"], list):
                        self.known[row["key"]] = row["reading"]
                except (ValueError, KeyError, TypeError):
                    continue  # a line that was being written when the process ended
        self.context = [_code(), context]

    def once(self, what: dict[str, Any], measure: Callable[[], Any]) -> Any:
        """The reading of ``what``: as it was written down, or measured now."""
        text = json.dumps([self.context, what], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:32]
        if key not in self.known:
            self.known[key] = reading = measure()
            if self.path is not None:
                line = json.dumps({"key": key, "what": what, "reading": reading})
                with naming(self.path), open(self.path, "a", encoding="utf-8") as file:
                    file.write("\n" * self.torn + line + "\n")
                self.torn = False
        return self.known[key]


def _code() -> str:
    """Hash of what computes a reading: sources and torch."""
    package = Path(lnexp.__file__).parent
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(path for name in MEASURING for path in package.glob(f"{name}.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass
class Lab:
    """Measures networks for the experiments."""

    sizes: Sizes
    seeds: Sequence[int]
    placements: Mapping[str, PlacementFactory]
    journal: Journal
    real_model: Callable[[], RealModel]
    """Called only if something needs it: it reads the text."""
    say: Callable[[str], None]
    stage: str = ""
    """Which statement of how many, for who waits."""
    _real: RealModel | None = field(default=None, init=False)

    @property
    def real(self) -> RealModel:
        """The real model, made once."""
        if self._real is None:
            self._real = self.real_model()
        return self._real

    def theorem(
        self,
        placement: str,
        size: Size,
        *,
        assumptions: Assumptions | None = None,
        layers: str = LAST,
        networks: int = 1,
    ) -> list[list[Observation]]:
        """Observations of ``networks`` networks of the theorem's setting for each seed."""
        a = assumptions or Assumptions()
        text = self.real.text if a.real_input else None
        found = []
        for seed in self._each_seed(f"{label(placement)}, {size.n_layers} layers, d={size.d}"):
            what = {
                "setting": "theorem", "placement": placement, "size": dataclasses.asdict(size),
                "assumptions": dataclasses.asdict(a), "layers": layers, "seed": seed,
                "networks": networks, "text": self.real.key() if text else None,
            }  # fmt: skip

            def measure(seed: int = seed) -> list[dict[str, Any]]:
                keys = [seed + 100_000 * k for k in range(networks)]
                factory = self.placements[placement]
                drawn = (
                    observe(factory, size, key, assumptions=a, layers=layers, text=text)
                    for key in keys
                )
                return [dataclasses.asdict(seen) for seen in drawn]

            found.append([Observation(**row) for row in self.journal.once(what, measure)])
        return found

    def model(
        self, placement: str, n_layers: int, *, layers: str = LAST
    ) -> list[list[Observation]]:
        """Observations of the real model's decoder and encoder for each seed."""
        real, found = self.real, []
        for seed in self._each_seed(
            f"{label(placement)}, {n_layers}+{n_layers} layers, real model"
        ):
            what = {"setting": "real", "placement": placement, "n_layers": n_layers,
                    "layers": layers, "seed": seed, "model": real.key()}  # fmt: skip

            def measure(seed: int = seed) -> list[dict[str, Any]]:
                seen = real.observe(placement, n_layers, seed, layers)
                return [dataclasses.asdict(observation) for observation in seen]

            found.append([Observation(**row) for row in self.journal.once(what, measure)])
        return found

    def numbers(self, name: str, measure: Callable[[int], list[float]]) -> list[list[float]]:
        """Numbers of anything else that is measured with each seed."""
        sizes = dataclasses.asdict(self.sizes)
        return [
            self.journal.once(
                {"setting": name, "seed": seed, "sizes": sizes}, partial(measure, seed)
            )
            for seed in self._each_seed(name)
        ]

    def _each_seed(self, what: str) -> Iterator[int]:
        for i, seed in enumerate(self.seeds, 1):
            self.say(f"{self.stage}{what}: seed {i} of {len(self.seeds)}")
            yield seed


def label(placement: str) -> str:
    """Name a placement for people."""
    return LABELS.get(placement, placement)
