"""Corruptions with the ImageNet constants at 224 pixels against `imagecorruptions`, its oracle."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from ace_ray.benchmarks.corruptions import CORRUPTIONS, SEVERITIES, corrupt

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("ACE_RAY_SHARED", ROOT.parent / "shared")) / "data"
DETERMINISTIC = (
    "brightness",
    "contrast",
    "defocus_blur",
    "gaussian_blur",
    "jpeg_compression",
    "pixelate",
    "saturate",
    "zoom_blur",
)
RANDOM = tuple(name for name in CORRUPTIONS if name not in DETERMINISTIC)
# Few draws tell the mean change of these; the others vary much more from draw to draw.
STEADY = (
    "elastic_transform",
    "gaussian_noise",
    "glass_blur",
    "impulse_noise",
    "shot_noise",
    "snow",
    "speckle_noise",
)


@pytest.fixture(scope="module")
def package():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package's own, and its dependencies'
        return pytest.importorskip(
            "imagecorruptions", reason="`pip install imagecorruptions-imaug` (the dev extra)"
        )


def synthetic() -> np.ndarray:
    """Clouds at three scales with hard edges, coloured and in the full range."""
    rng = np.random.default_rng(0)
    clouds = sum(
        s * ndimage.gaussian_filter(rng.normal(size=(4, 224, 224, 3)), (0, s, s, 0))
        for s in (2, 8, 30)
    )
    clouds[:, 60:120, 30:150] += rng.normal(size=(4, 1, 1, 3))
    clouds[:, 150:153] -= 1
    low, high = np.quantile(clouds, [0.02, 0.98])
    return (np.clip((clouds - low) / (high - low), 0, 1) * 255).astype(np.uint8)


def photographs() -> np.ndarray:
    folder = SHARED / "imagenet" / "val"
    files = sorted(folder.glob("*/*.JPEG"))[::37][:6] or sorted(folder.glob("*/*"))[::37][:6]
    if not files:
        pytest.skip(f"no photographs in {folder}; set ACE_RAY_SHARED")
    out = []
    for file in files:
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        shrink = 256 / min(image.size)
        image = image.resize([max(256, round(side * shrink)) for side in image.size])
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        out.append(np.asarray(image.crop((left, top, left + 224, top + 224))))
    return np.stack(out)


@pytest.fixture(scope="module", params=[synthetic, photographs], ids=lambda f: f.__name__)
def images(request: pytest.FixtureRequest) -> np.ndarray:
    return request.param()


def theirs(package, image: np.ndarray, name: str, severity: int, seed: int) -> np.ndarray:
    np.random.seed(seed)  # noqa: NPY002 - the package draws from the global generator
    seeded = {"seed": seed} if name in ("glass_blur", "impulse_noise") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return package.corrupt(image, corruption_name=name, severity=severity, **seeded)


def ours(images: np.ndarray, name: str, severity: int, seeds: list[int]) -> np.ndarray:
    return corrupt(images, name, severity, seeds, constant_set="imagenet-c", textures="package")


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_deterministic_types_agree_within_one_level(package, images, name: str) -> None:
    for severity in SEVERITIES:
        got = ours(images, name, severity, list(range(len(images))))
        expected = np.stack([theirs(package, x, name, severity, 0) for x in images])
        assert np.abs(got.astype(int) - expected).max() <= 1


# Not pixelate: where a pixel's centre lies between two blocks, the published code (and we) and the
# package choose differently. None does at 224 pixels.
@pytest.mark.parametrize("name", sorted(set(DETERMINISTIC) - {"pixelate"}))
def test_sides_may_differ(package, name: str) -> None:
    image = synthetic()[:1, :96, :161]
    got = ours(image, name, 3, [0])[0].astype(int)
    assert np.abs(got - theirs(package, image[0], name, 3, 0)).max() <= 1


def compare(package, images: np.ndarray, name: str, severity: int) -> tuple[float, float, int]:
    """Return ours / theirs in mean change, its standard error and the draws per image.

    Draws are added until the error is 1.25 %, so that 5 % is four of them.
    """
    ours_change: list[np.ndarray] = []
    their_change: list[np.ndarray] = []
    for draw in range(700):
        seeds = [1000 * draw + i for i in range(len(images))]
        got = ours(images, name, severity, seeds)
        other = np.stack(
            [theirs(package, x, name, severity, s) for x, s in zip(images, seeds, strict=True)]
        )
        ours_change.append(np.abs(got.astype(float) - images).mean(axis=(1, 2, 3)))
        their_change.append(np.abs(other.astype(float) - images).mean(axis=(1, 2, 3)))
        if draw < 3:
            continue
        a, b = np.array(ours_change), np.array(their_change)
        variance = (a.var(axis=0, ddof=1) + b.var(axis=0, ddof=1)).sum() / len(a)
        error = np.sqrt(variance) / len(images) / b.mean()
        if error < 0.0125:
            break
    return a.mean() / b.mean(), error, len(a)


@pytest.mark.parametrize("name", STEADY)
def test_steady_types_change_images_as_much(package, name: str) -> None:
    for severity in SEVERITIES:
        ratio, error, _ = compare(package, synthetic(), name, severity)
        assert error < 0.0125
        assert ratio == pytest.approx(1, abs=0.05), (severity, ratio)


@pytest.mark.slow
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", RANDOM)
def test_random_types_change_images_as_much(package, images, name: str, severity: int) -> None:
    ratio, error, draws = compare(package, images, name, severity)
    print(f"\n{name} {severity}: ours/package {ratio:.4f} +- {error:.4f}, {draws} draws per image")
    assert error < 0.0125
    assert ratio == pytest.approx(1, abs=0.05)


def test_glass_blur_scatters_as_one_copy_after_the_other() -> None:
    from ace_ray.benchmarks.corruptions.draws import Draws
    from ace_ray.benchmarks.corruptions.glass import blur_and_scatter

    h, w, reach, passes = 40, 33, 3, 2
    images = np.random.default_rng(0).integers(0, 256, (2, h, w, 3), np.uint8)
    # So narrow a blur has one tap and changes nothing.
    got = blur_and_scatter(images, 0.01, reach, passes, Draws([5, 6]))
    for sample, seed in enumerate((5, 6)):
        draws = Draws([seed])
        pixels = images[sample].copy()
        for _ in range(passes):
            rows, columns = range(reach + 1, h - reach + 1), range(reach + 1, w - reach + 1)
            bits = draws.bits(np.uint16, len(rows), len(columns))[0].astype(int)
            pick = bits * (2 * reach) ** 2 >> 16
            for y in reversed(rows):
                for x in reversed(columns):
                    move = divmod(int(pick[y - reach - 1, x - reach - 1]), 2 * reach)
                    pixels[y, x] = pixels[y + move[0] - reach, x + move[1] - reach]
        assert (got[sample] == pixels).all()


@pytest.mark.parametrize("sigma", [0.4, 0.9, 1.5])
def test_glass_blur_blurs_as_scipy(sigma: float) -> None:
    from ace_ray.benchmarks.corruptions.draws import Draws
    from ace_ray.benchmarks.corruptions.glass import blur_and_scatter

    images = np.random.default_rng(1).integers(0, 256, (3, 37, 45, 3), np.uint8)
    expected = images
    for _ in range(2):
        expected = ndimage.gaussian_filter(
            expected.astype(float), (0, sigma, sigma, 0), mode="nearest"
        )
        expected = np.floor(expected)
    got = blur_and_scatter(images, sigma, 1, 0, Draws([0, 1, 2]))
    # A sum within rounding of a whole number may be cut off on either side of it.
    assert np.abs(got - expected).max() <= 1
    assert (got != expected).mean() < 0.002


def test_edges_are_opencv_s() -> None:
    cv2 = pytest.importorskip("cv2", reason="opencv comes with imagecorruptions-imaug")
    from ace_ray.benchmarks.corruptions.spatter import _distance, _edges

    rng = np.random.default_rng(0)
    drops = ndimage.gaussian_filter(rng.normal(0.65, 0.3, (6, 90, 120)), (0, 2, 2))
    levels = np.floor(np.where(drops < 0.68, 0, drops) * 255).astype(np.float32)
    expected = np.stack([cv2.Canny(x.astype(np.uint8), 50, 150) > 0 for x in levels])
    found = _edges(levels)
    assert expected.mean() > 0.02
    assert (found != expected).mean() < 1e-4
    exact = np.stack([ndimage.distance_transform_edt(~x) for x in found])
    assert np.allclose(_distance(found), np.minimum(exact, 20), atol=1e-4)
