import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control, spearmanr, ttest_1samp

from attnsvm.sweeps import statistics


def frame(**columns):
    return pd.DataFrame(columns)


FLAGS = pd.Series([True, None, False, None], dtype="boolean")


@pytest.mark.parametrize(
    ("values", "result"),
    [
        ([2.0, np.nan, 4.0, np.nan], 3.0),
        ([2.0, np.inf, 4.0, -np.inf], 3.0),
        (pd.Series([2, None, 4, None], dtype="Int64"), 3.0),
        (FLAGS, 0.5),
    ],
)
def test_what_is_not_known_is_counted_and_in_no_statistic(values, result):
    """Also in groups that are called like an aggregate, or without groups."""
    rows = frame(size=[1, 1, 1, 2], value=values)
    share = values is FLAGS
    summary, name = (statistics.shares, "share") if share else (statistics.summaries, "mean")
    table = summary(rows, ["size"], "value")
    assert table[["used", "excluded"]].to_numpy().tolist() == [[2, 1], [0, 1]]
    assert table[name][0] == result
    assert table.loc[1, [name, "low", "high"]].isna().all()
    whole = summary(rows, [], "value")
    assert whole[["used", "excluded", name]].to_numpy().tolist() == [[2, 2, result]]


def test_one_value_has_no_interval_and_equal_ones_have_their_value():
    table = statistics.summaries(frame(d=[1] + [2] * 7, x=[0.1] * 8), ["d"], "x")
    assert table.loc[0, ["std", "low", "high"]].isna().all()
    assert table.loc[1, ["mean", "median", "low", "high", "std"]].tolist() == [0.1] * 4 + [0.0]


def test_missing_keys_form_a_group_and_empty_frames_give_empty_tables_with_the_columns():
    rows = frame(m=[np.nan, np.nan, 4.0], x=[1.0, 3.0, 5.0])
    assert statistics.summaries(rows, ["m"], "x")["mean"].tolist() == [5.0, 2.0]
    assert statistics.counts(rows, ["m"])["count"].tolist() == [1, 2]
    for summary in (statistics.summaries, statistics.shares):
        empty = summary(rows.iloc[:0], ["m"], "x")
        assert empty.columns[:3].tolist() == ["m", "used", "excluded"]


@pytest.mark.parametrize(("name", "statistic"), [("mean", np.mean), ("median", np.median)])
def test_the_bootstrap_interval_is_that_of_seeded_resamples(name, statistic):
    values = np.random.default_rng(1).normal(size=31)
    low, high = statistics.bootstrap_interval(values[None], name)
    draws = np.random.default_rng([0, 31]).integers(0, 31, size=(statistics.RESAMPLES, 31))
    expected = np.quantile(statistic(values[draws], axis=1), [0.025, 0.975])
    np.testing.assert_allclose([low[0], high[0]], expected, rtol=1e-12)


def test_the_interval_of_a_slope_is_that_of_resampled_instances():
    """Of whole rows: an error that all values of an instance share moves no slope."""
    x, rng = np.arange(5.0), np.random.default_rng(0)
    own = np.exp(-0.7 * x + rng.normal(size=(40, 1)))
    assert statistics.slope(x, own)[:3] == pytest.approx((-0.7,) * 3)
    values = own * np.exp(rng.normal(size=own.shape))
    rows = np.random.default_rng(0).integers(0, 40, size=(statistics.RESAMPLES, 40))
    slopes = np.polyfit(x, np.log(np.median(values[rows], axis=1)).T, 1)[0]
    ends = np.quantile(slopes, [0.025, 0.975])
    np.testing.assert_allclose(statistics.slope(x, values)[1:3], ends, rtol=1e-9)
    values[0, 1] = np.nan  # then each column is resampled by itself
    _, low, high, _ = statistics.slope(x, values)
    assert high - low > ends[1] - ends[0]
    assert np.isnan(statistics.slope(x, own[:1])[1:3]).all()


def test_a_share_of_nothing_or_all_has_an_exact_end_and_one_without_instances_none():
    low, high = statistics.wilson_interval(np.array([0, 7, 3, 0]), np.array([9, 7, 400, 0]))
    assert (low[0], high[1]) == (0, 1)
    assert low[2] < 3 / 400 < high[2]
    assert np.isnan([low[3], high[3]]).all()


def test_the_mean_of_differences_is_students_t():
    rows = frame(d=[1] * 6 + [2], value=[1.0, 2.0, 3.0, 4.0, 5.0, np.nan, 1.0])
    table = statistics.paired_means(rows, ["d"], "value").set_index("d")
    assert table.loc[1, ["used", "excluded", "mean"]].tolist() == [5, 1, 3.0]
    p = ttest_1samp([1, 2, 3, 4, 5], 0, alternative="greater").pvalue
    ends = ttest_1samp([1, 2, 3, 4, 5], 0).confidence_interval(0.95)
    names = ["low", "high", "p_value"]
    np.testing.assert_allclose(table.loc[1, names].astype(float), [*ends, p], rtol=1e-9)
    assert table.loc[2, names].isna().all()
    for value, p in ((1.0, 0.0), (0.0, 1.0), (-1.0, 1.0)):  # equal ones have no spread
        same = statistics.paired_means(frame(value=[value] * 3), [], "value")
        assert same[names].to_numpy().tolist() == [[value, value, p]]


def test_half_way_of_exact_shares_is_where_they_are_one_half():
    """Shares of a logistic curve in log x, of so many instances that the penalty is nothing."""
    x = 2.0 ** np.arange(-3, 8)
    n = np.full(x.size, 1e9)
    for middle, slope in ((5.0, 2.0), (3.3, 0.7)):
        count = n / (1 + (middle / x) ** slope)
        halfway, low, high = statistics.halfway(x, count, n)
        assert halfway == pytest.approx(middle, rel=1e-6)
        assert low < halfway < high < low * 1.001


def test_half_way_is_finite_where_all_shares_are_zero_or_one_and_needs_both_sides():
    x, n = np.array([1.0, 2.0, 4.0, 8.0]), np.full(4, 100)
    halfway, low, high = statistics.halfway(x, np.array([0, 0, 100, 100]), n)
    assert halfway == pytest.approx(np.sqrt(8), rel=1e-9)  # by symmetry, in log x
    assert 2 < low < halfway < high < 4
    for count, of in (([0, 10, 40, 45], n), ([60, 80, 90, 100], n), (0 * n, 0 * n)):
        assert np.isnan(statistics.halfway(x, np.array(count), of)).all()


def test_the_interval_of_half_way_covers_it_as_often_as_it_says():
    x, middle = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0]), 4.5
    counts = np.random.default_rng(0).binomial(40, 1 / (1 + (middle / x) ** 3), (400, x.size))
    ends = np.array([statistics.halfway(x, count, np.full(x.size, 40))[1:] for count in counts])
    hits = (ends[:, 0] <= middle) & (middle <= ends[:, 1])
    assert 0.91 <= hits.mean() <= 0.985  # 95 % +- 3 standard errors, and its own bias


def test_the_rank_correlation_is_that_of_scipy_and_its_interval_shrinks():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    y = x + rng.normal(size=400)
    rho, low, high = statistics.rank_correlation(x, y)
    assert rho == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert statistics.rank_correlation(np.exp(x), y**3) == (rho, low, high)
    assert low < rho < high
    assert statistics.rank_correlation(x, x)[0] == pytest.approx(1, abs=1e-12)
    for few, flat in ((x[:9], y[:9]), (x, 0 * x)):
        assert np.isnan(statistics.rank_correlation(few, flat)).all()


def test_what_was_not_tested_is_not_counted_among_many_tests():
    p = np.array([np.nan, 0.02, 0.5, 0.03])
    adjusted = statistics.false_discovery(p, any_dependence=True)
    expected = false_discovery_control(p[1:], method="by")
    np.testing.assert_array_equal(adjusted, [np.nan, *expected])
