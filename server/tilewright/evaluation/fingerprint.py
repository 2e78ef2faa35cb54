"""What a run's inputs were, in one hash, so that a later run can show that it had the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

from tilewright.evaluation.tensors import TensorSpec, raw_bytes

LIMIT = 2**20
"""Bytes of one case's tensors that are hashed; larger ones are sampled in blocks spread evenly over them."""
BLOCK = 4096


def inputs_hash(inputs: dict[str, Any]) -> str:
    """A SHA-256 over the arguments' names, plain values, and tensors with their specs and bytes, `LIMIT` of them in
    all."""
    digest = hashlib.sha256()
    tensors = sum(isinstance(value, torch.Tensor) for value in inputs.values())
    for name in sorted(inputs):
        value = inputs[name]
        if isinstance(value, torch.Tensor):
            spec = TensorSpec.of(value)
            digest.update(json.dumps([name, spec.model_dump()]).encode() + b"\n")
            if spec.span:
                digest.update(_sample(raw_bytes(value), LIMIT // tensors).cpu().numpy().data)
        else:
            digest.update(json.dumps([name, type(value).__name__, repr(value)]).encode() + b"\n")
    return digest.hexdigest()


def _sample(raw: torch.Tensor, limit: int) -> torch.Tensor:
    """The bytes themselves, or blocks of them at even distances and the last block."""
    size, count = raw.numel(), max(limit // BLOCK, 1)
    if size <= max(limit, BLOCK):
        return raw
    stride = size // count
    blocks = raw[: count * stride].view(count, stride)[:, :BLOCK].reshape(-1)
    return torch.cat([blocks, raw[-BLOCK:]])
