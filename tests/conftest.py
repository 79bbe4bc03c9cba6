"""Shared set-up: one thread per test process, as the engine's workers have."""

import torch

torch.set_num_threads(1)
