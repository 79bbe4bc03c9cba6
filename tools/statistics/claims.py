"""Error rates and power of decisions on claims, by simulation.

For each test, 10,000 claims under the least favorable null hypothesis (one comparison at its boundary, all others far
on the claimed side), decided at looks after 3 and 5 seeds. `holds` must come up in at most 3 %. Then 10,000 claims
that are true by a hair in every comparison, with a `least` of 0 or a narrow margin, of which at most 3 % may get `does
not hold`; and the power at several gaps. Differences are normal with a standard deviation of one point.

    python tools/statistics/claims.py [--tables 10000] [--seed 0]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pflbench.report.decide import LOOKS, Hypotheses, decide

FAR = 50.0
Means = Sequence[float]


def share(word: str, means: Means, bounds: Sequence[Hypotheses], tables: int, rng: np.random.Generator) -> float:
    """Share of claims with this word in percent; `holds` counts with and without `smaller than printed`."""
    shape = (tables, len(means), LOOKS[-1])
    values: npt.NDArray[np.float64] = rng.normal(size=shape) + np.array(means)[:, None]
    words = (decide(one.tolist(), bounds, LOOKS).word for one in values)
    return 100 * sum(found.startswith(word) for found in words) / tables


def lines(tables: int, rng: np.random.Generator) -> list[tuple[str, int, float, float, list[float]]]:
    """For each test and number of comparisons: errors under the null and of true claims, and power at 2, 4 and 8 sd."""
    found = []
    for comparisons in (1, 7):
        more = comparisons - 1
        kinds: dict[str, tuple[Hypotheses, float, Hypotheses, float, float, Callable[[float], float]]] = {
            # test: bounds and boundary of "holds", of "does not hold", the others' means, and the mean at a gap
            "better, first, grows": (Hypotheses(least=2.0), 0.0, Hypotheses(least=0.0), 0.0, FAR, lambda gap: gap),
            "within": (Hypotheses(margin=4.0), 4.0, Hypotheses(margin=0.05), 0.05, 0.0, lambda gap: 4.0 - gap / 2),
        }
        for test, (bound, null, strict, true, others, at) in kinds.items():
            bounds = [bound] * comparisons
            wrong = share("holds", [null, *[others] * more], bounds, tables, rng)
            missed = share("does not hold", [true] * comparisons, [strict] * comparisons, tables, rng)
            power = [share("holds", [at(gap)] * comparisons, bounds, tables // 10, rng) for gap in (2.0, 4.0, 8.0)]
            found.append((test, comparisons, wrong, missed, power))
    return found


def main() -> None:
    """Print the table; fail where an error rate is above 3 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{'test':22} {'comparisons':>11} {'false holds':>12} {'false does not':>15}   power at 2, 4, 8 sd")
    worst = 0.0
    for test, comparisons, wrong, missed, power in lines(options.tables, np.random.default_rng(options.seed)):
        shown = ", ".join(f"{one:.0f} %" for one in power)
        print(f"{test:22} {comparisons:>11} {wrong:>10.2f} % {missed:>13.2f} %   {shown}")
        worst = max(worst, wrong, missed)
    if worst > 3:
        raise SystemExit(f"An error rate of {worst:.2f} % is above 3 %.")


if __name__ == "__main__":
    main()
