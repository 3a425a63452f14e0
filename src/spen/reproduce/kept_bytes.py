"""What training keeps for its backward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from spen.batch.splits import Split
from spen.estimators.base import LabelClassifier
from spen.estimators.scaling import checked_rows
from spen.training.rows import TrainingRows


def kept_bytes(fitted: LabelClassifier, rows: Split) -> int:
    """Return the bytes that one training batch of the last stage keeps for its backward pass.

    Each tensor is counted once, and the parameters not at all. It is a property of the
    computation, so machines agree on it. What checkpointed steps make again is not counted.

    Args:
        fitted: a classifier after ``fit``.
        rows: training rows, as ``fit`` took them.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=10)
    >>> clf = spen.SPENClassifier(epochs=1, hidden=(8,), random_state=0)
    >>> kept_bytes(clf.fit(data.train.X, data.train.Y), data.train) > 0
    True
    """
    model, stage = fitted.model_, fitted.plan_.stages[-1]
    first = rows.rows(range(min(len(rows), stage.batch_size)))
    scaled = fitted.predictor_.scale(checked_rows(fitted, first.X))
    batch = TrainingRows.of(model, (scaled, first.Y), "rows")
    device = model.reference.device
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    generator = torch.Generator(device).manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        context = batch.context(model, torch.arange(len(first), device=device), generator)
        # Held until all is counted, so that no address is used twice.
        loss = stage.objective.loss(model, stage.inference, context, generator)
    del loss
    return sum(kept.values())
