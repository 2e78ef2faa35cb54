"""A comparison in torch, in float32."""


def above(x, y, limit):
    left = x.float()
    right = y.float()
    higher = left > right
    near = left < right + limit
    return higher & near
