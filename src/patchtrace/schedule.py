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

#: The schedules that have a name, and their names in a diffusers configuration.
NAMES: Mapping[str, str] = {"ddpm-linear": "linear", "scaled-linear": "scaled_linear", "cosine": "squaredcos_cap_v2"}


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

    @classmethod
    @cache
    def named(cls, name: str) -> Schedule:
        """A schedule with its usual constants: ``ddpm-linear``, ``scaled-linear`` or ``cosine``, 1000 steps.

        >>> len(Schedule.named("cosine"))
        1000
        """
        if name not in NAMES:
            raise PatchtraceError(f"there is no schedule {brief(name)}: use one of {', '.join(NAMES)}")
        # scaled-linear is the schedule of latent models, whose betas are usually these
        start, end = (0.00085, 0.012) if name == "scaled-linear" else (1e-4, 0.02)
        config = {"beta_schedule": NAMES[name], "beta_start": start, "beta_end": end}
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
        ``alphas_cumprod`` is used as it is; for a configuration they are computed from its betas.

        >>> len(Schedule.from_diffusers({"beta_schedule": "linear", "num_train_timesteps": 500}))
        500
        """
        if not isinstance(scheduler, Mapping):
            alphas = getattr(scheduler, "alphas_cumprod", None)
            if alphas is not None:
                return cls.from_array(np.asarray(alphas), name=type(scheduler).__name__)
            scheduler = getattr(scheduler, "config", scheduler)
        if not isinstance(scheduler, Mapping):
            raise PatchtraceError(
                f"{type(scheduler).__name__} has neither alphas_cumprod nor a config: "
                "give a diffusers scheduler or the dict of its scheduler_config.json"
            )
        if not any("beta" in str(field) for field in scheduler):
            raise PatchtraceError("the configuration has no betas: pass the cumulative alphas as an array instead")
        return cls.from_array(_alphas_of_config(scheduler), name=str(scheduler.get("_class_name", "diffusers")))


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
            f"beta_schedule {kind!r} is not one of {', '.join(NAMES.values())}: "
            "pass the scheduler object, or its alphas_cumprod as an array"
        )
    alphas = np.cumprod(1 - betas)
    if config.get("rescale_betas_zero_snr"):
        # shift the signal so that the last step holds none, scale it so that the first step keeps its own
        signal = np.sqrt(alphas)
        signal = (signal - signal[-1]) * signal[0] / (signal[0] - signal[-1])
        alphas = signal**2
    return np.asarray(alphas, dtype=np.float64)
