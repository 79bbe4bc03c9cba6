"""Builds the wheel's packs of reference runs, see `pflbench.store.shipped`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ThinPacks(BuildHookInterface):  # type: ignore[type-arg]
    """Puts packs without early rounds into a wheel; an editable install reads the checkout's."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write them beside the wheel, and have them included. `version`: of the target, not of pflbench."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from pflbench.store.shipped import thin

        self.folder = Path(self.directory) / "thin-packs"
        shutil.rmtree(self.folder, ignore_errors=True)
        thin(Path(self.root, "results", "packs"), self.folder)
        build_data["force_include"][str(self.folder)] = "pflbench/results/packs"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove them."""
        if version != "editable":
            shutil.rmtree(self.folder)
