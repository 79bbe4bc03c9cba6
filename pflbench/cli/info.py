"""`pflbench info`: versions, devices and folders of this machine."""

from __future__ import annotations

import json
import platform

from pflbench.cli.common import console
from pflbench.data.root import data_root


def info() -> int:
    """Print versions, devices and folders: paste it into a bug report."""
    import torch

    from pflbench.package import benchmarks
    from pflbench.running import provenance
    from pflbench.running.local import cores

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    facts = {
        **provenance.versions(),
        **provenance.checkout(),
        "platform": platform.platform(),
        "processor": provenance.device_name("cpu"),
        "cores": cores(),
        "gpus": gpus,
        "data_root": str(data_root()),
        "suites": str(benchmarks()),
    }
    console().print(json.dumps(facts, indent=2))
    return 0
