"""Which configs are worth the next heat: the model's figures, corrected by what was measured so far.

The model ranks configs of one structure well and sets a whole family of them off badly: by what it does not know of a
knob, its figures are wrong by the same factor wherever the knob has that value. So the logarithm of measured over
modelled is explained by the values of the knobs, each with an effect of its own, by ridge regression (A. Hoerl,
R. Kennard, "Ridge regression", 1970). That a fitted cost model decides what is measured next is as in T. Chen et al.,
"Learning to optimize tensor programs", 2018. Of a value that nothing measured has, nothing is learned.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from tilewright.evaluation.results import Prior

RIDGE = 1.0
"""The penalty on an effect: of one that a single measurement shows, half is believed."""


def ranked(priors: Sequence[Prior], numbers: Sequence[int], measured: Mapping[int, float]) -> list[int]:
    """The configs `numbers`, the most promising first. `measured` has logarithms of times, in any one unit, by number.

    Before anything is measured, those that the model knows nothing of take turns with the others, in random order.
    """
    known = sorted(
        (number for number in numbers if priors[number].ms is not None), key=lambda one: _log_ms(priors[one])
    )
    unknown = [number for number in numbers if priors[number].ms is None]
    random.Random(len(unknown)).shuffle(unknown)  # neighbours in a space resemble each other
    if not measured:
        places = {number: place for some in (known, unknown) for place, number in enumerate(some)}
        return sorted(known + unknown, key=lambda number: places[number])
    times = expected(priors, measured)
    return sorted(known + unknown, key=lambda number: times[number])


def expected(priors: Sequence[Prior], measured: Mapping[int, float]) -> list[float]:
    """The logarithm of each config's time, in the unit of `measured`, which must not be empty."""
    logs = [_log_ms(prior) for prior in priors]
    middle = fmean([one for one in logs if not math.isnan(one)] or [0.0])
    before = np.array([middle if math.isnan(one) else one for one in logs])
    effects = [prior.settings | {"": str(prior.ms is None)} for prior in priors]
    columns = sorted({pair for settings in effects for pair in settings.items()})
    present = np.array([[float(settings.get(name) == value) for name, value in columns] for settings in effects])
    seen = sorted(measured)
    wrong = np.array([measured[number] for number in seen]) - before[seen]
    x = present[seen]
    fitted = np.linalg.solve(x.T @ x + RIDGE * np.eye(len(columns)), x.T @ (wrong - wrong.mean()))
    return [float(one) for one in before + wrong.mean() + present @ fitted]


def _log_ms(prior: Prior) -> float:
    return math.nan if prior.ms is None else math.log(prior.ms)
