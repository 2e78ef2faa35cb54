from minigym.ops.cutile import layer_norm

__all__ = ["layer_norm"]
