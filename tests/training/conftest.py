"""One toy corpus and one task per family for all training tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.spec import Family


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    from tests.training.toys import write_corpus

    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def task(corpus):
    from tests.training.toys import task_of

    return lambda family: task_of(Family(family), corpus)
