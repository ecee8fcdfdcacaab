"""What is compared: noise levels, patch sizes, scales, and the rules for borders and pooling.

A recipe is frozen and checks itself; it travels as TOML and is saved inside every result.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from patchtrace.checks import brief, choice, nearest, positive, store, whole
from patchtrace.display import printable
from patchtrace.errors import PatchtraceError
from patchtrace.schedule import NAMES, Schedule
from patchtrace.views import FLIPS, MOST_PICTURES, View, view_names

Border = Literal["match", "zero", "valid"]
Pooling = Literal["orthonormal", "mean"]

#: Draws of the noise: a thousand times as many as any list needs.
MOST_DRAWS = 1_000_000
#: Weights, or their inverse: sums of a level's weights stay finite.
MOST_WEIGHT = 1e100
#: Variance of the noise: with less, squared distances divided by it lose all digits.
LEAST_VARIANCE = 1e-8


@dataclass(frozen=True)
class Scale:
    """One patch size at one resolution.

    Parameters
    ----------
    patch : int
        Side P of the square patch, in pixels of the picture.
    pool : int, default 1
        Patches are compared after pooling windows of this side; 1 compares the pixels themselves.
        Rows and columns of the patch that do not fill a window are left out.
    weight : float, default 1.0
        Share of this scale in its level, relative to the other scales of the level.

    Examples
    --------
    >>> Scale(8, pool=2, weight=0.25)
    Scale(patch=8, pool=2, weight=0.25)
    """

    patch: int
    pool: int = 1
    weight: float = 1.0

    def __post_init__(self) -> None:
        store(self, patch=whole("patch", self.patch, 1), pool=whole("pool", self.pool, 1))
        if self.pool > self.patch:
            raise PatchtraceError(
                f"pool = {self.pool} is larger than its patch of {self.patch}: use a pool of at most {self.patch}"
            )
        store(self, weight=positive("weight", self.weight))
        if not 1 / MOST_WEIGHT <= self.weight <= MOST_WEIGHT:
            raise PatchtraceError(
                f"weight is {self.weight}: weights count relative to each other, use numbers such as 0.25 and 0.75"
            )


@dataclass(frozen=True)
class Level:
    """One noise level: a timestep and the scales compared at it.

    Parameters
    ----------
    t : int
        Timestep of the noise schedule, counted from 0.
    scales : tuple of Scale
        Scales that are compared at it.

    Examples
    --------
    >>> Level(100, (Scale(5, weight=3), Scale(8, pool=2))).weighted_scales()[0]
    (Scale(patch=5, pool=1, weight=3.0), 0.75)
    """

    t: int
    scales: tuple[Scale, ...]

    def __post_init__(self) -> None:
        store(self, t=whole("t", self.t, 0))
        error = f"level t = {self.t} needs at least one Scale, such as Scale(patch=5)"
        store(self, scales=_tuple_of(Scale, self.scales, error))

    @classmethod
    def at_noise(cls, noise_share: float, scales: tuple[Scale, ...], schedule: str | Schedule = "ddpm-linear") -> Level:
        """The level of a noise share, such as sigma of flow matching; in a TOML file, ``noise_share`` in place of t.

        >>> Level.at_noise(0.25, (Scale(3),), "flow-matching").t
        249
        """
        return cls(_schedule(schedule).nearest_t(noise_share), scales)

    def weighted_scales(self) -> tuple[tuple[Scale, float], ...]:
        """The scales with their weights divided by the sum of the level's weights."""
        total = math.fsum(scale.weight for scale in self.scales)
        return tuple((scale, scale.weight / total) for scale in self.scales)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a score, apart from the pictures.

    Parameters
    ----------
    levels : tuple of Level
        Noise levels; the score is their mean.
    k : int, default 100
        For each query patch, the k heaviest patches of a training image count (all, if it has fewer).
    border : {"match", "zero", "valid"}, default "match"
        ``match``: a patch that hangs over the border pairs only with patches that hang over it in the
        same way. ``zero``: pictures are padded with zeros. ``valid``: only patches inside the picture.
    pooling : {"orthonormal", "mean"}, default "orthonormal"
        Pooled windows of side w are summed and divided by w (keeps the noise variance), or by w².
    schedule : str or Schedule, default "ddpm-linear"
        Noise schedule, by name or as an object.
    draws : int or "auto", default 1
        Number of noise draws to average; ``auto``: until :class:`Stopping` is satisfied.
    views : list of str, or str with commas, default none
        What else of each training image is compared, with its mass added to the image: ``flips``, its mirror image;
        ``zoom:1.5``, the image enlarged 1.5 times.
    exponent : float, default 1.0
        The final scores are raised to this power. Shares are not.
    seed : int, default 0
        Noise seed.
    note : str, default ""
        Where the recipe comes from, in a sentence. Ignored when recipes are compared.

    Examples
    --------
    >>> recipe = Recipe((Level(100, (Scale(5, weight=0.75), Scale(8, pool=2, weight=0.25))),), k=50)
    >>> Recipe.from_toml(recipe.to_toml()) == recipe
    True
    >>> recipe.check(4, 4)
    Traceback (most recent call last):
        ...
    patchtrace.errors.PatchtraceError: a patch of 5 at t = 100 is larger than the 4 x 4 image: use a patch of at most 4
    """

    levels: tuple[Level, ...]
    k: int = 100
    border: Border = "match"
    pooling: Pooling = "orthonormal"
    schedule: str | Schedule = "ddpm-linear"
    draws: int | Literal["auto"] = 1
    views: tuple[str, ...] = ()
    exponent: float = 1.0
    seed: int = 0
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        error = "a recipe needs at least one Level, such as Level(100, (Scale(patch=5),))"
        levels = _tuple_of(Level, self.levels, error)
        steps = [level.t for level in levels]
        if len(set(steps)) != len(steps):
            raise PatchtraceError(
                f"each t may occur once, but the levels are at {steps}: put its scales into one level"
            )
        choice("border", self.border, get_args(Border))
        choice("pooling", self.pooling, get_args(Pooling))
        if not isinstance(self.note, str):
            raise PatchtraceError(f"note is {brief(self.note)}: use a text in quotes")
        store(
            self,
            levels=levels,
            k=whole("k", self.k, 1),
            draws=_draws(self.draws),
            views=view_names(self.views),
            exponent=positive("exponent", self.exponent),
            seed=whole("seed", self.seed, 0),
        )
        if not isinstance(self.schedule, str | Schedule):
            raise PatchtraceError(
                f"schedule is {brief(self.schedule)}: use a name such as 'ddpm-linear', or a Schedule"
            )
        # a Schedule equal to a named one is stored by its name, so that both recipes compare equal
        store(self, schedule=next((name for name in NAMES if self.schedule == Schedule.named(name)), self.schedule))
        for level in levels:
            sigma = self.noise_at(level.t)[1]
            if sigma**2 < LEAST_VARIANCE:
                raise PatchtraceError(
                    f"the schedule has noise of variance {sigma**2:g} at t = {level.t}: use a t with at least "
                    f"{LEAST_VARIANCE:g}"
                )

    def __repr__(self) -> str:
        schedule = self.schedule if isinstance(self.schedule, str) else self.schedule.name
        return f"<Recipe {self.summary()}, schedule {schedule}{f' ({printable(self.note)})' if self.note else ''}>"

    def noise_at(self, t: int) -> tuple[float, float]:
        """Factors of picture and noise at timestep ``t``.

        >>> [round(factor, 3) for factor in Recipe.preset("cifar").noise_at(100)]
        [0.946, 0.324]
        """
        return _schedule(self.schedule).at(t)

    def check(self, height: int, width: int) -> None:
        """Raise a PatchtraceError if pictures of this size are smaller than a patch of this recipe."""
        side = min(height, width)
        for level in self.levels:
            for scale in level.scales:
                if scale.patch > side:
                    raise PatchtraceError(
                        f"a patch of {scale.patch} at t = {level.t} is larger than the {height} x {width} image: "
                        f"use a patch of at most {side}"
                    )
                pictures = sum(len(View.named(view).crops((height, width), scale.patch)) for view in self.views)
                if pictures > MOST_PICTURES:
                    raise PatchtraceError(
                        f"the views {','.join(self.views)} take {pictures} pictures of each {height} x {width} image "
                        f"with patches of {scale.patch}, more than {MOST_PICTURES}: use smaller patches or zooms"
                    )

    # -- presets and files -----------------------------------------------------------------------------

    @classmethod
    def preset(cls, name: str) -> Recipe:
        """A shipped recipe, by name.

        ``patchtrace``, the default, has patches about as large as what a U-Net looks at, at one scale. ``cifar`` and
        ``celeba`` are the paper's settings, with one draw of the noise; ``cifar-stable`` and ``celeba-stable`` the same
        with as many as the list needs; ``quick`` has one level and one scale.

        >>> Recipe.preset("cifar-stable").draws
        'auto'
        """
        return PRESETS[choice("preset", name, PRESETS)]

    @classmethod
    def for_size(cls, height: int, width: int) -> Recipe:
        """A recipe for pictures of any size; its ``note`` says how it was chosen.

        It is the preset ``patchtrace``; below a shorter side of 32, patches shrink with its square root. They do not
        grow beyond it: the paper has the same sizes at 64 x 64.

        >>> Recipe.for_size(32, 32) == Recipe.preset("patchtrace")
        True
        >>> [level.scales[0].patch for level in Recipe.for_size(16, 24).levels]
        [3, 5, 7, 7, 9]
        """
        side = min(whole("height", height, 1), whole("width", width, 1))
        base, made_for = PRESETS["patchtrace"], PRESET_SIZES["patchtrace"]
        if side >= made_for:
            return base
        largest = side if side % 2 else side - 1
        levels = []
        for level in base.levels:
            wanted = level.scales[0].patch * math.sqrt(side / made_for)
            odd = max(3, 2 * math.floor(wanted / 2) + 1)
            levels.append(Level(level.t, (Scale(min(odd, largest)),)))
        note = f"preset patchtrace, patch sizes scaled by the square root of {side}/{made_for} (shorter side {side})"
        return replace(base, levels=tuple(levels), note=note)

    @classmethod
    def for_latents(cls, height: int, width: int, schedule: str | Schedule = "flow-matching") -> Recipe:
        """A recipe for latents of any size; its ``note`` says how it was chosen.

        Levels are given by their noise share, so that they have the same noise under every schedule.

        Parameters
        ----------
        height, width : int
            Size in latents: that of the pictures, divided by the factor of the autoencoder.
        schedule : str or Schedule, default "flow-matching"
            Noise schedule of the models in whose latents is compared.

        Examples
        --------
        >>> [(level.t, level.scales[0].patch) for level in Recipe.for_latents(64, 64).levels]
        [(419, 3), (669, 5)]
        """
        side = min(whole("height", height, 1), whole("width", width, 1))
        largest = side if side % 2 else side - 1
        levels = tuple(
            Level.at_noise(share, (Scale(min(patch, largest)),), schedule) for share, patch in LATENT_LEVELS.items()
        )
        return cls(levels, schedule=schedule, note=LATENT_NOTE)

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a recipe from a TOML file."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise PatchtraceError(f"cannot read the recipe {str(path)!r}: {error}") from error
        except PatchtraceError as error:
            raise PatchtraceError(f"recipe {str(path)!r}: {error}") from error

    @classmethod
    def from_toml(cls, text: str) -> Recipe:
        """Read a recipe from TOML text. An unknown key is an error."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PatchtraceError(f"not valid TOML: {error}") from error
        except ValueError as error:
            raise PatchtraceError("not valid TOML: a number has thousands of digits") from error
        except RecursionError as error:
            raise PatchtraceError("not valid TOML: lists or tables are nested too deeply") from error
        return cls.from_dict(table)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Recipe:
        """Read a recipe from plain data, as ``to_dict`` gives it."""
        settings = _known(Recipe, _with_views(table), "recipe")
        tables = _tables("levels", settings["levels"])
        if isinstance(settings.get("schedule"), Mapping):
            settings["schedule"] = Schedule(**_known(Schedule, settings["schedule"], "schedule"))
        tables = [_at_t(level, settings.get("schedule", Recipe.schedule)) for level in tables]
        settings["levels"] = tuple(
            Level(**_known(Level, level, "level") | {"scales": _scales(level)}) for level in tables
        )
        return cls(**settings)

    # -- writing recipes ---------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what TOML and JSON hold."""
        table = asdict(self, dict_factory=_plain)
        levels = table.pop("levels")
        return table | {"levels": levels}

    def to_toml(self) -> str:
        """TOML text that ``from_toml`` reads back to an equal recipe."""
        table = self.to_dict()
        levels = table.pop("levels")
        lines = [f"{key} = {_toml(value)}" for key, value in table.items() if value != ""]
        for level in levels:
            lines += ["", "[[levels]]", f"t = {level['t']}", "scales = ["]
            lines += [f"    {_toml(scale)}," for scale in level["scales"]]
            lines += ["]"]
        return "\n".join(lines) + "\n"

    def summary(self) -> str:
        """Levels and patch sizes in one line.

        >>> Recipe.preset("quick").summary()
        'k 100, border match; t 100: 5'
        """
        levels = "; ".join(
            f"t {level.t}: " + " + ".join(f"{s.patch}" + (f"/{s.pool}" if s.pool > 1 else "") for s in level.scales)
            for level in self.levels
        )
        extras = f", draws {self.draws}" if self.draws != 1 else ""
        extras += f", views {','.join(self.views)}" if self.views else ""
        extras += f", exponent {self.exponent}" if self.exponent != 1 else ""
        return f"k {self.k}, border {self.border}{extras}; {levels}"


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """When a run with ``draws="auto"`` has enough draws of the noise; of other runs, only the time limit.

    It has when each image of the list belongs to it, or ties with its last, and shares are known well enough.

    Parameters
    ----------
    top : int, default 10
        Length of the list that has to settle.
    confidence : float, default 0.95
        Probability with which each image of the list has to belong to it.
    tolerance : float, default 0.1
        Shares tie if they differ by less than this fraction of the larger one, or of a tenth of the first share.
    precision : float, default 0.1
        Largest standard error of a listed share, as the same fraction.
    most_draws : int, default 256
        Draw limit of each level.
    seconds : float, optional
        Time limit for a query, also of a given number of draws; by default none. With a limit the result depends on
        the speed of the machine, and where it is too short for all images, a coarse pass chooses a shortlist: an
        approximate result.

    Examples
    --------
    >>> Stopping(confidence=2)
    Traceback (most recent call last):
        ...
    patchtrace.errors.PatchtraceError: confidence is 2: use a number between 0 and 1, such as 0.95
    """

    top: int = 10
    confidence: float = 0.95
    tolerance: float = 0.1
    precision: float = 0.1
    most_draws: int = 256
    seconds: float | None = None

    def __post_init__(self) -> None:
        store(self, top=whole("top", self.top, 1), most_draws=whole("most_draws", self.most_draws, 2, most=MOST_DRAWS))
        if not 0 < self.confidence < 1:
            raise PatchtraceError(f"confidence is {self.confidence}: use a number between 0 and 1, such as 0.95")
        if not 0 <= self.tolerance < 1:
            raise PatchtraceError(f"tolerance is {self.tolerance}: use a number from 0 to 1, such as 0.1")
        store(self, precision=positive("precision", self.precision))
        if self.seconds is not None:
            store(self, seconds=positive("seconds", self.seconds))


# -- checks and plain data ------------------------------------------------------------------------------


def _draws(value: object) -> int | Literal["auto"]:
    return "auto" if value == "auto" else whole("draws", value, 1, also=", or 'auto'", most=MOST_DRAWS)


def _tuple_of(kind: type, given: object, error: str) -> tuple[Any, ...]:
    """One or more of a kind, given as a list, as a tuple or alone."""
    items = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not items or not all(isinstance(item, kind) for item in items):
        raise PatchtraceError(error)
    return items


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Fields as TOML and JSON have them: with lists for tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields}


def _known(kind: type, table: object, what: str) -> dict[str, Any]:
    """The table as keyword arguments of ``kind``, or an error that names the unknown or missing key."""
    if not isinstance(table, Mapping):
        raise PatchtraceError(f"a {what} must be a table of settings, not {brief(table)}")
    known = {f.name: f for f in fields(kind)}
    for key in table:
        if key not in known:
            hint = f"{nearest(key, known)}use one of {', '.join(known)}"
            raise PatchtraceError(f"a {what} has no setting {brief(key)}: {hint}")
    for name, f in known.items():
        if name not in table and f.default is MISSING:
            raise PatchtraceError(f"a {what} needs the setting {name!r}")
    return dict(table)


def _with_views(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table of a recipe with ``views``, where it is of before there were any and has ``flips``."""
    if not isinstance(table, Mapping) or "flips" not in table:
        return table
    if not isinstance(table["flips"], bool) or "views" in table:
        raise PatchtraceError(f"flips is {brief(table['flips'])}: use views = ['flips'] instead")
    rest = {name: value for name, value in table.items() if name != "flips"}
    return {**rest, "views": [FLIPS] if table["flips"] else []}


def _at_t(level: Any, schedule: Any) -> Any:
    """A level that may be given by its noise share, as one with the nearest t of the schedule."""
    if not isinstance(level, Mapping) or "noise_share" not in level:
        return level
    if "t" in level:
        raise PatchtraceError("a level has t and noise_share, which are two names of one thing: use one of them")
    rest = {name: value for name, value in level.items() if name != "noise_share"}
    return {"t": _schedule(schedule).nearest_t(level["noise_share"]), **rest}


def _schedule(given: Any) -> Schedule:
    return given if isinstance(given, Schedule) else Schedule.named(given)


def _tables(name: str, value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise PatchtraceError(f"{name} must be a list of tables, not {brief(value)}")
    return list(value)


def _scales(level: Mapping[str, Any]) -> tuple[Scale, ...]:
    return tuple(Scale(**_known(Scale, scale, "scale")) for scale in _tables("scales", level["scales"]))


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    # numbers, text and lists of them: as in JSON, but for one character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# -- presets --------------------------------------------------------------------------------------------


#: The paper's timesteps.
TIMESTEPS = (100, 200, 300, 400, 500)


def _two_scales(full: tuple[int, ...], low: tuple[int, ...], gamma: float = 0.75) -> tuple[Level, ...]:
    """The paper's levels t = 100 ... 500, each ``gamma * full + (1 - gamma) * low``."""
    return tuple(
        Level(t, (Scale(full_patch, weight=gamma), Scale(low_patch, pool=2, weight=1 - gamma)))
        for t, full_patch, low_patch in zip(TIMESTEPS, full, low, strict=True)
    )


PAPER: Mapping[str, Recipe] = {
    "cifar": Recipe(
        _two_scales((5, 7, 9, 21, 21), (8, 8, 10, 20, 20)),
        note="preset cifar: the paper's settings for 32 x 32",
    ),
    "celeba": Recipe(
        _two_scales((5, 7, 9, 11, 13), (8, 8, 10, 14, 20)),
        note="preset celeba: the paper's settings for 64 x 64; it does not give the pooled sizes, these are ours",
    ),
}
_SETTLED = "with as many draws of the noise as the list needs to settle"
PRESETS: Mapping[str, Recipe] = {
    "patchtrace": Recipe(
        tuple(Level(t, (Scale(patch),)) for t, patch in zip(TIMESTEPS, (5, 7, 9, 11, 13), strict=True)),
        views=(FLIPS,),
        note="preset patchtrace: patch sizes that predict retraining and find sources well (docs/results.md)",
    ),
    **PAPER,
    **{
        f"{name}-stable": replace(recipe, draws="auto", note=f"preset {name}-stable: as {name}, {_SETTLED}")
        for name, recipe in PAPER.items()
    },
    "quick": Recipe((Level(100, (Scale(5),)),), note="preset quick: one level, one scale, for a first look"),
}

#: Levels for latents: noise share, and side of the patch.
LATENT_LEVELS: Mapping[float, int] = {0.42: 3, 0.67: 5}
LATENT_NOTE = "for latents: levels and patches that find the sources of changed photographs (docs/pictures.md)"

#: Seconds for a query that a person waits for.
DEFAULT_SECONDS = 60.0
#: Size to which files are resized by default.
DEFAULT_SIZE = 32
#: The picture size a preset was made for.
PRESET_SIZES: Mapping[str, int] = {name: 64 if name.startswith("celeba") else 32 for name in PRESETS}
