"""Models side by side: weights with a leading dimension, one entry for each of k models.

Their rows come in turns: row i of a batch belongs to model i mod k. So whatever works row by row
works on them as on any batch, and only products with weights need to know of the models.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b, for weight (outputs, inputs) or, of k models, (k, outputs, inputs).

    >>> weight = torch.tensor([[[1.0, 0.0]], [[0.0, 10.0]]])
    >>> linear(torch.ones(4, 2), weight).ravel()
    tensor([ 1., 10.,  1., 10.])
    """
    if weight.ndim == 2:
        return F.linear(rows, weight, bias)
    k, outputs, inputs = weight.shape
    by_model = rows.reshape(-1, k, inputs).transpose(0, 1)
    if bias is None:
        product = torch.bmm(by_model, weight.mT)
    else:
        product = torch.baddbmm(bias[:, None], by_model, weight.mT)
    return product.transpose(0, 1).reshape(-1, outputs)


def weight_gradient(rows: Tensor, weight: Tensor, upward: Tensor) -> Tensor:
    """Return the gradient of ``linear(rows, weight)`` for the weight: autograd's, to the last bit.

    Args:
        rows: (n, inputs).
        weight: (outputs, inputs), or of k models (k, outputs, inputs).
        upward: (n, outputs) the gradient for what it returns.

    >>> weight_gradient(torch.ones(4, 1), torch.zeros(2, 3, 1), torch.ones(4, 3)).shape
    torch.Size([2, 3, 1])
    """
    if weight.ndim == 3:
        by_model = [each.unflatten(0, (-1, len(weight))).transpose(0, 1) for each in (rows, upward)]
        return by_model[0].mT.bmm(by_model[1]).mT
    # A product and the transposed one of its transposed factors are rounded apart.
    return upward.t().mm(rows) if weight.is_contiguous() else rows.t().mm(upward).t()


def in_turns(vector: Tensor, rows: int) -> Tensor:
    """Return what all rows share, (m,), as it is; of k models, (k, m), row by row, (rows, m).

    >>> in_turns(torch.tensor([[1.0], [2.0]]), 4).ravel()
    tensor([1., 2., 1., 2.])
    """
    return vector if vector.ndim == 1 else vector.repeat(rows // vector.shape[0], 1)
