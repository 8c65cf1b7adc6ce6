"""Constants of CIFAR-10-C (Hendrycks & Dietterich, 2019), severities 1 to 5, 32 pixels."""

from __future__ import annotations

from typing import Final

CIFAR10_C: Final[dict[str, tuple[float | tuple[float, ...], ...]]] = {
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
    # weight of the image, weight of the ice
    "frost": ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1.0),  # sigma
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),  # sigma
    # sigma, reach, passes
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),  # share of values replaced
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),  # share of the side kept
    # factor and offset of the saturation channel
    "saturate": ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
    "shot_noise": (500, 250, 100, 75, 50),  # photons at full brightness
    # mean, sigma, smoothing, threshold, strength or smoothing of the drops, 0 water / 1 mud
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1.0, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),  # sigma, relative
    "zoom_blur": (1.06, 1.11, 1.16, 1.21, 1.26),  # end (exclusive) of the zoom factors, step 0.01
}
