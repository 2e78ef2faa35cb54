"""The simplest language: functions of Python."""

from __future__ import annotations

from tilewright.frontends.protocol import Frontend

PLAIN = Frontend("plain", __name__, {})
