"""Noise schedules: from a timestep to how much picture and how much noise it holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patchtrace.checks import brief
from patchtrace.errors import PatchtraceError
from patchtrace.short import short_repr

#: Schedules that have a name and betas, and their names in a diffusers configuration.
BETAS: Mapping[str, str] = {"ddpm-linear": "linear", "scaled-linear": "scaled_linear", "cosine": "squaredcos_cap_v2"}
#: The schedule of FLUX and SD3, x_t = (1 - sigma) x + sigma eps, with sigma = (t + 1) / 1000.
FLOW = "flow-matching"
#: Fields of a diffusers configuration with betas; one of flow matching has a ``shift`` instead.
BETA_FIELDS = ("beta_schedule", "beta_start", "beta_end", "trained_betas")
#: All schedules that have a name.
NAMES = (*BETAS, FLOW)


@dataclass(frozen=True)
class Schedule:
    """Cumulative alphas of a diffusion process, one for each timestep.

    ``t`` counts from 0, as diffusers counts (``alphas_cumprod[t]``).

    Parameters
    ----------
    name : str
        Name of the schedule in results.
    alphas_cumprod : sequence of float
        The cumulative products, each in [0, 1) and none larger than the one before.

    Examples
    --------
    >>> schedule = Schedule.named("ddpm-linear")
    >>> signal, noise = schedule.at(100)
    >>> round(signal, 4), round(noise, 4)
    (0.9461, 0.3238)
    """

    name: str
    alphas_cumprod: tuple[float, ...]

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise PatchtraceError(f"the name of a schedule is {brief(self.name)}: use a text")
        try:
            alphas = np.asarray(self.alphas_cumprod, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise PatchtraceError(f"cumulative alphas must be numbers: {error}") from error
        if alphas.ndim != 1 or alphas.size == 0:
            raise PatchtraceError(
                f"cumulative alphas must be a list of at least one number, not an array of shape {alphas.shape}"
            )
        if not bool(np.all(np.isfinite(alphas) & (alphas >= 0) & (alphas < 1))):
            raise PatchtraceError(
                "cumulative alphas must lie in [0, 1): at 1 a picture has no noise, and no weight is defined"
            )
        if bool(np.any(np.diff(alphas) > 0)):
            raise PatchtraceError("cumulative alphas must not grow with t: give them in the order t = 0, 1, 2, ...")
        object.__setattr__(self, "alphas_cumprod", tuple(alphas.tolist()))

    def __len__(self) -> int:
        return len(self.alphas_cumprod)

    def at(self, t: int) -> tuple[float, float]:
        """The factors ``(sqrt(abar_t), sqrt(1 - abar_t))`` of picture and noise at timestep ``t``."""
        if not 0 <= t < len(self):
            raise PatchtraceError(f"t = {t} lies outside the schedule {self.name!r}: use 0 to {len(self) - 1}")
        alpha = self.alphas_cumprod[t]
        return math.sqrt(alpha), math.sqrt(1.0 - alpha)

    def noise_share(self, t: int) -> float:
        """The part of noise in ``x_t``, from 0 to 1: sigma of flow matching, and the same amount in other schedules.

        t means other amounts of noise in other schedules; this means the same in all.

        >>> [round(Schedule.named(name).noise_share(100), 3) for name in ("flow-matching", "ddpm-linear")]
        [0.101, 0.255]
        """
        signal, noise = self.at(t)
        return noise / (signal + noise)

    def nearest_t(self, noise_share: float) -> int:
        """The timestep whose noise share is nearest to this one.

        >>> Schedule.named("flow-matching").nearest_t(0.25), Schedule.named("ddpm-linear").nearest_t(0.25)
        (249, 97)
        """
        if not isinstance(noise_share, int | float) or isinstance(noise_share, bool) or not 0 < noise_share < 1:
            raise PatchtraceError(f"a noise share is {brief(noise_share)}: use a number between 0 and 1, such as 0.25")
        alphas = np.asarray(self.alphas_cumprod)
        noise = np.sqrt(1 - alphas)
        return int(np.abs(noise / (np.sqrt(alphas) + noise) - noise_share).argmin())

    @classmethod
    @cache
    def named(cls, name: str) -> Schedule:
        """A schedule with its usual constants: ``ddpm-linear``, ``scaled-linear``, ``cosine``, ``flow-matching``.

        Each has 1000 steps.

        >>> len(Schedule.named("cosine"))
        1000
        """
        if name not in NAMES:
            raise PatchtraceError(f"there is no schedule {brief(name)}: use one of {', '.join(NAMES)}")
        if name == FLOW:
            return cls.from_array(_alphas_of_flow({}), name=name)
        # scaled-linear is the schedule of latent models, whose betas are usually these
        start, end = (0.00085, 0.012) if name == "scaled-linear" else (1e-4, 0.02)
        config = {"beta_schedule": BETAS[name], "beta_start": start, "beta_end": end}
        return cls.from_array(_alphas_of_config(config), name=name)

    @classmethod
    def from_array(cls, alphas_cumprod: ArrayLike, name: str = "custom") -> Schedule:
        """A schedule from an array of cumulative alphas.

        >>> Schedule.from_array([0.75, 0.5, 0.25]).at(0)
        (0.8660254037844386, 0.5)
        """
        return cls(name, tuple(np.ravel(np.asarray(alphas_cumprod)).tolist()))

    @classmethod
    def from_diffusers(cls, scheduler: Any) -> Schedule:
        """A schedule from a diffusers scheduler, its ``config``, or the dict of a ``scheduler_config.json``.

        Only fields are read; diffusers itself is not imported. A scheduler that carries
        ``alphas_cumprod`` is used as it is; for a configuration they are computed from its betas. One of flow matching
        (``FlowMatchEulerDiscreteScheduler``) has sigmas, moved by its ``shift``. A shift that depends on the size of
        the picture (``use_dynamic_shifting``) is left out, as in the scheduler itself: give levels by noise share.

        >>> len(Schedule.from_diffusers({"beta_schedule": "linear", "num_train_timesteps": 500}))
        500
        """
        given = type(scheduler).__name__
        if not isinstance(scheduler, Mapping):
            alphas = getattr(scheduler, "alphas_cumprod", None)
            if alphas is not None:
                return cls.from_array(np.asarray(alphas), name=given)
            scheduler = getattr(scheduler, "config", scheduler)
        if not isinstance(scheduler, Mapping):
            raise PatchtraceError(
                f"{given} has neither alphas_cumprod nor a config: "
                "give a diffusers scheduler or the dict of its scheduler_config.json"
            )
        name = str(scheduler.get("_class_name", "diffusers"))
        if not any(field in scheduler for field in BETA_FIELDS):
            if "shift" in scheduler or name.startswith("FlowMatch"):
                return cls.from_array(_alphas_of_flow(scheduler), name=name)
            raise PatchtraceError("the configuration has no betas: pass the cumulative alphas as an array instead")
        return cls.from_array(_alphas_of_config(scheduler), name=name)


def _alphas_of_flow(config: Mapping[str, Any]) -> NDArray[np.float64]:
    """Cumulative alphas of flow matching.

    Logits stay what they are when x_t and the training patch are scaled together. So (1 - sigma) x + sigma eps equals a
    process that keeps the variance, with abar = (1 - sigma)^2 / ((1 - sigma)^2 + sigma^2).
    """
    steps = int(config.get("num_train_timesteps", 1000))
    shift = 1.0 if config.get("use_dynamic_shifting") else float(config.get("shift", 1.0))
    sigma = np.arange(1, steps + 1) / steps
    sigma = shift * sigma / (1 + (shift - 1) * sigma)
    return np.asarray((1 - sigma) ** 2 / ((1 - sigma) ** 2 + sigma**2), dtype=np.float64)


def _alphas_of_config(config: Mapping[str, Any]) -> NDArray[np.float64]:
    """Cumulative alphas from the fields of a diffusers configuration; absent fields take diffusers' defaults."""
    steps = int(config.get("num_train_timesteps", 1000))
    start, end = float(config.get("beta_start", 1e-4)), float(config.get("beta_end", 0.02))
    kind = config.get("beta_schedule", "linear")
    trained: Sequence[float] | None = config.get("trained_betas")
    if trained is not None:
        betas = np.asarray(trained, dtype=np.float64)
    elif kind == "linear":
        betas = np.linspace(start, end, steps)
    elif kind == "scaled_linear":
        betas = np.linspace(math.sqrt(start), math.sqrt(end), steps) ** 2
    elif kind == "squaredcos_cap_v2":
        edges = np.cos((np.arange(steps + 1) / steps + 0.008) / 1.008 * math.pi / 2) ** 2
        betas = np.minimum(1 - edges[1:] / edges[:-1], 0.999)
    else:
        raise PatchtraceError(
            f"beta_schedule {kind!r} is not one of {', '.join(BETAS.values())}: "
            "pass the scheduler object, or its alphas_cumprod as an array"
        )
    alphas = np.cumprod(1 - betas)
    if config.get("rescale_betas_zero_snr"):
        # shift the signal so that the last step holds none, scale it so that the first step keeps its own
        signal = np.sqrt(alphas)
        signal = (signal - signal[-1]) * signal[0] / (signal[0] - signal[-1])
        alphas = signal**2
    return np.asarray(alphas, dtype=np.float64)
