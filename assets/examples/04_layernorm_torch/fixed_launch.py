"""Layer normalisation in plain torch, before tuning: every step is an operation of its own and goes through memory."""

import torch


def layernorm(x, weight, bias, eps):
    """x (M, N), weight and bias (N,) of one dtype -> out (M, N). Computes in float32."""
    values = x.float()
    centred = values - values.mean(dim=-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps)
    return (centred * scale * weight.float() + bias.float()).to(x.dtype)
