"""Settings that every test shares."""

import torch

# The tensors here are tiny: a second thread costs more than it brings.
torch.set_num_threads(1)
