"""Reading what a benchmark wrote: JSON, gzipped where the file's name ends in .gz."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def read(path: Path) -> Any:
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
