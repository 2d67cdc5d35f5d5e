"""Translate a stream of lines with a run directory alone: no corpus is needed.

Line n of the output is the translation of line n of the input; an empty line stays one.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lnexp.errors import InputError
from lnexp.evaluation.trained import open_trained
from lnexp.kept_weights import find
from lnexp.run_dir import RunDir
from lnexp.tasks.translation import decode


def translate_stream(
    path: Path, source: BinaryIO, target: BinaryIO, *, checkpoint: str, beam: int | None,
    length_penalty: float | None, prepared: bool, trust: bool, device: str | None,
) -> None:  # fmt: skip
    """Write the detokenised translation of each line of ``source`` to ``target`` as it is found.

    ``prepared`` says that the lines are tokenised and lower-cased as the run's text is.
    """
    run = RunDir(path)
    trained = open_trained(run, data=False, trust=trust, device=device)
    trained.load(find(run, checkpoint))
    options = trained.decode_options(None, beam, length_penalty)
    data = trained.cfg.data
    for lines in incoming(source):
        ids = trained.encode(lines if prepared else trained.prepare(lines, data.src))
        some = [i for i, line in enumerate(ids) if len(line)]
        found = decode(trained.model, [ids[i] for i in some], lambda: None, options)
        plain = trained.plain([trained.tokenizer.decode(h.ids) for h in found], data.tgt)
        result = dict(zip(some, plain, strict=True))
        target.write("".join(f"{result.get(i, '')}\n" for i in range(len(lines))).encode())
        target.flush()


def incoming(stream: BinaryIO) -> Iterator[list[str]]:
    """Yield lines as they come, as many as are there: a pipe in batches, a person one by one."""
    rest, number = b"", 1
    while chunk := stream.read1(2**16):  # type: ignore[attr-defined]
        *raw, rest = (rest + chunk).split(b"\n")
        yield _decoded(raw, number)
        number += len(raw)
    if rest:
        yield _decoded([rest], number)


def _decoded(raw: list[bytes], number: int) -> list[str]:
    lines = []
    for i, line in enumerate(raw, number):
        try:
            if b"\0" in line:
                raise InputError(
                    f"standard input, line {i}: holds a NUL byte, so it is not UTF-8 text; "
                    "convert the text to UTF-8"
                )
            if i == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            lines.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError:
            raise InputError(
                f"standard input, line {i}: not UTF-8; convert the text to UTF-8"
            ) from None
    return lines
