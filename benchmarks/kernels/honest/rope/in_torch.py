"""Rotary position embedding in torch, in place, in float32."""


def rope(x, cos, sin):
    half = x.shape[-1] // 2
    first = x[..., :half].float()
    second = x[..., half:].float()
    c = cos.float()
    s = sin.float()
    x[..., :half] = first * c - second * s
    x[..., half:] = second * c + first * s
