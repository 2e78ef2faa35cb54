"""What a check saw where a whole output was wrong, kept as a file: a fault that comes seldom may not come again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

WHOLE = 0.9
"""The share of wrong elements from which on a whole output counts as wrong."""
FILES, LIMIT = 8, 64 << 20
"""In a folder: files, and their bytes."""


def save(folder: Path, name: str, seen: dict[str, Any]) -> str:
    """Write `seen` to the file NAME.pt in `folder`, for `torch.load`, and drop the oldest files beyond the limits.
    Return words that end a message with the file's path; empty if there is no file.

    The candidate may read it: each check draws new seeds, and the journal shows those of this check anyway."""
    if sum(getattr(leaf, "nbytes", 0) for leaf in tree_leaves(seen)) > LIMIT:
        return ""
    content, path = io.BytesIO(), folder / f"{name}.pt"
    torch.save(tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu().clone(), seen), content)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(content.getbuffer())
        files = sorted(folder.glob("*.pt"), key=lambda file: file.stat().st_mtime_ns)
        while len(files) > FILES or (len(files) > 1 and sum(file.stat().st_size for file in files) > LIMIT):
            files.pop(0).unlink()
    except OSError:
        return ""
    return f"; what went in and what came out is in {path}"
