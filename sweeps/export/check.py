"""Prove exported SVMs in exact arithmetic: `python check.py [FILE ...]`. It needs only Python.

A file has tokens X, queries Z, and rows (s, t, i, a): (X_s - X_t)^T W Z_i >= 1, with multiplier a.
The SVM is min norm(W) over these. With all a >= 0, and mu > 0 the least left side of a given W,

    sum a / dual_norm(M) <= least norm <= norm(W) / mu,    M = sum a (X_s - X_t) Z_i^T.

Proved of a solved SVM: `lower` is at most the left side, `upper` at least the right side, and they
are 1e-8 apart. Of an infeasible one: sum a max|X_s - X_t| max|Z_i| >= 1e12 max|M|.
"""

import json
import sys
from fractions import Fraction
from math import sqrt
from pathlib import Path


def times(A, B):
    """Return A B^T; denominators are powers of two, so that the largest is a common one."""
    p, q = (max(x.denominator for row in matrix for x in row) for matrix in (A, B))
    A, B = ([[int(x * c) for x in row] for row in matrix] for matrix, c in ((A, p), (B, q)))
    dots = ([sum(x * y for x, y in zip(row, column, strict=True)) for column in B] for row in A)
    return [[Fraction(dot, p * q) for dot in row] for row in dots]


def root(x):
    """Return an upper bound of the square root; (x / c + c) / 2 is one for any c > 0."""
    c = Fraction(sqrt(x))
    return (x / c + c) / 2


def length(A, _=None):
    return root(sum(x * x for row in A for x in row))


def nuclear(A, svm):
    """|A|_* <= |K| |Q| + sum_ij |A - K Q^T|_ij."""
    pairs = zip(A, times(svm["K"], svm["Q"]), strict=True)
    rest = sum(abs(x - y) for rows in pairs for x, y in zip(*rows, strict=True))
    return length(svm["K"]) * length(svm["Q"]) + rest


def spectral(A, svm):
    """|A|_op^2 <= |A^T A + L L^T|_op, at most the largest row sum."""
    both = [[*column, *row] for column, row in zip(zip(*A, strict=True), svm["L"], strict=True)]
    return root(max(sum(map(abs, row)) for row in times(both, both)))


NORMS = {"frobenius": (length, length), "nuclear": (nuclear, spectral)}
NORMS["spectral"] = NORMS["nuclear"][::-1]


def proved(text: str) -> bool:
    """Return whether the SVM in the text of a file is proved; an exception also says no."""
    svm = json.loads(text, parse_float=lambda number: Fraction(float(number)))
    X, Z, (s, t, i, a) = svm["X"], svm["Z"], zip(*svm["rows"], strict=True)
    D = [[x - y for x, y in zip(X[j], X[k], strict=True)] for j, k in zip(s, t, strict=True)]
    weighted = [[x * y for x, y in zip(a, column, strict=True)] for column in zip(*D, strict=True)]
    M = times(weighted, [*zip(*(Z[j] for j in i), strict=True)])
    if svm["status"] == "infeasible":
        reach = sum(a[k] * max(map(abs, d)) * max(map(abs, Z[i[k]])) for k, d in enumerate(D))
        return min(a) >= 0 < sum(a) and reach >= 10**12 * max(abs(x) for row in M for x in row)
    moved, (norm, dual) = times(Z, svm["W"]), NORMS[svm["norm"]]
    mu = min(times([d], [moved[j]])[0][0] for d, j in zip(D, i, strict=True))
    lower, upper = sum(a) / dual(M, svm), norm(svm["W"], svm) / mu
    near = svm["lower"] * (1 + Fraction(1, 10**8))
    return min(a) >= 0 < svm["lower"] <= lower and 0 < upper <= svm["upper"] <= near


if __name__ == "__main__":
    files = sys.argv[1:] or sorted(map(str, Path(__file__).parent.glob("instances/*.json")))
    refused = []
    for file in files:
        try:
            refused += [] if proved(Path(file).read_text()) else [file]
        except Exception as error:  # whatever is in a file, the others are proved
            refused += [f"{file} ({error!r})"]
    print(f"{len(files) - len(refused)} of {len(files)} SVMs proved")
    sys.exit(f"REFUSED: {', '.join(refused)}" if refused or not files else 0)
