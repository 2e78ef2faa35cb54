"""Leave the output argument as it is.

family: results
task: accumulate
backend: both
"""


def accumulate(x, y, alpha):
    return None
