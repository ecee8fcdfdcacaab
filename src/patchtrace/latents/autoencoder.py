"""From pictures to the latents of a latent diffusion model, and back.

Where a model diffuses, there patches are compared: in the latents of its autoencoder, scaled as the model has them. An
autoencoder is known by what decides its latents, above all a hash of its weights; that stands in every store and
result, and latents of another one are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.checks import brief, positive, whole
from patchtrace.errors import PatchtraceError
from patchtrace.schedule import Schedule

#: Latents are kept with half the bits: at most one part in 2048 off, far below the noise that they are compared under.
DTYPE = np.dtype(np.float16)
#: The side of pictures that become latents, unless another is asked for.
DEFAULT_SIZE = 512

Pixels = NDArray[np.float32]
#: From float32 (n, 3, height, width) in [-1, 1] to (n, channels, height / factor, width / factor), or the other way.
ArrayFunction = Callable[[Pixels], Any]


@dataclass(frozen=True)
class Network:
    """The two functions of an autoencoder, before scaling.

    Parameters
    ----------
    encode, decode : callable
        Between float32 (n, 3, height, width) in [-1, 1] and latents; ``decode`` is None where it is missing.
    at_once : int, default 2**18
        Pixels that go through it at once, but at least one picture.
    """

    encode: ArrayFunction
    decode: ArrayFunction | None = None
    at_once: int = 1 << 18


@dataclass(frozen=True, eq=False)
class Autoencoder:
    """Between pictures and latents. Made by :func:`load_autoencoder`, or by :meth:`of` from any functions.

    Parameters
    ----------
    kind : str
        Which code computes it: ``taef2``, ``diffusers`` or ``functions``.
    source : str
        The file, directory or hub name of its weights, or the name of the functions.
    weights : str
        A hash of the weights of the encoder; of functions, what the caller says of them.
    factor : int
        Side of the square of pixels for each latent.
    channels : int
        Numbers in a latent.
    scaling, shift : float, default 1 and 0
        A latent is ``(encoded - shift) * scaling``, as the models of this autoencoder have it before noise is added.
    schedule : str, default "flow-matching"
        Noise schedule of its models, a name.
    make : callable
        Makes the network when it is first used.

    Examples
    --------
    >>> blocks = Autoencoder.of(lambda p: p[:, :, ::2, ::2], name="every other", weights="none", factor=2, channels=3)
    >>> blocks.encode(np.ones((1, 3, 4, 6), np.float32)).shape
    (1, 3, 2, 3)
    >>> blocks.record()["source"]
    'every other'
    """

    kind: str
    source: str
    weights: str
    factor: int
    channels: int
    scaling: float = 1.0
    shift: float = 0.0
    schedule: str = "flow-matching"
    make: Callable[[], Network] | None = None

    def __post_init__(self) -> None:
        for name in ("factor", "channels"):
            whole(name, getattr(self, name), 1, most=4096)
        positive("scaling", self.scaling)
        if not isinstance(self.shift, int | float) or not math.isfinite(self.shift):
            raise PatchtraceError(f"shift is {brief(self.shift)}: use a finite number")
        Schedule.named(self.schedule)
        if not all(isinstance(text, str) for text in (self.kind, self.source, self.weights)):
            raise PatchtraceError("kind, source and weights of an autoencoder are texts")

    @classmethod
    def of(
        cls,
        encode: ArrayFunction,
        decode: ArrayFunction | None = None,
        *,
        name: str,
        weights: str,
        factor: int,
        channels: int,
        scaling: float = 1.0,
        shift: float = 0.0,
        schedule: str = "flow-matching",
    ) -> Autoencoder:
        """An autoencoder of functions on arrays.

        Parameters
        ----------
        encode, decode : callable
            Between float32 (n, 3, height, width) in [-1, 1] and (n, channels, height / factor, width / factor).
        name : str
            A name for the record.
        weights : str
            Which weights it has, such as a version or a hash. Latents of the same name and other weights do not mix.
        factor, channels, scaling, shift, schedule
            See the class.
        """
        network = Network(encode, decode)
        return cls("functions", name, weights, factor, channels, scaling, shift, schedule, lambda: network)

    def __repr__(self) -> str:
        return f"<Autoencoder {self.name}, {self.channels} channels, {self.factor} times smaller>"

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which compares latents and does not make any: all but the network."""
        return {**{name: getattr(self, name) for name in self.__dataclass_fields__}, "make": None}

    @property
    def name(self) -> str:
        """Kind and source, as options take them."""
        return f"{self.kind}:{self.source}"

    def record(self) -> dict[str, Any]:
        """Plain data for stores and results, from which :func:`patchtrace.latents.recorded` finds it again."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "make"}

    @property
    def identity(self) -> tuple[Any, ...]:
        """What decides its latents: not where its weights are, and not how noise is added."""
        name = self.source if self.kind == "functions" else ""
        return name, self.weights, self.factor, self.channels, float(self.scaling), float(self.shift)

    def check_same(self, other: Autoencoder, what: str) -> None:
        """Refuse another autoencoder than the one of ``what``."""
        if self.identity == other.identity:
            return
        if (self.kind, self.source) == (other.kind, other.source):
            raise PatchtraceError(
                f"{what} was made with other weights or settings of {self.name}: latents of different autoencoders "
                "cannot be compared; use those weights again, or encode the pictures anew"
            )
        raise PatchtraceError(
            f"{what} was made with {self.name}, not with {other.name}: latents of different autoencoders cannot be "
            "compared; use the same autoencoder, or encode the pictures anew"
        )

    @cached_property
    def network(self) -> Network:
        """The functions, loaded when they are first used."""
        if self.make is None:
            raise PatchtraceError(f"the autoencoder {self.name} was sent to another process: encode before that")
        return self.make()

    def latent_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width in latents of pictures of this height and width."""
        height, width = size
        if height % self.factor or width % self.factor:
            fitting = [max(1, round(side / self.factor)) * self.factor for side in size]
            raise PatchtraceError(
                f"{self.name} makes one latent of {self.factor} x {self.factor} pixels, and {height} x {width} is not "
                f"a multiple of that: use size=({fitting[0]}, {fitting[1]}) (--size {fitting[0]}x{fitting[1]})"
            )
        return height // self.factor, width // self.factor

    def picture_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width in pixels of latents of this height and width."""
        return self.factor * size[0], self.factor * size[1]

    def encode(self, pixels: NDArray[np.uint8] | Pixels) -> NDArray[np.float16]:
        """Latents of pictures, as its models have them.

        Parameters
        ----------
        pixels : u8, or float32 in [-1, 1], (n, 3, height, width); one channel counts as grey

        Returns
        -------
        float16 (n, channels, height / factor, width / factor)
        """
        if pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
            raise PatchtraceError(f"pixels have shape {pixels.shape}: an autoencoder takes (n, 3, height, width)")
        size = self.latent_size((pixels.shape[2], pixels.shape[3]))
        found = np.empty((len(pixels), self.channels, *size), DTYPE)
        for part in self._parts(len(pixels), pixels.shape[2:]):
            values = np.array(pixels[part], np.float32)
            if pixels.dtype == np.uint8:
                values = values / np.float32(127.5) - np.float32(1)
            answer = self.network.encode(np.repeat(values, 3 // values.shape[1], axis=1))
            latents = self._checked(answer, found[part].shape, "latents")
            with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
                found[part] = (latents - self.shift) * self.scaling
            if not np.isfinite(found[part]).all():
                raise PatchtraceError(f"{self.name} made latents that are not finite, or too large for half precision")
        return found

    def decode(self, latents: NDArray[Any]) -> Pixels:
        """Pictures of latents: float32 (n, 3, height, width) in [-1, 1].

        Parameters
        ----------
        latents : float (n, channels, height, width)
            On the scale of :meth:`encode`.
        """
        if self.network.decode is None:
            raise PatchtraceError(
                f"{self.name} has no decoder here: latents can be compared, but not shown as pictures"
            )
        if latents.ndim != 4 or latents.shape[1] != self.channels:
            raise PatchtraceError(f"latents have shape {latents.shape}: {self.name} has {self.channels} channels")
        height, width = self.picture_size((latents.shape[2], latents.shape[3]))
        found = np.empty((len(latents), 3, height, width), np.float32)
        for part in self._parts(len(found), found.shape[2:]):
            values = np.asarray(latents[part], np.float32) / np.float32(self.scaling) + np.float32(self.shift)
            found[part] = self._checked(self.network.decode(values), found[part].shape, "pictures")
        return np.clip(found, -1, 1)

    def together(self, size: tuple[int, ...]) -> int:
        """How many pictures of this height and width go through the network at once."""
        return max(1, self.network.at_once // math.prod(size))

    def _parts(self, count: int, size: tuple[int, ...]) -> Iterator[slice]:
        together = self.together(size)
        return (slice(start, start + together) for start in range(0, count, together))

    def _checked(self, answer: Any, shape: tuple[int, ...], what: str) -> Pixels:
        if hasattr(answer, "detach"):  # of PyTorch; NumPy knows no bfloat16
            answer = answer.detach().float().cpu().numpy()
        values = np.asarray(answer, dtype=np.float32)
        if values.shape != shape:
            raise PatchtraceError(f"{self.name} made {what} of shape {values.shape}, not {shape}")
        return values
