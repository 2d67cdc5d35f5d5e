"""Which finished runs end where their warm-up does and can stand beside a measurement."""

from __future__ import annotations

import time
from pathlib import Path

from lnexp.report.find import run_dirs
from lnexp.report.gradients import Measurement
from lnexp.report.inventory import Entry, Json, mapping, read_entry, whole
from lnexp.run_dir import RunDir

EXPERIMENT = "fig3_warmup"


def warmup_runs(root: Path, peer: Measurement) -> tuple[list[Entry], list[str]]:
    """Find runs of ``+exp=fig3_warmup`` at or below ``root``, one for each seed, and remarks.

    They fit where model sizes, text, placement and norm are those of ``peer``, and where they ended
    with their warm-up and kept the weights. Of runs that differ in more than the seed, those with the most seeds are
    taken, and a remark names the others.
    """
    groups: dict[str, dict[int, Entry]] = {}
    for path in run_dirs(root, lambda line: None):
        entry = read_entry(path, time.time())
        who = dict(mapping(entry.identity.get("identity")))
        if not (
            entry.state == "finished"
            and EXPERIMENT in entry.experiments
            and _alike(who) == _alike(peer.record["identity"])
            and entry.t == mapping(who.get("schedule")).get("warmup")
            and RunDir(path).last_checkpoint.exists()
        ):
            continue
        seed = whole(who.pop("seed", None))
        if seed is None:
            continue
        of_seeds = groups.setdefault(repr(who), {})
        if seed not in of_seeds or (of_seeds[seed].version or 0) < (entry.version or 0):
            of_seeds[seed] = entry
    if not groups:
        return [], []
    best = max(groups.values(), key=len)
    remarks = [
        f"left out: run of +exp={EXPERIMENT} with other settings: {entry.path}"
        for others in groups.values()
        for entry in others.values()
        if others is not best
    ]
    remarks += [
        f"the run of seed {seed} learned nothing (its loss is no better than the unigram entropy): {entry.path}"
        for seed, entry in sorted(best.items())
        if entry.result.get("learned") is False
    ]
    return [best[seed] for seed in sorted(best)], remarks


def _alike(who: Json) -> object:
    """What a run and a measurement must share for their gradients to be compared."""
    sizes = {k: v for k, v in mapping(who.get("model")).items() if "dropout" not in k}
    keys = ("data", "data_fingerprint", "text", "placement", "norm")
    return sizes, [who.get(key) for key in keys]
