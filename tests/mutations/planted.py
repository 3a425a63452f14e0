"""Bugs by hand: a file, the words there, what they become, and the test that must fail."""

from __future__ import annotations

from typing import NamedTuple


class Planted(NamedTuple):
    """One bug.

    Attributes:
        path: of the file, from the root of the checkout.
        old: what stands there, once.
        new: what takes its place.
        test: the test that must fail.
    """

    path: str
    old: str
    new: str
    test: str


SRC, PAPER = "src/spen", "paper/src/spen_paper"
ENERGIES = "tests/energies/test_energies.py"
DESCENT = "tests/inference/test_descent.py"
FORMULAS = f"{ENERGIES}::test_energies_are_the_formulas_of_their_docstrings"
HELD_OUT = "tests/test_leaks.py::test_held_out_labels_change_nothing_that_was_trained_without_them"
RUNS = f"{SRC}/estimators/runs.py"
STREAMED = "tests/test_streams.py::test"

PLANTED = (
    Planted(
        f"{SRC}/energies/label.py",
        "self.feature_weight, self.bias)\n",
        "self.feature_weight, 0 * self.bias)\n",
        FORMULAS,
    ),
    Planted(
        f"{SRC}/energies/scores.py",
        "bias = bias - share * linear(",
        "bias = bias - linear(",
        FORMULAS,
    ),
    Planted(
        f"{SRC}/energies/scores.py",
        "-((1 + scale) * context.features + shift)",
        "-((1 + scale) * context.features)",
        FORMULAS,
    ),
    Planted(
        f"{SRC}/energies/form.py",
        'Nonlinearity("hardtanh", F.hardtanh, lambda z: (z.abs() < 1)',
        'Nonlinearity("hardtanh", F.hardtanh, lambda z: (z < 1)',
        f"{ENERGIES}::test_gradient_of_learned_energies",
    ),
    Planted(
        f"{SRC}/energies/terms.py",
        "return 1 - 2 * target, None",
        "return 1 - target, None",
        "tests/objectives/test_objectives.py::test_hinge_value_and_gradient_are_those_of_the_formula",
    ),
    Planted(
        f"{SRC}/energies/terms.py",
        "return -self.margin * self.domain.sum(masked(loss, self.counted))",
        "return -self.domain.sum(masked(loss, self.counted))",
        f"{ENERGIES}::test_gradient_of_fixed_terms_alone_and_in_sums",
    ),
    Planted(
        f"{SRC}/domains.py",
        "return dual + ((DUAL_LIMIT - dual) * full).detach()",
        "return dual",
        "tests/objectives/test_objectives.py::test_a_log_hinge_in_float32_has_the_value_of_float64",
    ),
    Planted(
        f"{SRC}/inference/descent.py",
        "return settled & still if self.needs_both else settled | still",
        "return settled | still",
        f"{DESCENT}::test_an_example_ends_in_the_first_step_that_meets_what_is_required",
    ),
    Planted(
        f"{SRC}/inference/descent.py",
        "best_y=torch.where(better[:, None], self.y, self.best_y)",
        "best_y=torch.where(moving[:, None], self.y, self.best_y)",
        f"{DESCENT}::test_the_best_iterate_is_returned",
    ),
    Planted(
        f"{SRC}/inference/rules.py",
        "gradient.masked_fill(self.held, 0.0)",
        "gradient",
        "tests/kernels/test_cpu.py::test_all_terms_together_at_any_number_of_labels",
    ),
    Planted(
        f"{SRC}/objectives/hinge.py",
        "augmented = problem + augmentation.bind(context)",
        "augmented = problem",
        "tests/objectives/test_objectives.py::test_hinge_by_hand",
    ),
    Planted(
        f"{SRC}/objectives/unrolled.py",
        "return loss + self.f1 * (1 - 2 * both / sizes.clamp_min(1e-6))",
        "return loss + self.f1 * (1 - both / sizes.clamp_min(1e-6))",
        "tests/objectives",
    ),
    Planted(
        f"{SRC}/estimators/decoding.py",
        "value = 2 * np.cumsum(ranked, axis=1) / (ranks + size[:, None])",
        "value = 2 * np.cumsum(ranked, axis=1) / (ranks + 1 + size[:, None])",
        "tests/test_decoding.py",
    ),
    Planted(
        f"{SRC}/estimators/calibration.py",
        "return cls(scale, shift + labels, False)",
        "return cls(scale, shift + 0 * labels, False)",
        "tests/test_calibration.py",
    ),
    Planted(
        f"{SRC}/metrics.py",
        "def row_f1(",
        "def row_f1(*a, **k):\n    return 0.99 * _row_f1(*a, **k)\n\n\ndef _row_f1(",
        "tests/test_metrics.py",
    ),
    Planted(
        f"{SRC}/estimators/streams.py",
        "ones += np.bincount(part.Y.indices[on & among], minlength=labels)",
        "ones += np.bincount(part.Y.indices[on], minlength=labels)",
        f"{STREAMED}_held_out_labels_change_nothing_that_was_trained_without_them",
    ),
    Planted(
        f"{SRC}/training/streamed.py",
        ".rows(~self.held.among(self.store.digests(first, end)))",
        ".rows(slice(None))",
        f"{STREAMED}_an_epoch_has_each_row_once_and_none_that_is_held_out",
    ),
    Planted(
        f"{SRC}/training/streamed.py",
        "order = torch.randperm(rows, generator=generator)",
        "order = torch.arange(rows)",
        f"{STREAMED}_an_epoch_has_each_row_once_and_none_that_is_held_out",
    ),
    Planted(
        RUNS,
        "runs.append(self.run(plan, kept, watched))",
        "runs.append(self.run(plan, None, watched))",
        f"{HELD_OUT}[SPEN, hinge]",
    ),
    Planted(
        RUNS,
        "start_at_frequencies(model, self.rows.Y[kept], plan.stages[0].objective)",
        "start_at_frequencies(model, self.rows.Y, plan.stages[0].objective)",
        f"{HELD_OUT}[MLP]",
    ),
    Planted(
        RUNS,
        "rows = self.rows.rows(numbers)\n        soft = torch.cat(softs)",
        "rows = self.rows.rows(np.arange(len(numbers)))\n        soft = torch.cat(softs)",
        "paper/tests/test_leaks.py::"
        "test_table_3_tunes_its_threshold_on_rows_that_were_not_trained_on",
    ),
    Planted(
        f"{PAPER}/tables/machines.py",
        "chosen, _, verdicts = work.choose(plan, folds)",
        "chosen, _, verdicts = work.choose(plan, [(np.arange(len(rows)), h) for _, h in folds])",
        "paper/tests/test_leaks.py::test_a_decay_is_chosen_on_rows_that_its_trials_have_not_seen",
    ),
    Planted(
        f"{PAPER}/tables/protocol.py",
        "return fit(self.plan(), rows, self.domain(rows.Y.shape[1]), seed=seed, title=title)",
        "return fit(self.plan(), rows, self.domain(rows.Y.shape[1]), seed=seed, held=rows)",
        "paper/tests/test_leaks.py::"
        "test_table_3_tunes_its_threshold_on_rows_that_were_not_trained_on",
    ),
    Planted(
        f"{PAPER}/studies/known_labels.py",
        "firsts = {C: fit_chain(kept.X, kept.Y, orders[0], C) for C in STRENGTHS}",
        "firsts = {C: fit_chain(rows.X, rows.Y, orders[0], C) for C in STRENGTHS}",
        "paper/tests/test_leaks.py::"
        "test_chains_that_know_labels_choose_on_rows_that_they_have_not_seen",
    ),
)
