"""To int8 in torch, by one reciprocal a row."""

import torch


def quantize(x, scale):
    values = x.float()
    inverse = 1.0 / scale
    steps = torch.round(values * inverse[:, None])
    return torch.clamp(steps, -127, 127).to(torch.int8)
