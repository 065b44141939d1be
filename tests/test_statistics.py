"""Intervals and equivalence tests against their definitions and their promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from analysis.errors import ParameterError
from analysis.statistics import interval, median_interval, tost


def test_t_interval_is_the_textbook_one():
    values = [1.0, 2.0, 4.0]
    found = interval(values)
    half = 4.302652729911275 * np.std(values, ddof=1) / math.sqrt(3)
    assert found.mean == pytest.approx(7 / 3)
    assert (found.low, found.high) == pytest.approx((7 / 3 - half, 7 / 3 + half))
    assert found.fields == {"value": found.mean, "ci_low": found.low, "ci_high": found.high}


@pytest.mark.parametrize(("method", "count"), [("t", 5), ("bootstrap", 60)])
def test_intervals_hold_the_true_mean_about_as_often_as_they_say(method, count):
    rng = np.random.default_rng(1)
    trials = 300 if method == "t" else 60
    hits = sum(
        found.low <= 3.0 <= found.high
        for found in (interval(3 + rng.normal(size=count), method) for _ in range(trials))
    )
    assert 0.88 <= hits / trials <= 1.0


def test_bootstrap_repeats_itself_and_follows_its_seed():
    values = np.random.default_rng(0).exponential(size=40)
    assert interval(values, "bootstrap") == interval(values, "bootstrap")
    assert interval(values, "bootstrap") != interval(values, "bootstrap", seed=1)


@pytest.mark.parametrize("method", ["t", "bootstrap"])
def test_equal_values_have_an_interval_of_one_point(method):
    found = interval([0.1] * 5, method)
    assert found.low == found.high == found.mean


@pytest.mark.parametrize(
    ("values", "options", "sentence"),
    [
        ([1.0], {}, "at least two"),
        ([1.0, math.nan], {}, "must be finite"),
        ([1.0, 2.0], {"method": "guess"}, "t or bootstrap"),
        ([1.0, 2.0], {"confidence": 95}, "between 0 and 1"),
    ],
)
def test_bad_input_is_refused(values, options, sentence):
    with pytest.raises(ParameterError, match=sentence):
        interval(values, **options)


def test_tost_is_two_one_sided_welch_tests():
    rng = np.random.default_rng(2)
    a, b = rng.normal(0, 1, 12), rng.normal(0.1, 2, 20)
    lower = stats.ttest_ind(a + 1.5, b, equal_var=False, alternative="greater").pvalue
    upper = stats.ttest_ind(a - 1.5, b, equal_var=False, alternative="less").pvalue
    found = tost(a, b, 1.5)
    assert found.p_value == pytest.approx(max(lower, upper))
    assert found.equivalent == (max(-found.low, found.high) < 1.5)


def test_tost_finds_equivalence_difference_and_ignorance():
    rng = np.random.default_rng(3)
    a = rng.normal(0, 1, 200)
    assert tost(a, rng.normal(0, 1, 200), 0.5).equivalent
    assert not tost(a, rng.normal(1, 1, 200), 0.5).equivalent
    assert not tost(a[:3], rng.normal(0, 1, 3), 0.5).equivalent


def test_tost_without_any_spread():
    assert tost([1.0, 1.0], [1.1, 1.1], 0.2).equivalent
    assert not tost([1.0, 1.0], [1.3, 1.3], 0.2).equivalent


@pytest.mark.parametrize(("margin", "alpha"), [(0.0, 0.05), (-1.0, 0.05), (math.inf, 0.05), (1.0, 0.7)])
def test_tost_refuses_a_margin_or_level_out_of_range(margin, alpha):
    with pytest.raises(ParameterError):
        tost([1.0, 2.0], [1.0, 2.0], margin, alpha=alpha)


def test_the_interval_of_a_median_holds_it_about_nineteen_times_in_twenty():
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        samples = draw.lognormal(size=25)
        low, high = median_interval(samples)
        assert low <= np.median(samples) <= high
        held += low <= 1.0 <= high
    assert 0.94 < held / 2000 < 0.98


def test_few_samples_have_no_interval():
    assert median_interval([1.0, 2.0, 3.0]) == (None, None)
    assert median_interval(list(range(6))) == (0, 5)
