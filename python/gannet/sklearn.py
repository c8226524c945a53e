"""Estimators for scikit-learn that learn as ``gannet train`` does, in this process or on servers.

- ``FTRLClassifier``: logistic regression, online with FTRL-Proximal, or on the whole data with L-BFGS.
- ``FMClassifier``: a factorization machine, which also learns pairs of features.
- ``LinearRegressor``: linear regression by least squares.

They take dense and sparse matrices and sample weights. Those that learn online have ``partial_fit``.
"""

from ._fm import FMClassifier
from ._ftrl import FTRLClassifier
from ._linear import LinearRegressor

__all__ = ["FMClassifier", "FTRLClassifier", "LinearRegressor"]
