"""Layer normalisation's backward pass in torch, in float32."""

import torch


def backward(x, dout, weight, eps):
    a = x.float()
    d = dout.float()
    w = weight.float()
    centred = a - a.mean(dim=-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps)
    normal = centred * scale
    weighted = d * w
    along = (weighted * normal).mean(dim=-1, keepdim=True)
    offset = weighted.mean(dim=-1, keepdim=True)
    dx = scale * (weighted - offset - normal * along)
    dweight = (d * normal).sum(dim=0)
    dbias = d.sum(dim=0)
    return dx.to(x.dtype), dweight.to(x.dtype), dbias.to(x.dtype)
