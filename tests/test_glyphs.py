"""The embedded benchmark: drawn by index, the same for everyone, with a real network on top."""

from __future__ import annotations

import numpy as np
import pytest

from ace_ray.benchmarks import glyphs
from ace_ray.benchmarks.locate import Located
from ace_ray.errors import IntegrityError
from ace_ray.models import registry
from ace_ray.models.config import ModelConfig


def test_a_sample_does_not_depend_on_its_batch() -> None:
    whole = glyphs.draw(4, np.arange(40))
    assert whole.shape == (40, 32, 32, 3)
    assert (glyphs.draw(4, np.array([31, 7])) == whole[[31, 7]]).all()


def test_splits_and_samples_differ() -> None:
    images = np.concatenate([glyphs.draw(seed, np.arange(20)) for seed in glyphs.SEEDS.values()])
    assert len(np.unique(images.reshape(80, -1), axis=0)) == 80


def test_classes_are_balanced_and_independent_of_position() -> None:
    labels = glyphs.labels(3, np.arange(36_000))
    counts = np.bincount(labels, minlength=36)
    assert counts.min() > 850
    assert counts.max() < 1150
    assert abs(np.corrcoef(labels[1:], labels[:-1])[0, 1]) < 0.02


def test_the_published_splits() -> None:
    splits = Located([], None).splits("glyphs")
    sizes = {(s.role, s.rows) for s in splits}
    assert sizes == {("calibration", 5000), ("id", 5000), ("ood", 2000)}
    assert len([s for s in splits if s.role == "ood"]) == 16 * 5
    assert all(len(s.samples.sample_id.unique()) == s.rows for s in splits)
    assert "gaussian_noise/5" in {s.name for s in splits}


def test_the_shipped_network_is_right_about_four_times_in_five_and_overconfident() -> None:
    import torch

    from ace_ray.models.predictor import Predictor

    torch.set_num_threads(1)
    index = np.arange(1500)
    model = registry.resolve(ModelConfig(name=registry.GLYPHS))
    predict = Predictor(model, registry.weights_of(model))
    logits = predict(glyphs.draw(glyphs.SEEDS["test"], index)).logits
    correct = logits.argmax(1) == glyphs.labels(glyphs.SEEDS["test"], index)
    p = np.exp(logits - logits.max(1, keepdims=True))
    confidence = p.max(1) / p.sum(1)
    assert 0.75 <= correct.mean() <= 0.85
    assert confidence.mean() > correct.mean() + 0.05


def test_weights_are_small_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    model = registry.resolve(ModelConfig(name=registry.GLYPHS))
    (data,) = registry.weights_of(model)
    assert len(data) <= 2_000_000
    monkeypatch.setattr(registry, "digest", lambda _: "0" * 64)
    with pytest.raises(IntegrityError, match="installation is damaged"):
        registry.weights_of(model)
