"""The two published sets of constants (Hendrycks & Dietterich, 2019), severities 1 to 5.

CIFAR10_C is that of CIFAR-10-C (32 pixels). IMAGENET_C is that of ImageNet-C (224 pixels), except
for elastic_transform and the pictures of frost, which are those of the `imagecorruptions` package:
see docs/corruptions.md.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

ConstantSet: TypeAlias = Literal["cifar10-c", "imagenet-c"]
Table: TypeAlias = dict[str, tuple[float | tuple[float, ...], ...]]

CIFAR10_C: Final[Table] = {
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),  # added to the value channel
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),  # factor around the mean
    # radius, sigma of the anti-aliasing
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
    # displacement, its smoothing, corner jitter: all as a share of the side
    "elastic_transform": (
        (0.0, 0.0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
    # strength, decay of the fractal
    "fog": ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
    # weights of the image and of the ice, least scale and number of the pictures of ice
    "frost": (
        (1.0, 0.2, 0.2, 5),
        (1.0, 0.3, 0.2, 5),
        (0.9, 0.4, 0.2, 5),
        (0.85, 0.4, 0.2, 5),
        (0.75, 0.45, 0.2, 5),
    ),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1.0),  # sigma
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),  # sigma
    # sigma, reach, passes
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),  # share of values replaced
    "jpeg_compression": (80, 65, 58, 50, 40),  # quality
    "motion_blur": ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),  # radius, sigma
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),  # share of the side kept
    # factor and offset of the saturation channel
    "saturate": ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
    "shot_noise": (500, 250, 100, 75, 50),  # photons at full brightness
    # mean, sigma, zoom and threshold of the flakes, radius and sigma of their fall, image's weight
    "snow": (
        (0.1, 0.2, 1.0, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    # mean, sigma, smoothing, threshold, strength or smoothing of the drops, 0 water / 1 mud
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1.0, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),  # sigma, relative
    # end (exclusive) and step of the zoom factors
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
}

IMAGENET_C: Final[Table] = {
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "elastic_transform": (
        (0.0625, 0.01, 0.0),
        (0.08125, 0.01, 0.0),
        (0.10625, 0.01, 0.0),
        (0.125, 0.01, 0.0),
        (0.15, 0.01, 0.0),
    ),
    "fog": ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
    "frost": (
        (1.0, 0.4, 1.1, 6),
        (0.8, 0.6, 1.1, 6),
        (0.7, 0.7, 1.1, 6),
        (0.65, 0.7, 1.1, 6),
        (0.6, 0.75, 1.1, 6),
    ),
    "gaussian_blur": (1, 2, 3, 4, 6),
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
    "jpeg_compression": (25, 18, 15, 10, 7),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
    "saturate": ((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
    "shot_noise": (60, 25, 12, 5, 3),
    "snow": (
        (0.1, 0.3, 3.0, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2.0, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4.0, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "spatter": (
        (0.65, 0.3, 4.0, 0.69, 0.6, 0),
        (0.65, 0.3, 3.0, 0.68, 0.6, 0),
        (0.65, 0.3, 2.0, 0.68, 0.5, 0),
        (0.65, 0.3, 1.0, 0.65, 1.5, 1),
        (0.67, 0.4, 1.0, 0.65, 1.5, 1),
    ),
    "speckle_noise": (0.15, 0.2, 0.35, 0.45, 0.6),
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
}

TABLES: Final[dict[str, Table]] = {"cifar10-c": CIFAR10_C, "imagenet-c": IMAGENET_C}
CONSTANT_SETS: Final[tuple[str, ...]] = tuple(TABLES)
