"""An array script for Slurm, for those who submit jobs themselves: `pflbench plan --sbatch`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

JOBS = 8
"""Tasks of the array."""


def script(options: str, results: Path) -> str:
    """The text of a script whose jobs share what these options of `pflbench run` ask for.

    A job whose time is nearly up ends the round under way, writes its checkpoint, and is put back into the queue.

    Args:
        options: Of `run`, each with a blank before it, quoted for a shell.
        results: The results folder, which all nodes see.
    """
    python = shlex.quote(sys.executable)
    folder = shlex.quote(str(results.absolute()))
    return f"""#!/bin/bash
# As many jobs as the array has share the runs: each takes the longest that no other has. Add what your cluster needs:
# --partition, --account, and on GPUs --gpus-per-task=1. More cores for each: --cpus-per-task, and --jobs below.
#SBATCH --job-name=pflbench
#SBATCH --array=1-{JOBS}
#SBATCH --cpus-per-task=1
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120

{python} -m pflbench run{options} --results {folder} --jobs 1 --checkpoint-every 10m --no-wait &
child=$!
trap 'kill -TERM "$child"' TERM
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do # the signal ended the wait, not the program
  wait "$child"
  code=$?
done
if [ "$code" = 75 ]; then # stopped, with its checkpoint written
  scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit "$code"
"""
