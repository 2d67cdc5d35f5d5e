"""What makes a run that run, as one number."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical(value: Any) -> Any:
    """Normalise a config for hashing: 1 and 1.0 are one number, the order of keys is none."""
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0]))}
    if isinstance(value, (list, tuple)):
        return [canonical(v) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def identity_hash(identity: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of an identity."""
    text = json.dumps(canonical(identity), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
