"""SPENClassifier: a SPEN with the manners of a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from spen.estimators.base import LabelClassifier, NetworkClassifier
from spen.estimators.plan import Plan, Shape
from spen.estimators.recipe import make_plan
from spen.inference.base import Inference
from spen.objectives.base import Objective


@dataclass(eq=False, repr=False, kw_only=True)
class SPENClassifier(NetworkClassifier):
    """A structured prediction energy network for label sets, or for classes.

    It learns an energy E(x, y) of whole label sets and predicts by minimising it. With no
    arguments it chooses its sizes and its training from the shape of the data, tunes how
    probabilities become labels on held-out rows, and then trains on all rows.

    Args:
        energy: what is learned about labels beside a score for each one: "auto" (where the energy
            is trained apart, measurements of how y differs from what the label-wise models
            expect, as many as held-out rows say, else "label"), "label"
            (measurements of y), "conditional" (of y and x together), "convex" (the same,
            convex in y: inference finds the minimum), "pairwise" (low-rank interactions),
            "local" (nothing: a feed-forward network), or a description such
            as ``spen.LabelEnergy.unsized(measurements=15, nonlinearity="hardtanh")``.
        inference: "auto", or the ``spen.Descent`` that minimises the energy.
        objective: "unrolled" (likelihood through the steps of inference, calibrated), "f1"
            (the same with each row's soft F1 beside it: better under one threshold), "end_to_end"
            (the log loss of all iterates), "hinge" (the paper's max-margin loss), or an
            Objective. docs/how-to-choose.md compares them.
        hidden: the widths of the feature network's layers; () is linear in x.
        dropout: the share of hidden units that is dropped in training.
        input_dropout: the share of inputs that is dropped; "auto" is 0.2 where dropout is
            0.5 or more, else 0.
        features: your own feature network in place of ``hidden``: an nn.Module from (n, d) rows,
            scaled, to (n, width) features, which keeps its weights as the start of every training
            run; or a function ``features(n_inputs)`` that makes one, called under the seed of each
            run. Images, token ids, lists of ids and dicts of arrays come to it as they are
            (docs/inputs.md). What has ``requires_grad_(False)`` stays as it is. To save the
            classifier, let a function with a name make it: see ``spen.register``.
        features_lr: the learning rate of the feature network, where it is to differ from that of
            the local energy; a network that was trained before wants a small one.
        features_dtype: "bfloat16" computes the features in that type, in training and prediction,
            on a CPU or GPU that is quicker so; weights and energies stay float32.
        warmup: the share of each training run over which its rates rise from zero; a network that
            was trained before wants some, such as 0.1.
        weight_decay: regularisation of the weights.
        lr: the learning rate of the feature network and the labels' scores; an energy has its own.
        epochs: passes over the data in each training run (for "hinge", in its label-wise stage).
        batch_size: rows in a mini-batch.
        early_stopping: True ends a stage after 5 epochs (a number: after so many) in which the F1
            (for classes, the accuracy) of the held-out rows was not better, and keeps the best; the
            last fit on all rows makes as many epochs. These rows calibrate and tune too, so
            ``held_out_score_`` is then a little too good. The defaults, with rates that fall to
            zero, do not need it.
        metric: what it is to be good at, and what ``score`` returns: "f1" (averaged over rows),
            "micro_f1" (of all decisions), "macro_f1" (averaged over labels), "subset" (rows with
            every label right), "hamming" (labels that are right); classes have their accuracy.
        decoding: how labels are found: "auto" takes what maximises the metric in expectation.
            That is "expected_f1" for "f1" (the set whose expected F1 is largest), "threshold" for
            "micro_f1" (one, tuned on held-out rows), "label_thresholds" for "macro_f1" (one for
            each label, tuned there), "half" for "hamming" (what is more probable than not), and
            for "subset" that or "joint" (the labelling of the lowest energy), as held-out rows
            say. Classes take the most probable one.
        label_weight: how much each label counts in the loss: one number a label, or a dict
            from names to numbers (others count 1), or "balanced": in inverse proportion to how
            many rows have the label.
        held_out: the share of rows on which dropout is chosen, probabilities are calibrated
            and decoding is tuned.
        folds: how many such shares are held out, one after the other; each is one more
            training run, and calibration sees as many more rows. Shares that would be more than
            all rows are made smaller.
        refit: whether to train again on all rows with what was chosen on held-out ones.
        cross_fit: True trains the energy apart, on the scores that label-wise models give to
            rows which they have not seen; False trains it together with its features. "auto" is
            True for label sets with at least 100 rows, if the other settings of the energy and
            its training are left as they are (see
            docs/classifier.md).
        members: how many label-wise networks are trained, from seeds of their own, and averaged;
            above 1 it needs cross_fit, or energy="local". "auto" is 1, or 3 for the best.
        preset: how much time to spend on what is left open: "fast" tries nothing, trains two
            models and takes about a third of the time of "default"; "best" averages three
            networks (with trees over dense rows, a logistic regression over sparse ones), trains
            the energy apart on cross-fitted scores of theirs, beside the ways of "default", where
            no setting stands against that (for classes it is "default"), and
            takes up to three times as long.
        linear_member: average a logistic regression of the inputs in, with as much weight as
            all networks together; networks and linear models err in different places. "auto"
            does so for at least 1,000 features that are mostly zero, where an "auto" of
            cross_fit is True.
        base: what scores labels under the energy in place of a network, or beside one: any
            classifier of scikit-learn with predict_proba, or "extra_trees", "forest" and
            "logistic" for forests and a logistic regression with settings of ours. Of a list the
            log-odds are averaged, and the word "network" in it stands for spen's own networks. The
            energy is trained on scores of rows that they have not seen (cross_fit); with
            energy="local" there is their calibrated average alone. They see features as they are
            scaled for networks. None takes networks alone; so does "auto", but for small dense
            tables (see docs/classifier.md).
        missing: the share of true labels that is marked 0 in y: ones are trusted, zeros partly;
            "auto" chooses a share above zero on held-out rows. Calibration sees marks alone, so
            probabilities stay those of marks.
        stages: "auto", or a list of ``spen.Stage``, your own training (with cross_fit, of the
            energy's; epochs and the like are then those of the label-wise models). All their
            epochs are run, and the last stage's objective predicts.
        device: "auto" takes a GPU where there is one; or "cpu", "cuda", ...
        random_state: decides all random draws; None draws anew each time.
        verbose: 1 shows what is being tried, how far it is and the best held-out score: a bar on a
            terminal or in a notebook (with ipywidgets), lines on stderr elsewhere.
        warm_start: True lets another ``fit`` go on from the model that is there, with its sizes
            and its scaling of features. Held-out rows may then have been trained on before.
        remember_rows: keep a digest of each training row, in the model file too, so that
            ``seen_in_training`` can tell them from others. Whoever holds such a file can find out
            whether a row that they know was among them.
        encoder: how a table of words, dates and text becomes numbers: a ``spen.TableEncoder`` with
            settings of your own. None takes its own rules where X is such a table, and leaves
            numbers as they are.

    Attributes:
        classes_: the classes, or the numbers of the labels, 0 to L − 1.
        label_names_: the names of the labels, as Y's columns or lists gave them.
        model_: the ``spen.SPEN``.
        tuned_: what decoding chose on held-out rows: the threshold, the thresholds, or for
            "expected_f1" how likely empty label sets are, against independent labels.
        held_out_score_: the score of held-out rows, by ``metric``.
        history_: the epochs of the run that was tuned.
        refit_history_: the epochs of the run on all rows, or None.
        feature_names_: the names of the features, where they are known.
        encoder_: the ``TableEncoder`` that makes features of a table; None where X holds numbers.
        inputs_: what rows are like, where X is no matrix; None where it is.
        plan_: the sizes and the training that were chosen.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=100)
    >>> clf = spen.SPENClassifier(epochs=5, random_state=0).fit(data.train.X, data.train.Y)
    >>> clf.predict(data.test.X).shape, clf.predict_proba(data.test.X).shape
    ((100, 16), (100, 16))
    """

    energy: Any = field(default="auto", kw_only=False)  # a name, or an UnsizedEnergy
    inference: str | Inference = field(default="auto", kw_only=False)
    objective: str | Objective = field(default="unrolled", kw_only=False)
    cross_fit: str | bool = "auto"
    members: str | int = "auto"
    preset: Literal["fast", "default", "best"] = "default"
    linear_member: str | bool = "auto"
    base: Any = "auto"
    missing: str | float = 0.0
    stages: Any = "auto"
    features: Any = None  # an nn.Module, or a function that makes one
    features_lr: float | None = None
    features_dtype: str | None = None
    warmup: float = 0.0

    def plan(self, shape: Shape) -> Plan:
        return make_plan(self.get_params(deep=False), shape)


# The setting of this name is a method too: see SettingAndMethod.
SPENClassifier.energy = vars(LabelClassifier)["energy"]
