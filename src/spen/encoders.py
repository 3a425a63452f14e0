"""Encoders of the package transformers as feature networks."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from spen.batch.inputs import InputBatch
from spen.errors import InputError, check_whole, one_of, require
from spen.features import Features, seeded

POOLS = ("mean", "first")


class Transformer(Features):
    """An encoder of the package transformers, whose vectors h_t of a row's tokens are pooled.

        F(x) = Σ_t m_t h_t / Σ_t m_t   ("mean"),   F(x) = h_1   ("first")

    with m_t the mask. Rows are lists of token ids, an array of ids, or a dict of what the encoder
    takes, as its tokenizer returns them; the result is (n, hidden size). Model files keep the
    configuration and the weights, so that loading one takes no network.

    Args:
        config: of the encoder, as its config.json has it, ``model_type`` included.
        pool: "mean" of the tokens that the mask shows, or the "first" one, such as [CLS].
        seed: draws the weights.

    >>> config = {"model_type": "bert", "vocab_size": 100, "hidden_size": 16,
    ...           "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    >>> encoder = Transformer(config)                        # doctest: +SKIP
    >>> encoder.n_features                                   # doctest: +SKIP
    16
    """

    accepts_batches: ClassVar[bool] = True

    def __init__(
        self, config: dict[str, Any], pool: Literal["mean", "first"] = "mean", seed: int = 0
    ) -> None:
        require("transformers", "encoders")
        super().__init__()
        one_of(pool, POOLS, "pool")
        check_whole(seed, "seed", least=0)
        from transformers import AutoConfig, AutoModel  # pyright: ignore[reportMissingImports]

        if not isinstance(config, dict) or "model_type" not in config:
            raise InputError(
                "config must be a dict with a model_type, such as 'bert', and the encoder's sizes: "
                f"what its config.json holds. Received {config!r}."
            )
        try:
            made = AutoConfig.for_model(**config)
            with seeded(torch.Generator().manual_seed(seed)):
                encoder = AutoModel.from_config(made, trust_remote_code=False)
        except (ValueError, TypeError, KeyError) as problem:
            raise InputError(f"transformers makes no encoder of config: {problem}") from None
        self.encoder = _without_pooler(encoder)
        self.pool = pool
        self.n_features = int(made.hidden_size)

    @classmethod
    def from_pretrained(cls, name: Any, pool: Literal["mean", "first"] = "mean") -> Self:
        """Return an encoder with the weights of a folder, or of a name that transformers loads.

        Args:
            name: what ``AutoModel.from_pretrained`` takes; a name may be downloaded.
            pool: as for the class.
        """
        require("transformers", "encoders")
        from transformers import AutoModel  # pyright: ignore[reportMissingImports]

        with torch.random.fork_rng([]):  # it draws what a file lacks
            found = AutoModel.from_pretrained(name, trust_remote_code=False)
        config = json.loads(found.config.to_json_string()) | {"model_type": found.config.model_type}
        made = cls(config, pool)
        made.encoder.load_state_dict(_without_pooler(found.float()).state_dict())
        return made

    def forward(self, inputs: Any, generator: torch.Generator | None = None) -> Tensor:
        batch = inputs if isinstance(inputs, InputBatch) else InputBatch({"": inputs})
        if "" in batch.fields:
            batch = InputBatch({"input_ids": batch.fields[""]}, batch.mask)
        found = batch.call(self.encoder, strict=True).last_hidden_state
        if self.pool == "first":
            return found[:, 0]
        mask = batch.fields.get("attention_mask", batch.mask)
        if mask is None:
            return found.mean(1)
        shown = mask.to(found.dtype)[..., None]
        return (found * shown).sum(1) / shown.sum(1).clamp_min(1)

    def reset(self, generator: torch.Generator) -> None:
        """Leave the weights as they are."""


def _without_pooler(encoder: Any) -> nn.Module:
    """Drop a layer beyond the tokens' vectors, which nothing would train."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder.float()
