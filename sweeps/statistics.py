"""Summaries with their uncertainty: every statistic in a figure is computed here.

Each summary has the number of values it used (`used`) and of rows without a value (`excluded`).
"""

import warnings
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit
from scipy.stats import (
    DegenerateDataWarning,
    binomtest,
    bootstrap,
    false_discovery_control,
    spearmanr,
)

LEVEL = 0.95
"""Coverage of every interval."""
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
RESAMPLES = 2000

BLOCK_NUMBERS = 2**22
"""Largest number of draws in memory at once; a single resample may have more."""

Statistic = Literal["mean", "median"]
MIDDLE: Any = {"mean": np.mean, "median": np.median}


def _bootstrap(samples: Sequence[np.ndarray], statistic: Any, seed: Any, **more: Any) -> Any:
    """Return low and high of the percentile bootstrap interval of a statistic of samples."""
    return bootstrap(
        samples,
        statistic,
        n_resamples=RESAMPLES,
        batch=max(1, BLOCK_NUMBERS // sum(sample.size for sample in samples)),
        confidence_level=LEVEL,
        method="percentile",
        random_state=np.random.default_rng(seed),
        **more,
    ).confidence_interval


def bootstrap_interval(
    values: np.ndarray, statistic: Statistic = "mean"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the percentile bootstrap interval of a statistic of each row, with coverage `LEVEL`.

    Of finite values (groups, n) it returns low and high (groups,): NaN where n < 2, since one value
    has no spread. The same n gives the same `RESAMPLES` bootstrap draws, so that bands over the
    steps of instances are smooth.
    """
    groups, n = values.shape
    if n < 2 or groups == 0:
        return np.full(groups, np.nan), np.full(groups, np.nan)
    centre = values[:, 0]  # centred, so that equal values give exactly that value
    low, high = _bootstrap([values - centre[:, None]], MIDDLE[statistic], [0, n], axis=1)
    return low + centre, high + centre


def slope(
    x: np.ndarray, values: np.ndarray, statistic: Statistic = "median"
) -> tuple[float, float, float, float]:
    """Return the slope b of log y = a + b x by least squares, its interval, low and high, and a.

    y is the statistic of each column of `values` (instances, x), over its finite values. The
    interval, of coverage `LEVEL`, is the percentile bootstrap of the instances: whole rows, if
    none lacks a value, else those of each column; NaN where a column has one value, or where a
    statistic of resampled instances is not > 0.
    """
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()

    def logs(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log([MIDDLE[statistic](sample, axis=axis) for sample in samples])

    def of_samples(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.tensordot(weights, logs(*samples, axis=axis), axes=1)

    samples = [column[np.isfinite(column)] for column in values.T]
    b, low, high = float(of_samples(*samples)), np.nan, np.nan
    if min(map(len, samples)) > 1:
        paired = bool(np.isfinite(values).all())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateDataWarning)  # of an interval that is NaN
            low, high = _bootstrap(samples, of_samples, 0, paired=paired, vectorized=True)
    low, high = (low, high) if np.isfinite([low, high]).all() else (np.nan, np.nan)
    return b, float(low), float(high), float((logs(*samples) - b * x).mean())


def summaries(
    frame: pd.DataFrame, by: Sequence[str], value: str, statistic: Statistic = "mean"
) -> pd.DataFrame:
    """Return one row per group of `by`: the statistics of column `value` of its instances.

    Values that are missing or not finite count as excluded, and so do all if there is no such
    column. Rows with a missing key form a group of their own; without `by`, all rows are one.

    Returns
    -------
    pandas.DataFrame
        Columns `by`, used (values), excluded (rows without a value), mean, std (used - 1), median,
        q25, q75, and low, high of the bootstrap interval of `statistic`; NaN where used = 0, std
        and the interval also where used = 1.
    """
    groups = _grouped(frame, by, value)
    # relative to the first value, so that equal values have exactly that mean
    rest = _grouped(frame.assign(rest=groups.obj - groups.transform("first")), by, "rest")
    table = groups.agg(used="count", excluded="size", mean="first", std="std", median="median")
    table["mean"] += rest.mean()
    table["excluded"] -= table["used"]
    table = table.assign(q25=groups.quantile(0.25), q75=groups.quantile(0.75), low=np.nan, high=0.0)
    samples = pd.Series([part.dropna().to_numpy() for _, part in groups], dtype=object)
    for _, part in samples.groupby(samples.map(len)):
        ends = bootstrap_interval(np.stack(part.tolist()), statistic)
        table.iloc[part.index, -2:] = np.stack(ends, axis=1)
    table = table.reset_index()[[*by, *table]]
    return table.astype(dict.fromkeys(table.select_dtypes("category"), object))


def wilson_interval(count: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return Wilson's score intervals (2, ...), of coverage `LEVEL`, of count / n; NaN if n = 0."""
    intervals = [
        binomtest(int(k), int(total)).proportion_ci(LEVEL, "wilson") if total else (np.nan, np.nan)
        for k, total in zip(count, n, strict=True)
    ]
    return np.reshape(intervals, (-1, 2)).T


def shares(frame: pd.DataFrame, by: Sequence[str], flag: str) -> pd.DataFrame:
    """Return one row per group of `by`: the proportion of instances on which `flag` holds.

    `flag` is True, False or missing (unknown: counts as excluded).

    Returns
    -------
    pandas.DataFrame
        Columns `by`, used (known), excluded (unknown), count, share, low, high; NaN where
        used = 0.
    """
    table = _grouped(frame, by, flag).agg(used="count", excluded="size", count="sum")
    table["excluded"] -= table["used"]
    table["share"] = table["count"] / table["used"]  # NaN for 0 / 0
    table["low"], table["high"] = wilson_interval(table["count"], table["used"])
    return table.astype({"count": int}).reset_index()[[*by, *table]]


def paired_means(
    frame: pd.DataFrame, by: Sequence[str], value: str, level: float = LEVEL
) -> pd.DataFrame:
    """Return one row per group of `by`: the mean of differences, by Student's t.

    It holds for independent differences that are about normal. Columns: `by`, used (values),
    excluded (rows without a value), mean, its interval low and high with coverage `level`, and
    p_value, the one-sided one of the mean being at most 0; NaN where used < 2.
    """
    table = summaries(frame, by, value)[[*by, "used", "excluded", "mean", "std"]]
    free, mean = table["used"] - 1.0, table["mean"]
    error = table.pop("std") / np.sqrt(table["used"])  # NaN where used < 2
    half = stdtrit(free, (1 + level) / 2) * error
    p = np.where(error == 0, mean <= 0, stdtr(free, -mean / error))
    return table.assign(low=mean - half, high=mean + half, p_value=p)


def false_discovery(p: np.ndarray, any_dependence: bool = False) -> np.ndarray:
    """Return p-values adjusted by Benjamini and Hochberg (1995); NaN stays, and is no test.

    The hypotheses with an adjusted value of at most q have a false discovery rate of at most q, if
    the tests are independent or positively dependent (Benjamini and Yekutieli, 2001). With
    `any_dependence` the values are 1 + 1/2 + ... + 1/N times larger, N the number of tests, and
    this holds always.
    """
    p = np.asarray(p, dtype=float)
    adjusted, known = np.full(p.shape, np.nan), np.isfinite(p)
    if known.any():
        adjusted[known] = false_discovery_control(p[known], method="by" if any_dependence else "bh")
    return adjusted


def counts(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the number of rows of each combination of `by` that occurs, in column `count`."""
    if frame.empty:
        return pd.DataFrame(columns=[*by, "count"])
    return frame.groupby(list(by), dropna=False, sort=True).size().reset_index(name="count")


def _grouped(frame: pd.DataFrame, by: Sequence[str], name: str) -> Any:
    """Return a column as finite floats or NaN, all NaN if there is none, in the groups of `by`."""
    values = frame[name].to_numpy(dtype=float, na_value=np.nan) if name in frame else np.nan
    column = pd.Series(values, index=frame.index, dtype=float).replace([np.inf, -np.inf], np.nan)
    keys = [frame[key] for key in by] or [pd.Series(0, index=frame.index)]
    return column.groupby(keys, dropna=False, sort=True)


def halfway(x: np.ndarray, count: np.ndarray, n: np.ndarray) -> tuple[float, float, float]:
    """Return where a proportion that grows with x is one half, with its interval.

    Logistic regression on log x, p = 1 / (1 + exp(-(a + b log x))), by the penalised likelihood of
    Firth (1993), which is finite also where all shares are 0 or 1. The interval of -a / b, with
    coverage `LEVEL`, is Fieller's: it is unbounded where b may be 0.

    At x > 0, `count` of n instances have the property. Returns x at one half, low, high; NaN unless
    shares on both sides of one half were observed.
    """
    used = n > 0
    x, count, n = (np.asarray(part, dtype=float)[used] for part in (x, count, n))
    if not ((count < n / 2).any() and (count > n / 2).any()):
        return np.nan, np.nan, np.nan
    centre = np.log(x).mean()
    A = np.stack([np.ones_like(x), np.log(x) - centre], axis=1)
    beta, covariance = _firth(A, count, n)
    at, low, high = np.exp(centre + np.array([-beta[0] / beta[1], *_fieller(beta, covariance)]))
    return float(at), float(low), float(high)


def _firth(A: np.ndarray, count: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the penalised estimate (2,) of a logistic regression and its covariance (2, 2)."""
    beta = np.zeros(2)
    for _ in range(200):
        p = 1 / (1 + np.exp(-A @ beta))
        weight = n * p * (1 - p)
        covariance = np.linalg.inv((A.T * weight) @ A)
        leverage = weight * np.einsum("ki,ij,kj->k", A, covariance, A)
        step = covariance @ (A.T @ (count - n * p + leverage * (0.5 - p)))
        beta = beta + step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < 1e-10:
            break
    return beta, covariance


def _fieller(beta: np.ndarray, covariance: np.ndarray) -> tuple[float, float]:
    """Return the ends of Fieller's interval of -a / b; infinite where b may be 0."""
    (a, b), ((aa, ab), (_, bb)) = beta, covariance
    quadratic = np.array([b * b - Z**2 * bb, 2 * (a * b - Z**2 * ab), a * a - Z**2 * aa])
    if quadratic[0] <= 0:
        return -np.inf, np.inf
    low, high = sorted(np.roots(quadratic).real)
    return float(low), float(high)


def halfway_points(shares: pd.DataFrame, by: Sequence[str], x: str) -> pd.DataFrame:
    """Return one row per group of `by`: where the share is one half as `x` grows (`halfway`).

    `shares` are those of the function of that name; the columns are `by`, used (instances),
    halfway, low, high.
    """
    groups = shares.groupby(list(by), dropna=False, sort=True)
    rows = [
        [*key, part["used"].sum(), *halfway(*part[[x, "count", "used"]].to_numpy(float).T)]
        for key, part in groups
    ]
    return pd.DataFrame(rows, columns=[*by, "used", "halfway", "low", "high"])


def rank_correlation(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Return Spearman's rho of two samples of the same instances, with its interval.

    The interval, of coverage `LEVEL`, is that of Fisher's z with the variance
    (1 + rho^2 / 2) / (N - 3) of Bonett and Wright (2000). Returns rho, low, high; NaN for N < 10,
    or if all values of x or of y are equal.
    """
    if len(x) < 10 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.nan, np.nan, np.nan
    rho = float(spearmanr(x, y).statistic)
    z = np.arctanh(np.clip(rho, -1 + 1e-12, 1 - 1e-12))
    half = Z * np.sqrt((1 + rho**2 / 2) / (len(x) - 3))
    return rho, float(np.tanh(z - half)), float(np.tanh(z + half))
