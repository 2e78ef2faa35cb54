"""A kernel library in small, for GPUs: operations by name, each with one implementation for every backend."""

from gpugym import ops
from gpugym.backend import get_current_backend, is_backend_available, set_backend

__all__ = ["get_current_backend", "is_backend_available", "ops", "set_backend"]
