"""From images to logits: the network behind a model, on the best device of this worker."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Literal, NamedTuple

import numpy as np
import torch
from timm.layers import DropPath
from torch import nn

from ace_ray.arrays import FloatArray, ImageArray
from ace_ray.errors import DataError, UsageError
from ace_ray.models.checkpoint import fill, load_state
from ace_ray.models.network import build
from ace_ray.models.registry import MC_CODE, Model

# Pixels per batch, and the fewest and most images. On a CPU activations should stay in the cache
# (measured: docs/models.md); a GPU wants many.
_CPU_BATCH: Final = (2**16, 4, 64)
_GPU_BATCH: Final = (2**24, 8, 1024)
_PROBES: Final = 8  # images on which stochastic passes must differ
_NO_MEMORY: Final = ("out of memory", "not enough memory", "can't allocate memory")


class Prediction(NamedTuple):
    """What a network says about images."""

    logits: FloatArray  # (N, C) float32; of several passes: the log of the mean probability
    features: FloatArray | None  # (N, F) float32, the last layer's input


class _Member(NamedTuple):
    network: nn.Module
    mean: torch.Tensor
    std: torch.Tensor


class Predictor:
    """A loaded model in evaluation mode.

    Args:
        model: What to load.
        weights: As `weights_of` returns them.
        precision: "mixed" runs in float16 where that is safe; needs a GPU.
        features: Also return the last layer's input.
        batch_size: Images at a time; None: by the input's size.
        compile: Run through `torch.compile`.

    Attributes:
        batch_size: In force; halved when memory runs out.
    """

    def __init__(
        self,
        model: Model,
        weights: Sequence[bytes],
        *,
        precision: Literal["float32", "mixed"] = "float32",
        features: bool = False,
        batch_size: int | None = None,
        compile: bool = False,  # noqa: A002
    ) -> None:
        self.model, self.precision, self.features = model, precision, features
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.passes = model.config.mc or 1
        if precision == "mixed" and self.device.type == "cpu":
            raise UsageError("precision: mixed needs a GPU, this worker has none; use float32")
        if features and (model.members or model.config.mc):
            raise UsageError(
                f"{model.name}: a mean of several has no features; set features: false"
            )
        parts = model.members or (model,)
        self._members = [self._load(m, w, compile) for m, w in zip(parts, weights, strict=True)]
        self.batch_size = batch_size or self._usual(self.device)
        if model.config.mc:
            # The draws depend on which images share a batch, so this is the same everywhere.
            self.batch_size = self._usual(torch.device("cpu"))
            self._check_stochastic()

    def __call__(self, images: ImageArray, seed: int = 0) -> Prediction:
        """Predict (N, H, W, 3) uint8 images of the model's input size.

        Args:
            images: What `Preprocess` returns, stacked.
            seed: Of stochastic passes; the same seed and images give the same logits.
        """
        size = self.model.preprocessing.input_size
        if images.dtype != np.uint8 or images.shape[1:] != (*size, 3):
            raise DataError(
                f"{self.model.name}: expected uint8 images (N, {size[0]}, {size[1]}, 3), got "
                f"{images.dtype} {images.shape}"
            )
        batches: list[Prediction] = []
        start = 0
        while start < len(images):
            batch = images[start : start + self.batch_size]
            found = self._attempt(batch, _batch_seed(seed, start))
            if found is None:
                self._shrink(len(batch))
                continue
            batches.append(found)
            start += len(batch)
        return self._joined(batches)

    def _load(self, model: Model, weights: bytes, compile_: bool) -> _Member:
        network = build(model.architecture, model.arguments, model.classes, model.name)
        state = load_state(weights, f"weights of {model.name}")
        fill(network, state, remap=model.config.remap, where=f"weights of {model.name}")
        if self.features and not _gives_features(network):
            raise UsageError(
                f"{model.name}: {model.architecture} has no timm-style forward_head; set "
                "features: false"
            )
        network = network.eval().to(self.device, memory_format=torch.channels_last)
        if model.config.mc:
            _enable_dropout(network)
        mean, std = (
            torch.tensor(v, device=self.device)[:, None, None]
            for v in (model.preprocessing.mean, model.preprocessing.std)
        )
        return _Member(torch.compile(network) if compile_ else network, mean, std)

    def _usual(self, device: torch.device) -> int:
        pixels, fewest, most = _GPU_BATCH if device.type == "cuda" else _CPU_BATCH
        height, width = self.model.preprocessing.input_size
        return min(most, max(fewest, pixels // (height * width)))

    def _attempt(self, batch: ImageArray, seed: int) -> Prediction | None:
        """Return a batch's prediction; None if memory ran out."""
        try:
            return self._predict(batch, seed)
        except (RuntimeError, MemoryError) as error:
            text = str(error).lower()
            if not isinstance(error, MemoryError) and not any(m in text for m in _NO_MEMORY):
                raise
            return None

    def _shrink(self, tried: int) -> None:
        """Halve the batch size after memory ran out."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if tried == 1 or self.model.config.mc:
            why = "; stochastic passes need whole batches" if tried > 1 else ""
            raise DataError(
                f"{self.model.name}: out of memory with {tried} images at a time on "
                f"{self.device.type}{why}; use a larger device or a smaller `input_size`"
            )
        self.batch_size = tried // 2

    def _predict(self, batch: ImageArray, seed: int) -> Prediction:
        with torch.inference_mode(), self._seeded(seed):
            pixels = torch.from_numpy(np.ascontiguousarray(batch)).to(self.device)
            # A view: images with channels last are what the networks want.
            pixels = pixels.permute(0, 3, 1, 2).float().div_(255)
            runs = self._members * self.passes
            if len(runs) == 1:
                logits, features = self._forward(runs[0], pixels)
            else:
                logits, features = self._mean(runs, pixels), None
        return Prediction(_array(logits), None if features is None else _array(features))

    def _mean(self, runs: Sequence[_Member], pixels: torch.Tensor) -> torch.Tensor:
        """Return the log of the mean probability, summed in logarithms: it cannot underflow."""
        total: torch.Tensor | None = None
        for member in runs:
            logits = self._forward(member, pixels)[0].double()
            own = torch.log_softmax(logits, dim=1)
            total = own if total is None else torch.logaddexp(total, own)
        assert total is not None
        return total - float(np.log(len(runs)))

    def _forward(
        self, member: _Member, pixels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        x = (pixels - member.mean) / member.std
        features = None
        with self._autocast():
            if self.features:
                maps = member.network.forward_features(x)
                features = member.network.forward_head(maps, pre_logits=True).flatten(1)
                logits = member.network.forward_head(maps)
            else:
                logits = member.network(x)
        wanted = (len(x), self.model.classes)
        if not isinstance(logits, torch.Tensor) or logits.shape != wanted:
            got = tuple(getattr(logits, "shape", ())) or type(logits).__name__
            raise DataError(f"{self.model.name}: expected logits {wanted}, the network gave {got}")
        return logits, features

    @contextmanager
    def _seeded(self, seed: int) -> Iterator[None]:
        """Draw from a seed of our own and leave the process's generators as they were."""
        if not self.model.config.mc:
            # Nothing is drawn, and seeding would take a share of each small batch.
            yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "float32":
            return nullcontext()
        context: AbstractContextManager[object] = torch.autocast("cuda", torch.float16)
        return context

    def _joined(self, batches: list[Prediction]) -> Prediction:
        if not batches:
            # One blank image tells how wide a row is.
            blank = self._predict(np.zeros((1, *self.model.preprocessing.input_size, 3), "u1"), 0)
            return Prediction(
                blank.logits[:0], None if blank.features is None else blank.features[:0]
            )
        logits = np.concatenate([b.logits for b in batches])
        bad = int((~np.isfinite(logits).all(1)).sum())
        if bad:
            remedy = "use precision: float32" if self.precision == "mixed" else "check its weights"
            raise DataError(
                f"{self.model.name}: logits of {bad} of {len(logits)} images are not finite; "
                f"{remedy}"
            )
        features = [b.features for b in batches if b.features is not None]
        return Prediction(logits, np.concatenate(features) if features else None)

    def _check_stochastic(self) -> None:
        """Refuse a network whose passes are all the same: their mean would mean nothing."""
        size = self.model.preprocessing.input_size
        noise = np.random.default_rng(0).integers(0, 256, (_PROBES, *size, 3), np.uint8)
        pixels = torch.from_numpy(noise).to(self.device).permute(0, 3, 1, 2).float() / 255
        with torch.inference_mode(), self._seeded(0):
            first, *others = (
                self._forward(self._members[0], pixels)[0] for _ in range(self.passes)
            )
        if all(torch.equal(first, other) for other in others):
            raise UsageError(
                f"{self.model.name}: mc: all passes are the same, the network has no stochastic "
                "layer; set `drop_rate`, or leave `mc` out"
            )


def _gives_features(network: nn.Module) -> bool:
    head = getattr(network, "forward_head", None)
    return (
        head is not None
        and hasattr(network, "forward_features")
        and "pre_logits" in inspect.signature(head).parameters
    )


def _enable_dropout(network: nn.Module) -> None:
    """Let dropout drop; everything else, above all batch normalisation, stays in evaluation."""
    for module in network.modules():
        is_dropout = isinstance(module, nn.modules.dropout._DropoutNd | DropPath)
        # Many timm networks drop in their own forward, by their `drop_rate`. The flag alone is
        # set, for `train()` would reach the layers below.
        if is_dropout or getattr(module, "drop_rate", False):
            module.training = True


def _batch_seed(seed: int, start: int) -> int:
    text = f"{MC_CODE}\n{seed}\n{start}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def _array(values: torch.Tensor) -> FloatArray:
    return np.asarray(values.float().cpu().numpy())
