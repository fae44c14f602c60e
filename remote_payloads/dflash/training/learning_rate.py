"""Learning rate over steps: linear warm-up, then half a cosine down to a floor."""

from __future__ import annotations

import math


def learning_rate(step: int, total: int, peak: float, *, warmup: float = 0.04, floor: float = 0.0) -> float:
    """Rate for step 1..total; `warmup` is a share of the steps, `floor` a share of the peak."""
    rising = max(1, round(total * warmup))
    if step <= rising:
        return peak * step / rising
    done = min(1.0, (step - rising) / max(1, total - rising))
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))
