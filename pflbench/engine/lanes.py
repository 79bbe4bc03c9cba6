"""How many clients of one run to train at a time on a CPU, by measurement.

Threads share one interpreter: a convolutional network's step leaves it free, a small step is mostly Python, and then
several threads are slower than one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

AGAIN = 50
"""After so many maps the slower setting is tried again, as other programs on the machine come and go."""


@dataclass
class Pace:
    """Seconds per image, with one client at a time and with several."""

    maps: int = 0
    latest: dict[int, float] = field(default_factory=dict)

    def choose(self, most: int) -> int:
        """1 or `most` clients at a time: an untried one first, then the faster one."""
        self.maps += 1
        if most <= 1:
            return 1
        for lanes in (1, most):
            if lanes not in self.latest:
                return lanes
        best, other = sorted((1, most), key=self.latest.__getitem__)
        return best if self.maps % AGAIN else other

    def note(self, lanes: int, rows: int, seconds: float) -> None:
        """Note that so many images took so many seconds. Only the last measurement counts."""
        if rows:
            self.latest[lanes] = seconds / rows
