"""scikit-learn's own checks of an estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import spen

BATCHES = (
    "Rows of weight two and rows that stand there twice fall into other mini-batches, as in "
    "scikit-learn's own MLPClassifier."
)


# Small and soon done: the checks are sixty, and some of them fit ten times.
SMALL = spen.SPENClassifier(hidden=(), epochs=10)


@parametrize_with_checks(
    [SMALL],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": BATCHES,
        "check_sample_weight_equivalence_on_sparse_data": BATCHES,
    },
)
@pytest.mark.filterwarnings("default")
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)
