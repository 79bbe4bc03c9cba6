"""rich's console for text of others: names, paths and messages of runs and files are printed as they read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment

from pflbench.output import plain


class Console(console.Console):
    """A console that prints text without markup, and without the control characters that it has (`output.plain`)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, "soft_wrap": True, **options})

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does; its own moves of the cursor stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))
