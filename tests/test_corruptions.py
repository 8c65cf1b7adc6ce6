"""The corruption family: per-sample seeds, published constants, hand-made oracles."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
from PIL import Image, ImageFilter

from ace_ray.benchmarks import glyphs
from ace_ray.benchmarks.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from ace_ray.errors import UsageError

IMAGES = glyphs.draw(4, np.arange(24))
SEEDS = list(range(100, 124))


def test_the_protocol_has_sixteen_types() -> None:
    assert len(CORRUPTIONS) == 16


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_batch_and_order_never_change_a_pixel(name: str) -> None:
    for severity in (1, 4, 5):
        whole = corrupt(IMAGES, name, severity, SEEDS)
        assert whole.shape == IMAGES.shape
        assert whole.dtype == np.uint8
        some = [17, 3, 8]
        part = corrupt(IMAGES[some], name, severity, [SEEDS[i] for i in some])
        assert (part == whole[some]).all()
        assert (whole != IMAGES).any(axis=(1, 2, 3)).mean() > 0.9


@pytest.mark.parametrize(
    "name", sorted(CORRUPTIONS.keys() - {"elastic_transform", "saturate", "frost"})
)
def test_severity_five_is_further_from_the_image_than_severity_one(name: str) -> None:
    # Not so for three types, by their published constants: see constants.py.
    change = [
        np.abs(corrupt(IMAGES, name, s, SEEDS).astype(float) - IMAGES).mean() for s in SEVERITIES
    ]
    assert change[-1] > change[0]


@pytest.mark.parametrize(
    "name",
    [
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "speckle_noise",
        "glass_blur",
        "fog",
        "frost",
        "spatter",
        "elastic_transform",
    ],
)
def test_random_types_follow_their_seed(name: str) -> None:
    first = corrupt(IMAGES, name, 5, SEEDS)
    assert (corrupt(IMAGES, name, 5, SEEDS) == first).all()
    assert (corrupt(IMAGES, name, 5, SEEDS[::-1]) != first).any()


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", ["brightness", "saturate"])
def test_colour_matches_the_standard_library(name: str, severity: int) -> None:
    add, (scale, shift) = (
        (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1],
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1],
    )
    grey = np.full((1, 32, 32, 3), 90, np.uint8)
    grey[0, :, ::2] = 0
    images = np.concatenate([IMAGES[:1], grey])
    ours = corrupt(images, name, severity, SEEDS[:2])
    for i, y, x in [(i, y, x) for i in range(2) for y in range(0, 32, 5) for x in range(32)]:
        h, s, v = colorsys.rgb_to_hsv(*(images[i, y, x] / 255))
        if name == "brightness":
            expected = colorsys.hsv_to_rgb(h, s, min(v + add, 1))
        else:
            expected = colorsys.hsv_to_rgb(h, min(s * scale + shift, 1), v)
        assert np.abs(ours[i, y, x] - 255 * np.array(expected)).max() <= 1.01


def test_contrast_by_hand() -> None:
    x = IMAGES / 255
    mean = x.mean(axis=(1, 2), keepdims=True)
    expected = np.clip((x - mean) * 0.15 + mean, 0, 1) * 255
    assert np.abs(corrupt(IMAGES, "contrast", 5, SEEDS) - expected).max() <= 1


def test_noise_has_the_published_strength() -> None:
    grey = np.full((200, 32, 32, 3), 128, np.uint8)
    seeds = range(200)
    noise = corrupt(grey, "gaussian_noise", 5, seeds) / 255 - 128 / 255
    assert noise.std() == pytest.approx(0.10, rel=0.02)
    shot = corrupt(grey, "shot_noise", 5, seeds) / 255
    assert shot.std() == pytest.approx(np.sqrt(128 / 255 / 50), rel=0.02)
    speckle = corrupt(grey, "speckle_noise", 3, seeds) / 255
    assert speckle.std() == pytest.approx(0.12 * 128 / 255, rel=0.02)
    impulse = corrupt(grey, "impulse_noise", 5, seeds)
    assert (impulse != 128).mean() == pytest.approx(0.07, rel=0.03)
    assert (impulse == 255).mean() == pytest.approx(0.035, rel=0.05)


def test_pixelate_is_pillow_s() -> None:
    shown = corrupt(IMAGES, "pixelate", 5, SEEDS)
    for image, ours in zip(IMAGES, shown, strict=True):
        small = Image.fromarray(image).resize((20, 20), Image.Resampling.BOX)
        assert (np.asarray(small.resize((32, 32), Image.Resampling.BOX)) == ours).all()


def test_gaussian_blur_matches_a_direct_sum() -> None:
    x = np.pad(IMAGES[0] / 255, ((4, 4), (4, 4), (0, 0)), mode="edge")
    tap = np.exp(-0.5 * np.arange(-4, 5) ** 2.0)
    kernel = np.outer(tap, tap) / tap.sum() ** 2
    expected = sum(kernel[i, j] * x[i : i + 32, j : j + 32] for i in range(9) for j in range(9))
    assert np.abs(corrupt(IMAGES[:1], "gaussian_blur", 5, [0])[0] - 255 * expected).max() <= 1
    # And in spirit with another library's.
    other = Image.fromarray(IMAGES[0]).filter(ImageFilter.GaussianBlur(1))
    inner = np.s_[4:-4, 4:-4]
    gap = corrupt(IMAGES[:1], "gaussian_blur", 5, [0])[0][inner] - np.asarray(other, float)[inner]
    assert np.abs(gap).mean() < 3


def test_unknown_names_and_severities_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'fog'"):
        corrupt(IMAGES, "fogg", 1, SEEDS)
    with pytest.raises(UsageError, match="1 to 5"):
        corrupt(IMAGES, "fog", 6, SEEDS)
