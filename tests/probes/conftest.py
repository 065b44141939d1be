"""Small random hosts of the three families, with tasks that fit them and a store of their own."""

import pytest
import torch

from analysis.models.families import build
from analysis.models.lact_lm_config import LaCTLMConfig
from analysis.models.lact_nvs_config import lact_nvs_config
from analysis.models.vittt_config import ViTTTConfig
from analysis.probes import evaluation_task
from analysis.records import Store
from analysis.spec import Family

CONFIGS = {
    Family.LACT_LM: LaCTLMConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attn_heads=2,
        num_lact_heads=2,
        use_muon=True,
        lact_chunk_size=16,
        window_size=16,
        vocab_size=1024,
        intermediate_size=48,
    ),
    Family.LACT_NVS: lact_nvs_config(
        layers=2, dim=32, attention_head_dim=16, head_dim=32, inter_multi=2, mlp_multi=2
    ),
    Family.VITTT: ViTTTConfig(img_size=48, patch_size=8, num_classes=16, embed_dim=32, depth=2, num_heads=2),
}
SAMPLES = {Family.LACT_LM: 4, Family.LACT_NVS: 6, Family.VITTT: 24}


def _host(family):
    torch.manual_seed(0)
    host = build(family, CONFIGS[family]).eval()
    with torch.no_grad():
        for parameter in host.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return host


@pytest.fixture(scope="session", params=list(Family), ids=lambda family: family.value)
def case(request):
    """A host and its task."""
    host = _host(request.param)
    length = 64 if request.param is Family.LACT_LM else None
    return host, evaluation_task(host, SAMPLES[request.param], length=length)


@pytest.fixture(scope="session")
def language():
    """The language model and its task."""
    host = _host(Family.LACT_LM)
    return host, evaluation_task(host, 4, length=64)


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return Store(tmp_path)
