"""Triton: kernels as Python functions over blocks of pointers. An optional package."""

from __future__ import annotations

from tilewright.frontends.protocol import Frontend

TRITON = Frontend(
    "triton", __name__, {"triton": "pip install 'triton>=3.6'"}, ahead="tilewright.frontends.triton.ahead"
)
