from miniops.ops.softmax import SoftmaxOp

__all__ = ["SoftmaxOp"]
