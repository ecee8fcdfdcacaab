"""A trained model: load and save it, compute its loss on pictures, sample new ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from patchtrace.cache import digest
from patchtrace.checks import choice
from patchtrace.diffusion.checksum import SHA256, checksum
from patchtrace.diffusion.models import diffusers, read_configuration
from patchtrace.engines.torch import device_named
from patchtrace.errors import PatchtraceError
from patchtrace.files import replacing, write_json
from patchtrace.images import ImageSet
from patchtrace.progress import Counter, Progress
from patchtrace.schedule import BETAS, Schedule

if TYPE_CHECKING:
    import torch
    from diffusers import UNet2DModel
    from torch import Tensor

WEIGHTS = "diffusion_pytorch_model.safetensors"
#: Default number of pictures that go through the model at once.
BATCH = 128
Sampler = Literal["ddim", "ddpm"]


@dataclass(frozen=True)
class Denoiser:
    """A diffusion model that predicts noise.

    Attributes
    ----------
    model : diffusers.UNet2DModel
        In evaluation mode.
    schedule : Schedule
        The noise it was trained on.

    Examples
    --------
    >>> import patchtrace as pt
    >>> from patchtrace.diffusion import Training, train  # doctest: +SKIP
    >>> model = train(photos, "model/", Training.of("ddpm-small"))  # doctest: +SKIP
    >>> model.sample(16, seed=1).shape  # doctest: +SKIP
    (16, 3, 16, 16)
    """

    model: UNet2DModel
    schedule: Schedule

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of its pictures."""
        config = self.model.config
        size = config.sample_size
        height, width = (size, size) if isinstance(size, int) else size
        return config.in_channels, height, width

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    # --- files ---

    def save(self, directory: Path) -> None:
        """Write it as diffusers' DDPMPipeline has it, weights as safetensors; the weights come last."""
        from safetensors.torch import save_file

        fields = {name: value for name, value in dict(self.model.config).items() if not name.startswith("_")}
        version = {"_diffusers_version": diffusers().__version__}
        parts = {"unet": ["diffusers", "UNet2DModel"], "scheduler": ["diffusers", "DDPMScheduler"]}
        for name, content in {
            "model_index.json": {"_class_name": "DDPMPipeline", **version, **parts},
            "scheduler/scheduler_config.json": _scheduler_fields(self.schedule),
            "unet/config.json": {"_class_name": "UNet2DModel", **version, **fields},
        }.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            write_json(directory / name, content)
        weights = {name: value.detach().cpu().contiguous() for name, value in self.model.state_dict().items()}
        sums = {SHA256: checksum(weights), **_descriptions(directory / "unet", directory)}
        with replacing(directory / "unet" / WEIGHTS) as temporary:
            save_file(weights, temporary, metadata={"format": "pt", **sums})

    @classmethod
    def load(cls, directory: str | Path, device: str = "cpu") -> Denoiser:
        """A model from the directory of a diffusers pipeline or of a UNet2DModel, from safetensors only."""
        from safetensors import safe_open

        directory = Path(directory)
        unet = directory / "unet" if (directory / "unet").is_dir() else directory
        read_configuration(unet)
        if not (unet / WEIGHTS).is_file():
            raise PatchtraceError(
                f"{str(unet)!r} has no {WEIGHTS}: give the directory of a finished model, saved as safetensors"
            )
        schedule = Schedule.named("ddpm-linear")
        described = directory / "scheduler" / "scheduler_config.json"
        if described.is_file():
            try:
                fields = json.loads(described.read_text(encoding="utf-8"))
                predicts = fields.get("prediction_type", "epsilon")
                schedule = Schedule.from_diffusers(fields)
            except PatchtraceError:
                raise
            except Exception as error:  # whatever stands there in place of numbers
                raise PatchtraceError(f"{described} does not describe a noise schedule: {error}") from error
            if predicts != "epsilon":
                raise PatchtraceError(
                    f"the model in {str(directory)!r} predicts {predicts!r}: only models that predict "
                    "the noise (epsilon) work here"
                )
        try:
            with safe_open(unet / WEIGHTS, "pt") as file:
                known = file.metadata() or {}  # without checksums if others have written it
            model = diffusers().UNet2DModel.from_pretrained(
                unet, use_safetensors=True, local_files_only=True, low_cpu_mem_usage=False
            )
        except Exception as error:  # a damaged file fails in many ways
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise PatchtraceError(f"no model can be read from {str(unet)!r}: {reason}") from error
        if SHA256 in known and known[SHA256] != checksum(model.state_dict()):
            raise PatchtraceError(
                f"the weights in {str(unet)!r} do not match their checksum: delete the model and train it again"
            )
        for name, found in _descriptions(unet, directory).items():
            if known.get(name, found) != found:
                raise PatchtraceError(
                    f"{name} of the model in {str(directory)!r} is not what was saved with its weights: delete the "
                    "model and train it again"
                )
        return cls(model.to(device_named(device)).eval(), schedule)

    # --- loss ---

    def noised(self, pictures: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """Pictures with noise as the model sees them at these timesteps, one for each row of noise."""
        import torch

        alphas = torch.tensor(self.schedule.alphas_cumprod, dtype=torch.float64)[timesteps.cpu()][:, None, None, None]
        signal, strength = (x.to(noise) for x in (alphas.sqrt(), (1 - alphas).sqrt()))
        return signal * pictures + strength * noise

    def loss(
        self,
        queries: ImageSet,
        *,
        timesteps: int | Sequence[int] = 1000,
        draws: int = 1,
        seed: int = 0,
        batch: int = BATCH,
        progress: Progress | None = None,
    ) -> NDArray[np.float64]:
        """Mean squared error of the predicted noise for each query, (queries,).

        Parameters
        ----------
        timesteps : int or sequence of int, default 1000
            Timesteps, or their number, spread evenly over the schedule.
        draws : int, default 1
            Noises at each timestep.
        seed : int, default 0
            Noise seed. Query number i gets the same noise from every model, so that models can be compared.
        """
        import torch

        self.check(queries)
        times = spread(timesteps, len(self.schedule))
        counter = Counter(progress, len(queries) * len(times) * draws)
        losses = np.empty(len(queries))
        t = torch.tensor(np.tile(times, draws), device=self.device)
        for query in range(len(queries)):
            clean = torch.from_numpy(queries.block(query, query + 1)).to(self.device)
            noise = query_noise(seed, query, len(t), self.shape).to(self.device)
            total = 0.0
            for start in range(0, len(t), batch):
                with torch.no_grad():
                    part, at = noise[start : start + batch], t[start : start + batch]
                    guess = self.model(self.noised(clean, part, at), at).sample
                    total += float((guess - part).square().mean(dim=(1, 2, 3)).double().sum())
                counter.add(len(at))
            losses[query] = total / len(t)
        return losses

    def check(self, images: ImageSet) -> None:
        """Refuse pictures of another size."""
        if images.shape != self.shape:
            raise PatchtraceError(
                f"the model works on {self.shape} and the images have {images.shape} (channels, height, width): "
                "open them with the model's size"
            )

    # --- pictures ---

    def sample(
        self,
        count: int,
        *,
        sampler: Sampler = "ddim",
        steps: int = 50,
        seed: int = 0,
        first: int = 0,
        batch: int = BATCH,
        progress: Progress | None = None,
    ) -> NDArray[np.uint8]:
        """New pictures, u8 (count, channels, height, width).

        Parameters
        ----------
        sampler : {"ddim", "ddpm"}, default "ddim"
            ddim adds no noise between steps, so that a picture depends on its first noise and the model alone.
        seed, first : int, default 0
            Picture number i (counted from ``first``) starts from the same noise in every call and in every model.
        """
        import torch

        choice("sampler", sampler, get_args(Sampler))
        if not 1 <= steps <= len(self.schedule):
            raise PatchtraceError(f"steps is {steps}: use 1 to {len(self.schedule)}")
        counter = Counter(progress, count * steps)
        made = [np.empty((0, *self.shape), np.uint8)]
        for start in range(0, count, batch):
            numbers = range(first + start, first + min(count, start + batch))
            seeds = (np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)[0] for number in numbers)
            generators = [torch.Generator().manual_seed(int(one >> np.uint64(1))) for one in seeds]
            x = torch.stack([torch.randn(self.shape, generator=one) for one in generators]).to(self.device)
            kind = diffusers().DDIMScheduler if sampler == "ddim" else diffusers().DDPMScheduler
            scheduler = kind.from_config(_scheduler_fields(self.schedule))
            scheduler.set_timesteps(steps)
            for t in scheduler.timesteps:
                with torch.no_grad():
                    guess = self.model(x, t.to(self.device)).sample
                # on a GPU too the noise comes from the generators of the processor
                x = scheduler.step(guess, t, x, **({"generator": generators} if sampler == "ddpm" else {})).prev_sample
                counter.add(len(x))
            made.append(((x.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).cpu().numpy())
        return np.concatenate(made)


def spread(timesteps: int | Sequence[int], steps: int) -> list[int]:
    """Timesteps spread evenly over the schedule, each in the middle of its part; or those that are given.

    >>> spread(4, 1000)
    [125, 375, 625, 875]
    """
    if isinstance(timesteps, int):
        if not 1 <= timesteps <= steps:
            raise PatchtraceError(f"timesteps is {timesteps}: use 1 to {steps}, or a list of timesteps")
        return [int(steps * (i + 0.5) / timesteps) for i in range(timesteps)]
    times = [int(t) for t in timesteps]
    if not times or min(times) < 0 or max(times) >= steps:
        raise PatchtraceError(f"timesteps are {times}: use at least one, each from 0 to {steps - 1}")
    return times


def query_noise(seed: int, query: int, count: int, shape: tuple[int, int, int]) -> Tensor:
    """Noise for one query that does not depend on how many others there are: (count, channels, height, width)."""
    import torch

    return torch.from_numpy(np.random.default_rng([seed, query]).standard_normal((count, *shape), dtype=np.float32))


def _descriptions(unet: Path, directory: Path) -> dict[str, str]:
    """A hash of what each file beside the weights says, by the name of the file; of those that are there."""
    places = (unet / "config.json", directory / "scheduler" / "scheduler_config.json")
    return {place.name: digest(json.loads(place.read_text("utf-8"))) for place in places if place.is_file()}


def _scheduler_fields(schedule: Schedule) -> dict[str, Any]:
    """The schedule as diffusers describes it: by its name, or by its betas."""
    fields: dict[str, Any] = {"_class_name": "DDPMScheduler", "num_train_timesteps": len(schedule), "clip_sample": True}
    fields["_diffusers_version"] = diffusers().__version__
    if schedule.name in BETAS and schedule == Schedule.named(schedule.name) and schedule.name != "scaled-linear":
        return {**fields, "beta_schedule": BETAS[schedule.name], "beta_start": 1e-4, "beta_end": 0.02}
    alphas = np.array([1.0, *schedule.alphas_cumprod])
    return {**fields, "trained_betas": (1 - alphas[1:] / alphas[:-1]).tolist()}
