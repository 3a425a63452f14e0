"""The nine figures by which a bench is judged."""

from __future__ import annotations

from typing import Any

KEYS = (
    "predict_over_mlp",
    "autograd_loop_over_fused",
    "general_over_fused",
    "steps_paper_over_default",
    "hinge_epoch_general_over_fused",
    "step_time_exponent_in_labels",
    "parameters_exponent_in_labels",
    "single_row_ms",
    "million_rows_ms",
)

MEANINGS = {
    "predict_over_mlp": "whole prediction / the MLP's forward pass, on the same rows",
    "autograd_loop_over_fused": "a PyTorch loop with autograd / the kernel: inference alone",
    "general_over_fused": "step by step / the kernel: inference alone",
    "steps_paper_over_default": "steps to the same energy, the paper's rule / the default one",
    "hinge_epoch_general_over_fused": "training epoch step by step / with the kernel",
    "step_time_exponent_in_labels": "k where the time of a step grows like labelsᵏ",
    "parameters_exponent_in_labels": "k where the parameters grow like labelsᵏ",
    "single_row_ms": "SPENClassifier.predict of one row, ms",
    "million_rows_ms": "inference alone on a million rows, ms",
}

NEED_A_KERNEL = (
    "autograd_loop_over_fused",
    "general_over_fused",
    "hinge_epoch_general_over_fused",
)


def figures_of(record: dict[str, Any]) -> tuple[dict[str, float | None], dict[str, str]]:
    """Return the nine figures, None for what was not measured, and the reasons for those.

    Args:
        record: what the parts of a bench found, by their names.
    """
    ratios, labels = record["prediction"]["ratios"], record["labels"]
    reason = record["not_fused"]
    steps_of = labels[labels["step_time_of"]]
    # The stage with the smallest gain speaks for all.
    epochs = [stage["general_over_fused"] for stage in (record["hinge"] or {}).values()]
    found: dict[str, float | None] = {
        "predict_over_mlp": ratios.get(
            "predict_fused_over_mlp", ratios["predict_general_over_mlp"]
        ),
        "autograd_loop_over_fused": ratios.get("autograd_loop_over_fused_paper"),
        "general_over_fused": ratios.get("general_over_fused"),
        "steps_paper_over_default": record["rules"]["steps_paper_over_default"],
        "hinge_epoch_general_over_fused": min(epochs, default=None),
        "step_time_exponent_in_labels": steps_of.get("step_time_exponent"),
        "parameters_exponent_in_labels": steps_of.get("parameters_exponent"),
        "single_row_ms": max(record["single_row"]["milliseconds"].values()),
        "million_rows_ms": record["growth_with_rows"]["million"]["milliseconds"],
    }
    missing = {}
    for key in KEYS:
        if found[key] is None:
            missing[key] = reason if reason and key in NEED_A_KERNEL else _why(key)
    return {key: found[key] for key in KEYS}, missing


def _why(key: str) -> str:
    if key == "hinge_epoch_general_over_fused":
        return "no stage of the model's training uses the hinge"
    return "too few sizes were measured"
