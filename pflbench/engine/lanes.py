"""How many clients of one run to train at a time on a CPU, by measurement.

Threads share one interpreter: a convolutional network's step leaves it free, a small step is mostly Python, and then
several threads are slower than one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

AGAIN = 50
"""Maps after which the way that seemed slower is tried again: machines are shared."""


@dataclass
class Pace:
    """Seconds per row, with one lane and with several."""

    maps: int = 0
    latest: dict[int, float] = field(default_factory=dict)

    def choose(self, most: int) -> int:
        """One lane, or `most`: what has been faster, or what has not been tried."""
        self.maps += 1
        if most <= 1:
            return 1
        for lanes in (1, most):
            if lanes not in self.latest:
                return lanes
        best, other = sorted((1, most), key=self.latest.__getitem__)
        return best if self.maps % AGAIN else other

    def note(self, lanes: int, rows: int, seconds: float) -> None:
        """So many rows took so long. The last measurement counts: what else the machine does changes."""
        if rows:
            self.latest[lanes] = seconds / rows
