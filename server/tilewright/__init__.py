"""Tilewright: verified, logged performance experiments on GPU kernels."""

__version__ = "0.1.0"
