"""Why a data set of the hub cannot be loaded, in the user's words, with the way on that fits.

The hub's libraries raise what the network, the hub, the disk or a file gave them, wrapped several
times and worded for programmers; whatever is not known here is passed on in their words.
"""

from __future__ import annotations

import errno
import os
import re

CONVERTED = "refs/convert/parquet"
COPY = "or set data.path=DIR to a local copy"
ANOTHER = "name another data.hub"
LEAVE = "name another data.hub or data.revision"
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
DISK = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR,
}  # fmt: skip


def explained(error: Exception, hub: str, config: str | None, revision: str | None) -> str:
    """Why the data set cannot be loaded, and the way on that fits; outer exceptions come first."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        seen.append(link)
        link = link.__cause__ or link.__context__
    for one in seen:
        text = " ".join(str(one).split())
        found = (
            _offline(one, text)
            or _not_as_asked(text, config)
            or _refused(one, text, hub, revision)
            or _unreachable(one, text)
            or _disk(one, text)
        )
        if found:
            return found
    if any(re.search(r"any data file|supported\) data files", str(one)) for one in seen):
        return f"holds no data files that can be read; {LEAVE}"
    inner = error.__cause__ or error
    reason = " ".join(str(inner).split()) or type(inner).__name__
    return f"cannot be loaded ({reason[:200]}); {LEAVE}"


def _offline(error: BaseException, text: str) -> str | None:
    on = [
        name for name in OFFLINE if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")
    ]
    if not on or not isinstance(error, ConnectionError):
        return None
    return (
        f"is not in the hub's cache on this machine, and {on[0]}={os.environ[on[0]]} forbids to "
        f"fetch it; unset {on[0]} where there is a network"
    )


def _not_as_asked(text: str, config: str | None) -> str | None:
    """The data set is there, but not in the form that was asked for."""
    if "scripts are no longer supported" in text:
        return (
            "holds a script to make the data, which is no longer run; set "
            f"data.revision={CONVERTED} for the hub's own conversion (its directories are the "
            "values of data.hub_config)"
        )
    if found := re.search(r"(?:Available|available configs): \[(.*?)\]", text):
        there = found[1].replace("'", "").replace('"', "")
        why = "needs data.hub_config" if config is None else f"has no configuration {config}"
        rule = "null" if there == "default" else f"one of {there}"
        return f"{why}; set data.hub_config to {rule}"
    if "BatchSize must be greater than 0" in text:
        return f"one of its files holds no row; {LEAVE}"
    return None


def _refused(error: BaseException, text: str, hub: str, revision: str | None) -> str | None:
    """The hub answered, with a no."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    page = f"https://huggingface.co/datasets/{hub}"
    if "GatedRepoError" in kinds or "is a gated dataset" in text:
        return f"is gated; accept its terms on {page} and run `hf auth login`"
    if "RevisionNotFoundError" in kinds or re.search("Revision '.*' doesn't exist", text):
        if revision == CONVERTED:
            return f"the hub holds no conversion of it; {ANOTHER}"
        why = f"has no revision {revision or 'main'}"
        return f"{why}; set data.revision to a branch, tag or commit of {page}"
    if "DisabledRepoError" in kinds:
        return f"has been closed by the hub; {ANOTHER}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401 and "Invalid credentials" in text:
        return "the hub does not know the token it was sent; run `hf auth login`"
    if (
        "RepositoryNotFoundError" in kinds
        or "doesn't exist on the Hub" in text
        or status in (401, 403)
    ):
        return (
            "is not on the hub, moved, or private; look for it on https://huggingface.co/datasets "
            "and set data.hub, or run `hf auth login` if it is private"
        )
    return status and f"the hub answered {status}; try again later, {ANOTHER}"


def _unreachable(error: BaseException, text: str) -> str | None:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if not kinds & {"ConnectionError", "TimeoutError", "gaierror", "TransportError"}:
        return None
    return (
        f"no answer from {os.environ.get('HF_ENDPOINT', 'https://huggingface.co')} "
        f"({(text or type(error).__name__)[:120]}); try again where there is a network"
    )


def _disk(error: BaseException, text: str) -> str | None:
    full = re.search(r"No space left|Not enough disk space", text)
    if not full and not (isinstance(error, OSError) and error.errno in DISK):
        return None
    return (
        f"cannot be written to the hub's cache ({text[:160]}); set HF_HOME to a directory with "
        "room that you may write to"
    )
