from gpugym.backend import dispatch
from gpugym.ops import cutile


def rms_norm(x, weight, eps=1e-6):
    return dispatch("rms_norm")(x, weight, eps)


__all__ = ["cutile", "rms_norm"]
