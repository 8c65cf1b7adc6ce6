"""What no machine can give is said, not waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ace_ray.errors import ConfigError
from ace_ray.feasible import need_node
from ace_ray.session import ray_session


@pytest.fixture(scope="module", autouse=True)
def two_cpus() -> Iterator[None]:
    with ray_session(2):
        yield


def test_what_there_is_may_be_asked_for() -> None:
    need_node({"CPU": ("cpus_per_trial", 2), "GPU": ("gpus_per_predictor", 0)})


@pytest.mark.parametrize(
    ("name", "key", "amount", "shown"),
    [
        ("CPU", "cpus_per_trial", 2.5, "2.5 CPUs, the largest node has 2"),
        ("GPU", "gpus_per_predictor", 1, "1 GPUs, the largest node has 0"),
        ("memory", "memory_per_predictor", 10**15, "1,000,000,000,000,000 bytes"),
    ],
)
def test_a_local_ray_will_never_have_more(name: str, key: str, amount: float, shown: str) -> None:
    with pytest.raises(ConfigError, match=f"resources.{key}: {shown}"):
        need_node({"CPU": ("cpus_per_predictor", 0.5), name: (key, amount)})


def test_a_cluster_may_grow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:6379")
    need_node({"GPU": ("gpus_per_predictor", 1)})
    assert capsys.readouterr().err.startswith("waiting for a node that is large enough (resources.")
