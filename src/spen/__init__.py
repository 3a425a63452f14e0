"""Structured Prediction Energy Networks.

An energy, a domain and an inference method are independent choices; everything
else is built from them. Names are loaded on first use, so that ``spen --help``
does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "BeliefPropagation": "spen.inference.belief",
    "Block": "spen.energies.form",
    "CheckpointError": "spen.errors",
    "ConditionalEnergy": "spen.energies.conditional",
    "ConditionalPairwiseEnergy": "spen.energies.pairwise",
    "ConditionalScoreEnergy": "spen.stacking",
    "Context": "spen.batch.context",
    "ConvexEnergy": "spen.energies.convex",
    "CrossEntropy": "spen.objectives.likelihood",
    "Dataset": "spen.data.dataset",
    "Descent": "spen.inference.descent",
    "Detached": "spen.inference.backward",
    "Diagnosis": "spen.estimators.predictor",
    "Domain": "spen.domains",
    "EndToEnd": "spen.objectives.end_to_end",
    "Energy": "spen.energies.base",
    "EnergyCheckError": "spen.errors",
    "Entropy": "spen.energies.entropy",
    "Exact": "spen.inference.exact",
    "Features": "spen.features",
    "Form": "spen.energies.form",
    "Hinge": "spen.objectives.hinge",
    "History": "spen.training.checkpoint",
    "Identity": "spen.features",
    "Implicit": "spen.inference.implicit",
    "Inference": "spen.inference.base",
    "InputError": "spen.errors",
    "LabelEnergy": "spen.energies.label",
    "LabelScores": "spen.stacking",
    "LabelStructure": "spen.estimators.structure",
    "Linear": "spen.features",
    "LinearRelaxation": "spen.inference.relaxed",
    "LocalEnergy": "spen.energies.local",
    "LossAugmentation": "spen.energies.augmentation",
    "MLP": "spen.features",
    "MeanField": "spen.inference.rules",
    "MirrorBundle": "spen.inference.bundle",
    "MirrorDescent": "spen.inference.rules",
    "MissingPackageError": "spen.errors",
    "Objective": "spen.objectives.base",
    "PairwiseEnergy": "spen.energies.pairwise",
    "Polished": "spen.inference.polished",
    "Problem": "spen.energies.base",
    "ProjectedGradient": "spen.inference.rules",
    "Rule": "spen.inference.rule",
    "SPEN": "spen.model",
    "SPENClassifier": "spen.estimators.classifier",
    "ScoreEnergy": "spen.stacking",
    "Simplex": "spen.domains",
    "Solution": "spen.inference.base",
    "SpenError": "spen.errors",
    "Split": "spen.batch.splits",
    "SquaredError": "spen.objectives.squared",
    "Stage": "spen.training.stage",
    "Status": "spen.inference.base",
    "StepRates": "spen.energies.rates",
    "Stopping": "spen.inference.stopping",
    "Truncated": "spen.inference.backward",
    "UnitBox": "spen.domains",
    "UnknownNameError": "spen.errors",
    "Unrolled": "spen.inference.backward",
    "UnrolledLikelihood": "spen.objectives.unrolled",
    "UnsizedEnergy": "spen.energies.unsized",
    "check_energy": "spen.energies.check",
    "example_f1": "spen.metrics",
    "exclusive_blocks": "spen.data.synthetic",
    "expected_f1": "spen.decoding",
    "hamming_error": "spen.metrics",
    "hold_out": "spen.batch.splits",
    "load": "spen.estimators.model_file",
    "load_dataset": "spen.data.load",
    "search_error_rate": "spen.metrics",
    "train": "spen.training.loop",
    "tune_label_thresholds": "spen.decoding",
    "tune_threshold": "spen.decoding",
}

if TYPE_CHECKING:
    from spen.batch.context import Context as Context
    from spen.batch.splits import Split as Split
    from spen.batch.splits import hold_out as hold_out
    from spen.data.dataset import Dataset as Dataset
    from spen.data.load import load_dataset as load_dataset
    from spen.data.synthetic import exclusive_blocks as exclusive_blocks
    from spen.decoding import expected_f1 as expected_f1
    from spen.decoding import tune_label_thresholds as tune_label_thresholds
    from spen.decoding import tune_threshold as tune_threshold
    from spen.domains import Domain as Domain
    from spen.domains import Simplex as Simplex
    from spen.domains import UnitBox as UnitBox
    from spen.energies.augmentation import LossAugmentation as LossAugmentation
    from spen.energies.base import Energy as Energy
    from spen.energies.base import Problem as Problem
    from spen.energies.check import check_energy as check_energy
    from spen.energies.conditional import ConditionalEnergy as ConditionalEnergy
    from spen.energies.convex import ConvexEnergy as ConvexEnergy
    from spen.energies.entropy import Entropy as Entropy
    from spen.energies.form import Block as Block
    from spen.energies.form import Form as Form
    from spen.energies.label import LabelEnergy as LabelEnergy
    from spen.energies.local import LocalEnergy as LocalEnergy
    from spen.energies.pairwise import ConditionalPairwiseEnergy as ConditionalPairwiseEnergy
    from spen.energies.pairwise import PairwiseEnergy as PairwiseEnergy
    from spen.energies.rates import StepRates as StepRates
    from spen.energies.unsized import UnsizedEnergy as UnsizedEnergy
    from spen.errors import CheckpointError as CheckpointError
    from spen.errors import EnergyCheckError as EnergyCheckError
    from spen.errors import InputError as InputError
    from spen.errors import MissingPackageError as MissingPackageError
    from spen.errors import SpenError as SpenError
    from spen.errors import UnknownNameError as UnknownNameError
    from spen.estimators.classifier import SPENClassifier as SPENClassifier
    from spen.estimators.model_file import load as load
    from spen.estimators.predictor import Diagnosis as Diagnosis
    from spen.estimators.structure import LabelStructure as LabelStructure
    from spen.features import MLP as MLP
    from spen.features import Features as Features
    from spen.features import Identity as Identity
    from spen.features import Linear as Linear
    from spen.inference.backward import Detached as Detached
    from spen.inference.backward import Truncated as Truncated
    from spen.inference.backward import Unrolled as Unrolled
    from spen.inference.base import Inference as Inference
    from spen.inference.base import Solution as Solution
    from spen.inference.base import Status as Status
    from spen.inference.belief import BeliefPropagation as BeliefPropagation
    from spen.inference.bundle import MirrorBundle as MirrorBundle
    from spen.inference.descent import Descent as Descent
    from spen.inference.exact import Exact as Exact
    from spen.inference.implicit import Implicit as Implicit
    from spen.inference.polished import Polished as Polished
    from spen.inference.relaxed import LinearRelaxation as LinearRelaxation
    from spen.inference.rule import Rule as Rule
    from spen.inference.rules import MeanField as MeanField
    from spen.inference.rules import MirrorDescent as MirrorDescent
    from spen.inference.rules import ProjectedGradient as ProjectedGradient
    from spen.inference.stopping import Stopping as Stopping
    from spen.metrics import example_f1 as example_f1
    from spen.metrics import hamming_error as hamming_error
    from spen.metrics import search_error_rate as search_error_rate
    from spen.model import SPEN as SPEN
    from spen.objectives.base import Objective as Objective
    from spen.objectives.end_to_end import EndToEnd as EndToEnd
    from spen.objectives.hinge import Hinge as Hinge
    from spen.objectives.likelihood import CrossEntropy as CrossEntropy
    from spen.objectives.squared import SquaredError as SquaredError
    from spen.objectives.unrolled import UnrolledLikelihood as UnrolledLikelihood
    from spen.stacking import ConditionalScoreEnergy as ConditionalScoreEnergy
    from spen.stacking import LabelScores as LabelScores
    from spen.stacking import ScoreEnergy as ScoreEnergy
    from spen.training.checkpoint import History as History
    from spen.training.loop import train as train
    from spen.training.stage import Stage as Stage


_MODULES = ("baselines", "metrics")
"""Modules whose names are read as they are, such as spen.baselines.MLPClassifier."""


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"spen.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'spen' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, *_MODULES, "__version__"])
