"""What a check saw where a whole output was wrong, kept as a file: a fault that comes seldom may not come again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

WHOLE = 0.9
"""The share of wrong elements from which on a whole output counts as wrong."""
FILES, LIMIT = 32, 64 << 20
"""In a folder: files, and their bytes."""


def save(folder: Path, name: str, seen: dict[str, Any]) -> str:
    """Write `seen` to the file NAME.pt in `folder`, for `torch.load`, and drop the oldest files beyond the limits.
    Return words that end a message with the file's path; empty if there is no file.

    A confined worker cannot read the folder. The next check draws new seeds."""
    if sum(getattr(leaf, "nbytes", 0) for leaf in tree_leaves(seen)) > LIMIT or folder.is_symlink():
        return ""
    content, path = io.BytesIO(), folder / f"{name}.pt"
    try:
        torch.save(tree_map_only(torch.Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), seen), content)
        folder.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(content.getbuffer())
        files = sorted(folder.glob("*.pt"), key=lambda file: file.stat().st_mtime_ns)
        while len(files) > FILES or (len(files) > 1 and sum(file.stat().st_size for file in files) > LIMIT):
            files.pop(0).unlink()
    except (OSError, RuntimeError):  # a full disk, or a GPU whose context is broken
        return ""
    return f"; what went in and what came out is in {path}"
