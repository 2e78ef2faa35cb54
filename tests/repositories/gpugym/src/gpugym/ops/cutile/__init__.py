from gpugym.ops.cutile import rms_norm

__all__ = ["rms_norm"]
