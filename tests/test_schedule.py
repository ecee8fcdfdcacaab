"""Noise schedules, by name, by array, and from what diffusers writes."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from patchtrace import PatchtraceError, Schedule
from patchtrace.schedule import NAMES


def test_ddpm_linear_is_the_product_of_one_minus_beta():
    alphas = 1.0
    for t in range(101):
        alphas *= 1 - (1e-4 + (0.02 - 1e-4) * t / 999)
    signal, noise = Schedule.named("ddpm-linear").at(100)
    assert signal == pytest.approx(math.sqrt(alphas))
    assert noise == pytest.approx(math.sqrt(1 - alphas))


def test_scaled_linear_is_linear_in_the_root_of_beta():
    schedule = Schedule.named("scaled-linear")
    first = 1 - schedule.alphas_cumprod[0]
    last = 1 - schedule.alphas_cumprod[-1] / schedule.alphas_cumprod[-2]
    middle = 1 - schedule.alphas_cumprod[500] / schedule.alphas_cumprod[499]
    assert first == pytest.approx(0.00085)
    assert last == pytest.approx(0.012)
    root = math.sqrt(0.00085) + (math.sqrt(0.012) - math.sqrt(0.00085)) * 500 / 999
    assert middle == pytest.approx(root**2)


def test_cosine_follows_the_squared_cosine():
    schedule = Schedule.named("cosine")

    def level(u):
        return math.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2

    for t in (0, 300, 700):
        assert schedule.alphas_cumprod[t] == pytest.approx(level((t + 1) / 1000) / level(0))


@pytest.mark.parametrize("name", ["ddpm-linear", "scaled-linear", "cosine"])
def test_named_schedules_have_1000_steps_from_nearly_all_picture_to_nearly_all_noise(name):
    schedule = Schedule.named(name)
    assert len(schedule) == 1000
    assert schedule.at(0)[0] > 0.999
    assert schedule.at(999)[0] < 0.1


def test_an_array_is_taken_as_it_is():
    schedule = Schedule.from_array(np.float32([0.9, 0.5, 0.1]))
    assert schedule.at(1) == pytest.approx((math.sqrt(0.5), math.sqrt(0.5)))


# what diffusers 0.3x writes into scheduler_config.json for DDPMScheduler and for Stable Diffusion's DDIMScheduler
DDPM = json.loads(
    '{"_class_name": "DDPMScheduler", "_diffusers_version": "0.35.0", "beta_end": 0.02, "beta_schedule": "linear",'
    ' "beta_start": 0.0001, "num_train_timesteps": 1000, "prediction_type": "epsilon", "trained_betas": null,'
    ' "rescale_betas_zero_snr": false}'
)
DDIM = DDPM | {
    "_class_name": "DDIMScheduler",
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "beta_end": 0.012,
}


@pytest.mark.parametrize(
    ("config", "name"),
    [(DDPM, "ddpm-linear"), (DDIM, "scaled-linear"), ({"beta_schedule": "squaredcos_cap_v2"}, "cosine")],
)
def test_a_diffusers_config_gives_the_schedule_of_that_name(config, name):
    np.testing.assert_allclose(Schedule.from_diffusers(config).alphas_cumprod, Schedule.named(name).alphas_cumprod)


def test_a_scheduler_object_is_taken_at_its_own_alphas():
    scheduler = SimpleNamespace(alphas_cumprod=np.linspace(0.99, 0.01, 10), config=DDPM)
    assert len(Schedule.from_diffusers(scheduler)) == 10


def test_a_scheduler_object_without_alphas_is_read_by_its_config():
    assert Schedule.from_diffusers(SimpleNamespace(config=DDPM)).name == "DDPMScheduler"


def test_trained_betas_go_before_the_rest():
    schedule = Schedule.from_diffusers(DDPM | {"trained_betas": [0.5, 0.5]})
    assert schedule.alphas_cumprod == pytest.approx((0.5, 0.25))


def test_zero_terminal_snr_leaves_no_picture_at_the_end_and_the_first_step_alone():
    schedule = Schedule.from_diffusers(DDPM | {"rescale_betas_zero_snr": True})
    assert schedule.at(999) == (0.0, 1.0)
    assert schedule.at(0)[0] == pytest.approx(Schedule.named("ddpm-linear").at(0)[0])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Schedule.named("linear"), "ddpm-linear"),
        (lambda: Schedule.named("cosine").at(1000), "0 to 999"),
        (lambda: Schedule.named("cosine").at(-1), "0 to 999"),
        (lambda: Schedule.from_array([1.0, 0.5]), r"\[0, 1\)"),
        (lambda: Schedule.from_array([0.5, 0.9]), "must not grow"),
        (lambda: Schedule.from_array([]), "at least one"),
        (lambda: Schedule.from_array([math.nan]), r"\[0, 1\)"),
        (lambda: Schedule.from_array(["a"]), "must be numbers"),
        (lambda: Schedule.from_diffusers({}), "no betas"),
        (lambda: Schedule.from_diffusers(3), "scheduler_config.json"),
        (lambda: Schedule.from_diffusers({"beta_schedule": "sigmoid"}), "alphas_cumprod"),
    ],
)
def test_what_is_wrong_is_refused_with_what_would_be_right(make, says):
    with pytest.raises(PatchtraceError, match=says):
        make()


FLOW = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 1.0}


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_flow_matching_is_what_diffusers_has(shift):
    from diffusers import FlowMatchEulerDiscreteScheduler

    scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
    sigmas = np.asarray(scheduler.sigmas, dtype=np.float64)[::-1]
    for given in (scheduler, dict(scheduler.config), FLOW | {"shift": shift}):
        schedule = Schedule.from_diffusers(given)
        shares = [schedule.noise_share(t) for t in range(len(schedule))]
        np.testing.assert_allclose(shares, sigmas, atol=1e-6)


def test_a_dynamic_shift_is_left_out_as_diffusers_leaves_it_out():
    schedule = Schedule.from_diffusers(FLOW | {"shift": 3.0, "use_dynamic_shifting": True})
    np.testing.assert_allclose(schedule.alphas_cumprod, Schedule.named("flow-matching").alphas_cumprod)


def test_flow_matching_gives_the_weights_of_its_own_formula():
    """Logits of x_t = (1 - sigma) x + sigma eps and of the variance-preserving process are the same."""
    schedule, rng = Schedule.named("flow-matching"), np.random.default_rng(0)
    x, eps, others = rng.standard_normal((3, 20))
    for t in (50, 250, 700):
        sigma = (t + 1) / 1000
        own = -(((1 - sigma) * x + sigma * eps - (1 - sigma) * others) ** 2).sum() / (2 * sigma**2)
        signal, noise = schedule.at(t)
        ours = -((signal * x + noise * eps - signal * others) ** 2).sum() / (2 * noise**2)
        assert ours == pytest.approx(own)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_a_noise_share_means_the_same_noise_in_every_schedule(name, share):
    schedule = Schedule.named(name)
    assert schedule.noise_share(schedule.nearest_t(share)) == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize("share", [0, 1, -0.5, math.nan, "much", True])
def test_a_noise_share_lies_between_0_and_1(share):
    with pytest.raises(PatchtraceError, match="between 0 and 1"):
        Schedule.named("flow-matching").nearest_t(share)
