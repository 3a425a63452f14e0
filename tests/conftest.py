"""Settings that every test shares."""

import hypothesis
import torch

# The tensors here are tiny: a second thread costs more than it brings.
torch.set_num_threads(1)

# One run is like the next; a failing example is printed as found, without a long shrink.
hypothesis.settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    database=None,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("steady")
