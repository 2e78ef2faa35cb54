"""Leave the call by exceptions that `except Exception` does not see.

task: rowsum
backend: both
ends: crashed
"""

_kinds = [SystemExit(0), GeneratorExit(), KeyboardInterrupt(), StopIteration(), BaseExceptionGroup("", [SystemExit(0)])]


def rowsum(x):
    raise _kinds[x.shape[0] % len(_kinds)]
