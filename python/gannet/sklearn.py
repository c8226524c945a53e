"""Estimators for scikit-learn that learn as ``gannet train`` does, in this process or on servers.

- ``FTRLClassifier``: logistic regression, online with FTRL-Proximal, or on the whole data with L-BFGS.
- ``LogisticRegression``: logistic regression with the parameters of scikit-learn's, by L-BFGS.
- ``FMClassifier``, ``FMRegressor``: factorization machines, which also learn pairs of features.
- ``DeepFMClassifier``: a factorization machine beside a network.
- ``LinearRegressor``: linear regression by least squares.

They take DataFrames as they are, dense and sparse matrices, and sample weights. Those that learn online have
``partial_fit`` and ``early_stopping``.
"""

from ._deepfm import DeepFMClassifier
from ._fm import FMClassifier, FMRegressor
from ._ftrl import FTRLClassifier, LogisticRegression
from ._linear import LinearRegressor

__all__ = [
    "DeepFMClassifier",
    "FMClassifier",
    "FMRegressor",
    "FTRLClassifier",
    "LinearRegressor",
    "LogisticRegression",
]
