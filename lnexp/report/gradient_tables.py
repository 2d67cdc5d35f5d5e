"""Figure 3 in numbers: every reading as CSV, means and half-widths as Markdown, a few as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from lnexp.report.gradient_claims import number, percent
from lnexp.report.gradients import MATRICES, STACKS, Curve, Measurement

HEAD = ("experiment", "placement", "trained", "n_layers", "seed", "metric", "stack", "layer",
        "matrix", "norm", "loss", "targets", "file")  # fmt: skip


def points_csv(curves: Sequence[Curve]) -> str:
    """Write every gradient norm of the figure, a row each."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEAD)
    for curve in curves:
        for m in curve.layers:
            for metric in ("grad_norm", "mean_grad_norm"):
                for stack, layer in curve.sublayers():
                    for matrix in MATRICES:
                        writer.writerow(_row("layers", curve, m, metric, stack, layer, matrix))
        for n, measurements in sorted(curve.depth.items()):
            for m in measurements:
                writer.writerow(_row("depth", curve, m, "grad_norm", "decoder", n, "w2"))
    return file.getvalue()


def _row(
    experiment: str, curve: Curve, m: Measurement, metric: str, stack: str, layer: int, matrix: str
) -> tuple[object, ...]:
    value = m.norm(stack, layer, matrix, metric)
    return (experiment, curve.name, str(curve.trained).lower(), m.n_layers, m.seed, metric, stack,
            layer, matrix, value, m.record.get("loss"), m.record.get("n_targets"), m.path)  # fmt: skip


def summary(curves: Sequence[Curve]) -> str:
    """Write the short table of the terminal: last W2 by size, exponent, growth by layer."""
    fresh = [curve for curve in curves if not curve.trained]
    sizes = sorted({n for curve in fresh for n in curve.depth})
    top = [["last W2, decoder", *(f"{n}-{n}" for n in sizes), "exponent"]]
    for curve in fresh:
        last = curve.last()
        top.append([curve.label, *(number(last[n]) if n in last else "-" for n in sizes),
                    number(curve.depth_exponent())])  # fmt: skip
    bottom = [["change a layer", *(f"{s} {m.upper()}" for s in STACKS for m in MATRICES)]]
    for curve in curves:
        changes = [percent(curve.growth(s, m, parts=4)) for s in STACKS for m in MATRICES]
        bottom.append([curve.label, *changes])
    return f"{aligned(top)}\n\n{aligned(bottom)}"


def aligned(cells: Sequence[Sequence[str]]) -> str:
    """Write rows of cells as columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )


def page(title: str, curves: Sequence[Curve], said: Sequence[str], notes: Sequence[str]) -> str:
    """Write the figure as a Markdown page: claims, tables, and where the numbers come from."""
    parts = [f"# {title}", "\n".join(f"- {line}" for line in said)]
    for matrix, panel in zip(MATRICES, "ab", strict=True):
        parts += [
            f"## ({panel}) {matrix.upper()} of each feed-forward sublayer",
            "Norm of the mean gradient; in brackets the mean of the batches' norms.",
            _layers_table(curves, matrix),
        ]
    deep = [curve for curve in curves if curve.depth]
    if deep:
        parts += ["## (c) W2 of the last feed-forward sublayer", _depth_table(deep)]
    facts = [*provenance(curves), *notes]
    parts += ["## Where the numbers come from", "\n".join(f"- {line}" for line in facts)]
    return "\n\n".join(parts) + "\n"


def _layers_table(curves: Sequence[Curve], matrix: str) -> str:
    columns = [curve.profile(matrix) for curve in curves]
    means = [curve.profile(matrix, "mean_grad_norm") for curve in curves]
    rows = [["sublayer", *(curve.label for curve in curves)]]
    for i, (stack, layer) in enumerate(curves[0].sublayers()):
        cells = [
            f"{number(column[i])} ({number(mean[i])})"
            for column, mean in zip(columns, means, strict=True)
        ]
        rows.append([f"{stack} {layer}", *cells])
    return _markdown(rows)


def _depth_table(curves: Sequence[Curve]) -> str:
    rows = [["layers", *(curve.label for curve in curves)]]
    last = [curve.last() for curve in curves]
    for n in sorted({n for column in last for n in column}):
        rows.append([f"{n}-{n}", *(number(c[n]) if n in c else "-" for c in last)])
    rows.append(["exponent in layers", *(number(c.depth_exponent()) for c in curves)])
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, f"|---|{'---:|' * (len(rows[0]) - 1)}")
    return "\n".join(lines)


def provenance(curves: Sequence[Curve]) -> list[str]:
    """Say what was measured, on what, and by which code, a line each."""
    records = [m.record for m in _all(curves)]
    first = curves[0].layers[0]
    c = first.record["config"]
    train, data = c["train"], first.record["identity"]
    lines = [
        f"Recipe `{c['recipe']['name']}`, {data['data']['src']}-{data['data']['tgt']}, data "
        f"`{str(data['data_fingerprint'])[:12]}`; {c['data']['vocab_size']} pieces asked for.",
        f"Model: {model_words(c['model'])}, dropout {c['model']['dropout']:g}; in training mode.",
        f"One number: {train['batches_per_update']} batches of at most "
        f"{train['tokens_per_batch']} padded tokens, {_range(records, 'n_targets')} targets in "
        "all; gradient of the mean label-smoothed loss per target, Frobenius norm.",
        f"± is half of a 95 % t-interval over seeds; C5's intervals hold jointly. "
        f"Seeds: {_seeds(curves)}.",
        f"Code: {'; '.join(sorted({_code(record) for record in records}))}.",
    ]
    for curve in curves:
        starts = [str(m.record["config"].get("init_from")) for m in curve.layers if curve.trained]
        lines += [f"{curve.label}: weights of {', '.join(starts)}."] if starts else []
    return lines


def model_words(model: dict[str, Any]) -> str:
    """Sizes of a model in words."""
    return (
        f"{model['n_layers']}-{model['n_layers']} layers, d {model['d_model']}, "
        f"FFN {model['d_ff']}, {model['n_heads']} heads"
    )


def _all(curves: Sequence[Curve]) -> Iterator[Measurement]:
    for curve in curves:
        yield from curve.layers
        for measurements in curve.depth.values():
            yield from measurements


def _seeds(curves: Sequence[Curve]) -> str:
    return ", ".join(map(str, sorted({m.seed for m in _all(curves)})))


def _range(records: Sequence[Any], key: str) -> str:
    values = sorted({r[key] for r in records if r.get(key) is not None})
    if not values:
        return "unknown"
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _code(record: Any) -> str:
    code = record.get("session", {}).get("code", {})
    commit, dirty = code.get("commit"), "-dirty" if code.get("diff") else ""
    version = f"lnexp {code.get('version')}"
    return f"{version}, commit `{commit[:12]}{dirty}`" if commit else version
