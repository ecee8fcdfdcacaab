"""Training of a model that can be killed at any moment and still ends with the same weights.

Nothing random is carried from step to step: the pictures, flips, timesteps, noises and dropout of a step follow from
the seed and the number of the step. So the state on disk is the weights, the optimiser's moments and that number.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from patchtrace.cache import digest, warn_damaged
from patchtrace.checks import choice, whole
from patchtrace.diffusion.checksum import SHA256, checksum
from patchtrace.diffusion.denoiser import Denoiser
from patchtrace.diffusion.models import build, configuration, diffusers
from patchtrace.engines.torch import device_named
from patchtrace.errors import PatchtraceError
from patchtrace.files import replacing, write_json
from patchtrace.images import ImageSet
from patchtrace.progress import Progress, Watch
from patchtrace.schedule import Schedule

if TYPE_CHECKING:
    from torch import Tensor

Precision = Literal["fp32", "bf16"]
#: Seconds between two states on disk; a killed run loses no more than this.
SAVE_EVERY = 60.0
STATE, RECORD = "state.safetensors", "training.json"
#: What AdamW keeps of each parameter.
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
#: Steps that a speed is measured on, and seconds after which it is enough.
MEASURED, MEASURED_SECONDS = 6, 20.0


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained. Equal settings and equal images give equal weights, on the same kind of device.

    Parameters
    ----------
    model : str, default "ddpm-small"
        A name of ``patchtrace.diffusion.CONFIGURATIONS``, a ``config.json`` of diffusers, or the directory of a saved
        model, whose architecture is then used with fresh weights.
    epochs, batch : int, default 120 and 64
        Passes over the images, and images in a batch.
    rate, weight_decay, warmup : float, default 0.002, 1e-6 and 0.1
        Settings of AdamW; the rate rises over the first part ``warmup`` of the steps and then falls as a cosine to 0.
    flips : bool, default True
        Whether images are mirrored at random.
    schedule : str, default "ddpm-linear"
        Noise schedule.
    precision : {"fp32", "bf16"}, default "fp32"
        bf16: matrix products in bfloat16, weights in float32.
    checkpoints : int, default 0
        Models to keep during training, spread evenly; the last is the finished one.
    seed : int, default 0
        Seed of the first weights and of everything random in training.

    Examples
    --------
    >>> Training.of("ddpm-cifar").epochs
    200
    """

    model: str = "ddpm-small"
    epochs: int = 120
    batch: int = 64
    rate: float = 2e-3
    weight_decay: float = 1e-6
    warmup: float = 0.1
    flips: bool = True
    schedule: str = "ddpm-linear"
    precision: Precision = "fp32"
    checkpoints: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch", 1), ("checkpoints", 0), ("seed", 0)):
            whole(name, getattr(self, name), least)
        if not (self.rate > 0 and self.weight_decay >= 0 and 0 <= self.warmup <= 1):
            raise PatchtraceError("use a rate above 0, a weight_decay of at least 0 and a warmup from 0 to 1")
        choice("precision", self.precision, get_args(Precision))
        Schedule.named(self.schedule)

    @classmethod
    def of(cls, model: str, **changes: Any) -> Training:
        """The settings that go with a model: the paper's for all but ddpm-small."""
        paper: dict[str, Any] = {"epochs": 200, "batch": 128, "rate": 1e-4}
        return cls(**{"model": model, **({} if model == "ddpm-small" else paper), **changes})

    def steps(self, images: int) -> int:
        """Number of steps for this many images."""
        return math.ceil(self.epochs * images / self.batch)

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate: up in a line, down as a cosine.

        >>> [round(Training(rate=1.0).rate_at(step, 100), 2) for step in (0, 9, 10, 55, 99)]
        [0.1, 1.0, 1.0, 0.5, 0.0]
        """
        rising = math.ceil(self.warmup * steps)
        if step < rising:
            return self.rate * (step + 1) / rising
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))

    def fingerprint(self, images: ImageSet) -> str:
        """A hash of everything that decides the weights: settings, architecture, images and their order."""
        described = {**asdict(self), "model": configuration(self.model, images.shape)}
        return digest(described, images.fingerprint())  # models on disk are named after it


def train(
    images: Any,
    directory: str | Path,
    training: Training | None = None,
    *,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Denoiser:
    """Train a model and save it, or resume where an earlier call with the same images and settings ended.

    Parameters
    ----------
    images : ImageSet, path, array, ...
        Anything that ``ImageSet.open`` takes.
    directory : path
        Where the model goes, as a diffusers pipeline, with ``training.json`` and ``checkpoints/`` beside it.
    training : Training, optional
        The settings; by default those of ddpm-small.
    device : str, default "cpu"
        PyTorch device, such as ``"cuda"``.
    progress : callable, optional
        Called with (done, total), in steps; a Watch also gets remarks on the loss.

    Returns
    -------
    Denoiser
    """
    diffusers()
    opened, place, settings = ImageSet.open(images), Path(directory), training or Training()
    fingerprint = settings.fingerprint(opened)
    place.mkdir(parents=True, exist_ok=True)
    if (place / RECORD).is_file():
        try:
            known = json.loads((place / RECORD).read_text(encoding="utf-8"))["fingerprint"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            warn_damaged("the record of a training", place / RECORD, error)
        else:
            _check_same(place, known, fingerprint)
            return Denoiser.load(place, device)
    return _TrainingRun(opened, place, settings, fingerprint, device).run(Watch.of(progress))


class Speed(NamedTuple):
    """Seconds of a training step, and of a pass of one picture through the model; how many steps were measured."""

    step: float
    single: float
    measured: int


def measured_speed(images: ImageSet, training: Training, device: str = "cpu") -> Speed:
    """How fast this machine trains, by a few steps whose model is thrown away: a few seconds, 20 where steps take long.

    Parameters
    ----------
    images : ImageSet
        The collection, or a part of it.
    training : Training
        The settings.
    device : str, default "cpu"
        PyTorch device, such as ``"cuda"``.

    Returns
    -------
    Speed
    """
    diffusers()
    run = _TrainingRun(images, Path(), training, "", device)
    times: list[float] = []
    while run.step < min(MEASURED, run.steps) and sum(times) < MEASURED_SECONDS:
        begin = time.perf_counter()
        run.take_step()
        run.step += 1
        times.append(time.perf_counter() - begin)
    run.model.eval()
    passes = 16 if run.device.type == "cpu" else 128
    begin = time.perf_counter()
    run.denoiser.loss(images.subset([0]), timesteps=passes)
    single = (time.perf_counter() - begin) / passes
    return Speed(float(np.median(times[1:] or times)), single, len(times))  # the first one also warms up


def _check_same(place: Path, known: str, fingerprint: str) -> None:
    if known != fingerprint:
        raise PatchtraceError(f"{str(place)!r} holds a model of other images or settings: choose another directory")


class _TrainingRun:
    """One training in progress."""

    def __init__(self, images: ImageSet, place: Path, settings: Training, fingerprint: str, device: str) -> None:
        import torch

        self.images, self.place, self.settings, self.fingerprint = images, place, settings, fingerprint
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            model = build(configuration(settings.model, images.shape))
        self.device = device_named(device)
        self.model = model.to(self.device).train()
        self.denoiser = Denoiser(self.model, Schedule.named(settings.schedule))
        decay = settings.weight_decay
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=settings.rate, weight_decay=decay)
        self.steps = settings.steps(len(images))
        self.keep_at = {round(self.steps * (i + 1) / settings.checkpoints) for i in range(settings.checkpoints)}
        self.step, self.seconds, self.losses = 0, 0.0, list[float]()

    # --- on disk ---

    def resume(self) -> None:
        """Go back to the last state on disk, if there is one; training begins again where it is damaged."""
        from safetensors import safe_open

        if not (self.place / STATE).is_file():
            return
        model, parameters = self.model.state_dict(), dict(self.model.named_parameters())
        try:
            with safe_open(self.place / STATE, "pt") as state:
                about = state.metadata()
                tensors = {name: state.get_tensor(name) for name in state.keys()}  # noqa: SIM118  # it is no mapping
            # earlier versions wrote no checksum
            if about.get(SHA256, known := checksum(tensors, about["facts"])) != known:
                raise ValueError("it does not match its checksum")
            facts = json.loads(about["facts"])
            weights = {name: tensors[f"model.{name}"] for name in model}
            moments = {(kind, name): tensors[f"{kind}.{name}"] for kind in MOMENTS for name in parameters}
            fingerprint, step, seconds, losses = (facts[name] for name in ("fingerprint", "step", "seconds", "losses"))
        except Exception as error:  # a damaged file fails in many ways
            warn_damaged("the state of a training", self.place / STATE, error)
            return
        _check_same(self.place, fingerprint, self.fingerprint)
        self.model.load_state_dict(weights)
        self.step, self.seconds, self.losses = step, seconds, losses
        for name, parameter in parameters.items():
            self.optimiser.state[parameter] = {
                kind: moments[kind, name].to("cpu" if kind == "step" else self.device) for kind in MOMENTS
            }

    def save(self) -> None:
        from safetensors.torch import save_file

        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            tensors |= {f"{moment}.{name}": value for moment, value in self.optimiser.state[parameter].items()}
        facts = {"fingerprint": self.fingerprint, "step": self.step, "seconds": self.seconds, "losses": self.losses}
        tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        with replacing(self.place / STATE) as temporary:
            text = json.dumps(facts)
            save_file(tensors, temporary, metadata={"facts": text, SHA256: checksum(tensors, text)})

    def finish(self) -> Denoiser:
        """Write the model, then the record that says it is whole; only then is the state no longer needed."""
        self.model.eval()
        self.denoiser.save(self.place)
        record = {
            "fingerprint": self.fingerprint,
            "training": asdict(self.settings),
            "images": len(self.images),
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "losses": self.losses,
        }
        write_json(self.place / RECORD, record)
        (self.place / STATE).unlink(missing_ok=True)
        return self.denoiser

    # --- steps ---

    def run(self, watch: Watch) -> Denoiser:
        """All steps that are left, and the finished model."""
        self.resume()
        begin = saved = time.monotonic()
        before, recent = self.seconds, list[float]()
        while self.step < self.steps:
            recent.append(self.take_step())
            self.step += 1
            self.seconds = before + time.monotonic() - begin
            watch(self.step, self.steps)
            if self.step in self.keep_at and self.step < self.steps:
                self.denoiser.save(self.place / "checkpoints" / f"{self.step:08d}")
            # a hundred means of the loss are enough for the record
            if self.step * 100 // self.steps > (self.step - 1) * 100 // self.steps:
                self.losses.append(round(float(np.mean(recent)), 5))
                recent.clear()
                watch.remark(f"loss {self.losses[-1]:.4f}")
                if time.monotonic() - saved > SAVE_EVERY:
                    self.save()
                    saved = time.monotonic()
        return self.finish()

    def take_step(self) -> float:
        import torch

        batch, timesteps, noise = self.batch()
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.rate_at(self.step, self.steps)
        pictures, t, eps = (torch.from_numpy(part).to(self.device) for part in (batch, timesteps, noise))
        halved = torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16")
        with halved, torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            # dropout takes torch's global random numbers: they follow from the step, and are left as they were
            torch.manual_seed(int(np.random.default_rng([self.settings.seed, 2, self.step]).integers(2**62)))
            guess = self.model(self.denoiser.noised(pictures, eps, t), t).sample
        loss: Tensor = (guess.float() - eps).square().mean()
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return float(loss.detach())

    def batch(self) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
        """The pictures, timesteps and noises of this step."""
        count, size = len(self.images), self.settings.batch
        first = self.step * size
        last = min(first + size, self.settings.epochs * count)
        # all epochs, each in its own order, form one row, and a step takes the next few of it
        orders = [
            np.random.default_rng([self.settings.seed, 0, epoch]).permutation(count)
            for epoch in range(first // count, (last - 1) // count + 1)
        ]
        row = np.concatenate(orders)[first % count :][: last - first]
        rng = np.random.default_rng([self.settings.seed, 1, self.step])
        mirrored = rng.random(len(row)) < (0.5 if self.settings.flips else 0)
        timesteps = rng.integers(0, len(self.denoiser.schedule), len(row))
        noise = rng.standard_normal((len(row), *self.images.shape), dtype=np.float32)
        pictures = np.concatenate([self.images.block(i, i + 1) for i in row])
        pictures[mirrored] = pictures[mirrored, ..., ::-1]
        return pictures, timesteps, noise


def is_finished(directory: str | Path) -> bool:
    """Whether a training in this directory has ended."""
    return (Path(directory) / RECORD).is_file()


def checkpoints_of(directory: str | Path) -> list[Path]:
    """The models that a training kept, the finished one last."""
    place = Path(directory)
    kept = sorted(path for path in (place / "checkpoints").glob("[0-9]*") if path.is_dir())
    return [*kept, place]
