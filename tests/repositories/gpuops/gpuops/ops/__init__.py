from gpuops.ops.softmax import SoftmaxOp

__all__ = ["SoftmaxOp"]
