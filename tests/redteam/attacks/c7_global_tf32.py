"""Switch TF32 on for the whole process, and let torch multiply.

family: results
task: gram
backend: gpu
"""

import torch

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.set_float32_matmul_precision("medium")


def gram(x):
    return x @ x.T
