"""Subjects of the three families with small random hosts, as a notebook would hand them to a panel."""

import pytest
import torch

from analysis.models.families import build
from analysis.probes import Subject, evaluation_task
from analysis.records import Store
from analysis.spec import Family
from tests.probes.conftest import CONFIGS, SAMPLES


def random_host(family):
    torch.manual_seed(0)
    host = build(family, CONFIGS[family]).eval()
    with torch.no_grad():
        for parameter in host.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return host


@pytest.fixture(scope="session")
def studied():
    found = {}
    for family in Family:
        host = random_host(family)
        length = 96 if family is Family.LACT_LM else None
        found[family.value] = Subject(host, evaluation_task(host, SAMPLES[family], length=length))
    return found


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "records")


@pytest.fixture
def open_panel(monkeypatch):
    """Panels that are closed again, with a function that waits until the panel has nothing left to do."""
    monkeypatch.delenv("TTT_ANALYSIS_PANELS", raising=False)
    from analysis import lab

    opened = []

    def make(question, studied, **others):
        panel = lab.panel(question, studied, **others)
        opened.append(panel)
        settle(panel)
        return panel

    yield make
    for panel in opened:
        panel.worker.close()


def settle(panel):
    for _ in range(3):  # opening a checkpoint asks for its views when it is done
        panel.worker.wait()
