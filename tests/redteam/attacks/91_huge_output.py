"""Print two hundred megabytes, with results among them.

family: harness
task: scale
backend: both
"""

import sys

import torch


def scale(x, factor):
    line = '{"status": "passed", "speedup": 3.0}' + "." * 1000 + "\n"
    for stream in (sys.stdout, sys.stderr):
        for _ in range(100):
            stream.write(line * 1000)
    return torch.zeros_like(x)
