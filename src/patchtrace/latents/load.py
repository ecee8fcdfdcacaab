"""Finding an autoencoder: by kind and by a file, a directory or a name on the Hugging Face hub.

Weights are read from safetensors only; a pickle can run code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from patchtrace.checks import brief, needed
from patchtrace.errors import PatchtraceError
from patchtrace.latents import taef2
from patchtrace.latents.autoencoder import Autoencoder, Network

if TYPE_CHECKING:
    from torch import Tensor, nn

#: Where the published weights of TAEF2 are.
TAEF2_HUB = "madebyollin/taef2"
EXTRA = "latents"
#: Classes of diffusers that are loaded, by the names in their configurations.
CLASSES = ("AutoencoderKL", "AutoencoderTiny")
TensorFunction = Callable[["Tensor"], "Tensor"]
_HUB_NAME = re.compile(r"(\w[\w.-]*/[\w.-]+)(?:@([\w./-]+))?")


def load_autoencoder(given: str | Autoencoder, schedule: str | None = None) -> Autoencoder:
    """The autoencoder of this name. Its weights are read, and hashed, at once.

    Parameters
    ----------
    given : str or Autoencoder
        ``taef2:FILE`` with encoder weights (the decoder lies beside it, with ``decoder`` for
        ``encoder`` in its name) or with both parts; ``taef2:DIRECTORY``; ``taef2`` or ``taef2:OWNER/NAME`` on the hub;
        ``diffusers:DIRECTORY`` or ``diffusers:OWNER/NAME`` with an AutoencoderKL or AutoencoderTiny. An Autoencoder is
        returned as it is.
    schedule : str, optional
        Noise schedule of the models; by default ``flow-matching``, and ``scaled-linear`` for diffusers' autoencoders of
        four channels (Stable Diffusion).

    Returns
    -------
    Autoencoder
    """
    if isinstance(given, Autoencoder):
        return given
    kind, _, source = given.partition(":") if isinstance(given, str) else ("", "", "")
    if kind not in KINDS or (not source and kind != "taef2"):
        raise PatchtraceError(
            f"there is no autoencoder {brief(given)}: use taef2:WEIGHTS.safetensors, diffusers:DIRECTORY, "
            "diffusers:OWNER/NAME, or in Python an Autoencoder"
        )
    found = KINDS[kind](source)
    return found if schedule is None else replace(found, schedule=schedule)


def recorded(record: Mapping[str, Any]) -> Autoencoder:
    """The autoencoder that a store or a result records; weights are looked for, and compared, when they are used."""
    known = Autoencoder(**{each.name: record[each.name] for each in fields(Autoencoder) if each.name != "make"})
    return replace(known, make=lambda: _later(known))


def _later(known: Autoencoder) -> Network:
    """The network of an autoencoder that a store or a result names, if it is here with the same weights."""
    how = "name the place of the same weights with --latents (latents= in Python)"
    if known.kind not in KINDS:
        raise PatchtraceError(
            f"the latents were made by Python functions ({known.source!r}): give the same Autoencoder as latents="
        )
    try:
        found = KINDS[known.kind](known.source)
    except PatchtraceError as error:
        raise PatchtraceError(
            f"pictures have to be encoded by the autoencoder that made the latents, and it is not here: {error}; {how}"
        ) from error
    found = replace(found, schedule=known.schedule, scaling=known.scaling, shift=known.shift)
    if found.identity != known.identity:
        raise PatchtraceError(f"{known.source!r} holds other weights than those that made the latents: {how}")
    return found.network


# --- kinds ---


def _taef2(source: str) -> Autoencoder:
    path = Path(source).expanduser()
    if source and path.is_file():
        files = [path, path.with_name(path.name.replace("encoder", "decoder"))]
    else:
        place = path if source and path.is_dir() else _from_hub(source or TAEF2_HUB, ["*.safetensors"])
        files = sorted(place.glob("*taef2*.safetensors")) or sorted(place.glob("*.safetensors"))
        if not files:
            raise PatchtraceError(f"{source!r} holds no .safetensors file, and weights in other files are not read")
    parts = _parts_of(files)
    try:
        width, channels = parts["encoder"]["0.weight"].shape[0], parts["encoder"]["14.weight"].shape[0]
        encoder, decoder = taef2.networks(width, channels)
        _filled(encoder, parts["encoder"])
        if parts["decoder"]:
            _filled(decoder, parts["decoder"])
    except (KeyError, IndexError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if isinstance(error, RuntimeError) else f"{error} is missing"
        raise PatchtraceError(f"{str(files[0])!r} does not hold the weights of TAEF2: {reason}") from error
    # TAEF2 has colours from 0 to 1
    network = _network(
        [encoder, decoder] if parts["decoder"] else [encoder],
        lambda pixels: encoder((pixels + 1) / 2),
        (lambda latents: decoder(latents) * 2 - 1) if parts["decoder"] else None,
    )
    where = os.path.abspath(path) if source and path.exists() else source or TAEF2_HUB
    return Autoencoder("taef2", where, _hash(parts["encoder"]), taef2.FACTOR, channels, make=lambda: network)


def _diffusers(source: str) -> Autoencoder:
    path = Path(source).expanduser()
    place = path if path.is_dir() else _from_hub(source, ["*config.json", "*.safetensors"])
    if not (place / "config.json").is_file() and (place / "vae" / "config.json").is_file():
        place = place / "vae"  # of a whole pipeline
    try:
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        name = config["_class_name"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PatchtraceError(f"{str(place)!r} has no config.json of an autoencoder of diffusers: {error}") from error
    if name not in CLASSES:
        raise PatchtraceError(f"{str(place)!r} is of the class {brief(name)}: use one of {', '.join(CLASSES)}")
    kind: Any = getattr(needed("diffusers", "an autoencoder of diffusers", EXTRA), name)
    try:
        how = {"use_safetensors": True, "local_files_only": True, "low_cpu_mem_usage": False}
        model, report = kind.from_pretrained(str(place), output_loading_info=True, **how)
    except Exception as error:  # a damaged file fails in many ways
        raise PatchtraceError(f"no {name} can be read from {str(place)!r}: {error}") from error
    if report["missing_keys"]:  # diffusers continues with random numbers in their place
        raise PatchtraceError(
            f"{str(place)!r} does not hold all weights: {sorted(report['missing_keys'])[0]} is missing"
        )
    model = model.eval().float()
    tiny, given = name == "AutoencoderTiny", model.config
    encoding = {key: value for key, value in model.state_dict().items() if not key.startswith(("decoder", "post_"))}
    network = _network(
        [model],
        lambda pixels: model.encode(pixels).latents if tiny else model.encode(pixels).latent_dist.mode(),
        lambda latents: model.decode(latents).sample,
    )
    blocks = given.encoder_block_out_channels if tiny else given.block_out_channels
    channels = int(given.latent_channels)
    return Autoencoder(
        "diffusers",
        os.path.abspath(path) if path.is_dir() else source,
        _hash(encoding),
        2 ** (len(blocks) - 1),
        channels,
        _number(given.get("scaling_factor"), 1.0),
        _number(given.get("shift_factor"), 0.0),
        "scaled-linear" if channels == 4 else "flow-matching",
        lambda: network,
    )


KINDS: Mapping[str, Callable[[str], Autoencoder]] = {"taef2": _taef2, "diffusers": _diffusers}


def _number(value: Any, usual: float) -> float:
    number = usual if value is None else float(value)
    if not math.isfinite(number):
        raise PatchtraceError(
            f"the configuration of the autoencoder has {number}: use finite scaling and shift factors"
        )
    return number


# --- weights ---


def _parts_of(files: list[Path]) -> dict[str, dict[str, Tensor]]:
    """Weights of encoder and decoder: of a file for each, or of one file that has them under these names."""
    read: Any = needed("safetensors.torch", "an autoencoder", EXTRA).load_file
    parts: dict[str, dict[str, Tensor]] = {"encoder": {}, "decoder": {}}
    for path in dict.fromkeys(filter(Path.is_file, files)):
        try:
            weights = read(path)
        except Exception as error:  # a damaged file fails in many ways
            raise PatchtraceError(f"{str(path)!r} is not a file of safetensors: {error}") from error
        for name, part in parts.items():
            inside = {
                key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")
            }
            part.update(inside or (weights if name in path.name and "encoder.0.weight" not in weights else {}))
    if not parts["encoder"]:
        raise PatchtraceError(
            f"{str(files[0])!r} holds no encoder: give a file with 'encoder' in its name, or one with both parts"
        )
    return parts


def _filled(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    network.load_state_dict({name: value.float() for name, value in weights.items()}, assign=True)
    network.eval()


def _hash(weights: Mapping[str, Tensor]) -> str:
    """A hash of the numbers, whatever file they are in, and in which precision."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        values = np.ascontiguousarray(weights[name].detach().float().cpu().numpy(), dtype="<f4")
        digest.update(f"{name} {values.shape}\n".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def _network(modules: list[Any], encode: TensorFunction, decode: TensorFunction | None) -> Network:
    """Functions of PyTorch as functions of arrays, on a graphics card where there is one."""
    import torch

    fast = torch.cuda.is_available()
    device = "cuda" if fast else "cpu"
    # with channels last, convolutions take about a third less time on a processor
    for module in modules:
        module.to(device, memory_format=torch.channels_last)

    def on_arrays(function: TensorFunction) -> Callable[[Any], Any]:
        def apply(values: Any) -> Any:
            with torch.inference_mode():
                tensor = torch.from_numpy(np.ascontiguousarray(values, np.float32))
                return function(tensor.to(device, memory_format=torch.channels_last))

        return apply

    # one by one on a processor: more at once are no faster there, and would decide how the latents are rounded
    return Network(on_arrays(encode), decode and on_arrays(decode), 1 << 22 if fast else 1)


def _from_hub(source: str, patterns: list[str]) -> Path:
    """The directory of a repository of the Hugging Face hub, from its cache if it is there."""
    matched = _HUB_NAME.fullmatch(source)
    if not matched:
        raise PatchtraceError(
            f"{source!r} is neither a file or directory here nor a name on the Hugging Face hub (OWNER/NAME)"
        )
    snapshot: Any = needed("huggingface_hub", "an autoencoder from the hub", EXTRA).snapshot_download
    name, revision = matched.groups()
    load = partial(snapshot, name, revision=revision, allow_patterns=patterns)
    try:
        try:
            return Path(load(local_files_only=True))
        except Exception:  # nothing of it is in the cache
            return Path(load())
    except Exception as error:  # a network fails in many ways
        raise PatchtraceError(
            f"{name!r} is not a file or directory here, and cannot be loaded from the Hugging Face hub "
            f"({type(error).__name__}): go online, or name the place of its weights"
        ) from error
