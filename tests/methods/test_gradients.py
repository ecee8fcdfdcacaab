"""Methods on gradients, against gradients taken one by one, dense matrices and formulas written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from methods.gradient_toys import ENOUGH, MODEL, OTHER, QUERIES, TIMES, TRAIN, network, plain

from patchtrace import Attribution, ImageSet, PatchtraceError, Schedule
from patchtrace.compute import Compute
from patchtrace.diffusion import Denoiser
from patchtrace.methods.gradients import DTRAK, GAS, TRAK, GradientSimilarity, TracInCP, per_image
from patchtrace.methods.gradients import projection as projections
from patchtrace.methods.gradients.features import features
from patchtrace.methods.gradients.kernels import Ridge, cosines, products
from patchtrace.methods.gradients.per_image import Gradients, fingerprint
from patchtrace.methods.gradients.projection import Projection
from patchtrace.methods.gradients.trak import LAMBDAS
from patchtrace.progress import Counter

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

RNG = np.random.default_rng(4)


def one_by_one(
    model: Denoiser, images: ImageSet, stream: int, times=TIMES, draws: int = 1, seed: int = 0, output: bool = False
) -> np.ndarray:
    """Gradients as their definition has them: a backward pass for each picture, timestep and noise."""
    rows = []
    for number in range(len(images)):
        clean = torch.from_numpy(images.block(number, number + 1))
        shape = (draws, len(times), 1, *images.shape)
        noise = np.random.default_rng([seed, number, stream]).standard_normal(shape, dtype=np.float32)
        total = 0.0
        for draw in range(draws):
            for place, t in enumerate(times):
                alpha = float(model.schedule.alphas_cumprod[t])
                eps = torch.from_numpy(noise[draw, place])
                guess = model.model(alpha**0.5 * clean + (1 - alpha) ** 0.5 * eps, t).sample
                model.model.zero_grad()
                torch.mean((guess - (0 if output else eps)) ** 2).backward()
                total = total + torch.cat([weight.grad.flatten() for weight in model.model.parameters()]).double()
        model.model.zero_grad()
        rows.append((total / (draws * len(times))).numpy())
    return np.stack(rows)


@pytest.fixture(scope="module")
def exact() -> dict[str, np.ndarray]:
    return {
        "train": one_by_one(MODEL, TRAIN, 1),
        "queries": one_by_one(MODEL, QUERIES, 2),
        "train-output": one_by_one(MODEL, TRAIN, 1, output=True),
        "queries-output": one_by_one(MODEL, QUERIES, 2, output=True),
        "train-other": one_by_one(OTHER, TRAIN, 1),
        "queries-other": one_by_one(OTHER, QUERIES, 2),
    }


def close(found, expected, part: float = 1e-5) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=part * float(np.abs(np.asarray(expected)).max()))


def made(tmp_path: Path, dimension=None, images=TRAIN, stream="train", memory=ENOUGH, **changes):
    taken = Gradients(MODEL, TIMES, **changes)
    return features(taken, dimension, images, stream, tmp_path, memory=memory, count=Counter(None, 0))[0]


# -- gradients ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["train", "queries"])
@pytest.mark.parametrize("target", ["loss", "output"])
def test_features_are_gradients_taken_one_by_one(tmp_path, exact, stream, target):
    found = made(tmp_path, images=TRAIN if stream == "train" else QUERIES, stream=stream, target=target)
    close(found, exact[stream if target == "loss" else f"{stream}-output"])


def test_draws_and_seed_are_those_of_the_noise(tmp_path):
    found = made(tmp_path, images=QUERIES, draws=3, seed=5)
    close(found, one_by_one(MODEL, QUERIES, 1, draws=3, seed=5))


def test_little_memory_changes_nothing_but_the_size_of_the_batches(tmp_path):
    taken = Gradients(MODEL, TIMES, draws=2)
    assert taken.together(ENOUGH) == (per_image.MOST_TOGETHER, 4)
    activations = taken._activations()
    little = 16 * taken.width + 2 * 4 * activations
    assert taken.together(little) == (1, 2)
    expected = made(tmp_path / "much", images=QUERIES, draws=2)
    close(made(tmp_path / "little", images=QUERIES, memory=little, draws=2), expected)


def test_too_little_memory_is_said_with_the_memory_that_would_do(tmp_path):
    with pytest.raises(PatchtraceError, match=r"one gradient of this model takes .* MB: use memory='0.1GB'"):
        made(tmp_path, memory=100_000)


def test_a_feature_does_not_depend_on_the_images_beside_it(tmp_path, exact):
    alone = Gradients(MODEL, TIMES).of(TRAIN, range(7, 8), "train")
    close(torch.cat([part.flatten() for part in alone]), exact["train"][7])
    first = TRAIN.subset(range(4))
    close(made(tmp_path, images=first), exact["train"][:4])


def test_weights_that_are_not_trained_have_no_gradient(tmp_path):
    fourier = network(time_embedding_type="fourier")
    taken = Gradients(fourier, TIMES)
    assert "time_proj.weight" not in taken.weights
    shapes = [part.shape[1:] for part in taken.of(QUERIES, range(2), "queries")]
    assert shapes == [weight.shape for weight in taken.weights.values()]


def test_a_fingerprint_names_weights_architecture_and_schedule(tmp_path):
    MODEL.save(tmp_path)
    assert fingerprint(Denoiser.load(tmp_path)) == fingerprint(MODEL)
    others = [OTHER, Denoiser(MODEL.model, Schedule.named("cosine")), network(norm_eps=1e-3)]
    assert len({fingerprint(model) for model in [MODEL, *others]}) == 4


# -- projection -----------------------------------------------------------------------------------------


def dense(projection: Projection) -> np.ndarray:
    """The projection as a matrix, from unit vectors."""
    return projection.rows([torch.eye(projection.width)]).numpy()


def test_a_projection_is_a_matrix_with_one_sign_in_each_row(monkeypatch):
    monkeypatch.setattr(projections, "BLOCK", 16)  # so that weights lie across blocks
    projection = Projection(53, 7, (11, 2**63))
    matrix = dense(projection)
    assert (np.abs(matrix).sum(axis=1) == 1).all()
    assert (np.abs(matrix).max(axis=1) == 1).all()
    values = torch.from_numpy(RNG.standard_normal((4, 53), dtype=np.float32))
    parts = [part.reshape(4, -1, width) for part, width in zip(values.split([6, 20, 27], 1), (3, 5, 9), strict=True)]
    np.testing.assert_allclose(projection.rows(parts), values.numpy() @ matrix, atol=1e-5)


def test_places_and_signs_are_spread_evenly():
    matrix = dense(Projection(6000, 6, (1,)))
    counts = np.array([(matrix > 0).sum(axis=0), (matrix < 0).sum(axis=0)])
    assert np.abs(counts - 500).max() < 4 * 500**0.5


def test_other_seeds_and_other_models_have_other_projections(tmp_path):
    seeds = [(0, 1), (1, 1), (0, 2)]
    assert len({dense(Projection(40, 8, seed)).tobytes() for seed in seeds}) == 3
    rows = [
        features(Gradients(model, TIMES), 8, QUERIES, "train", tmp_path, memory=ENOUGH, count=Counter(None, 0))[0]
        for model in (MODEL, OTHER)
    ]
    assert not np.allclose(*rows)


def test_projected_inner_products_are_those_of_the_gradients_up_to_the_error_that_is_promised(exact):
    rows, lengths = exact["train"], np.linalg.norm(exact["train"], axis=1)
    given = [torch.from_numpy(rows)]
    projected = [Projection(rows.shape[1], 256, (seed,)).rows(given).numpy() for seed in range(60)]
    errors = (np.stack([p @ p.T for p in projected]) - rows @ rows.T) / np.outer(lengths, lengths)
    off = ~np.eye(len(rows), dtype=bool)
    # standard deviation at most sqrt((1 + cosine^2) / dimension), mean 0
    spread = errors[:, off].std(axis=0)
    assert 0.3 / 256**0.5 < spread.mean() < 2**0.5 / 256**0.5
    assert np.abs(errors[:, off].mean(axis=0)).max() < 4.5 * spread.max() / 60**0.5


def test_features_are_projected_with_the_same_matrix_for_all_batches(tmp_path, exact, monkeypatch):
    monkeypatch.setattr(per_image, "MOST_TOGETHER", 3)
    named = int(fingerprint(MODEL)[:16], 16)
    matrix = Projection(exact["train"].shape[1], 32, (0, named))
    close(made(tmp_path, 32), matrix.rows([torch.from_numpy(exact["train"])]))


# -- scores ---------------------------------------------------------------------------------------------


def cosine(queries: np.ndarray, train: np.ndarray) -> np.ndarray:
    return (queries / np.linalg.norm(queries, axis=1)[:, None]) @ (train / np.linalg.norm(train, axis=1)[:, None]).T


def kernel(queries: np.ndarray, train: np.ndarray, lam: float) -> np.ndarray:
    """The formula, with a dense inverse."""
    ridge = lam * np.mean(np.sum(train**2, axis=1)) * np.eye(train.shape[1])
    return queries @ np.linalg.inv(train.T @ train + ridge) @ train.T


@pytest.mark.parametrize("name", ["gradient", "tracincp", "gas", "trak", "dtrak"])
def test_every_method_has_the_face_of_the_others(name, tmp_path):
    seen = []
    method = plain(name, dimension=16, timesteps=2).fit(TRAIN)
    result = method.attribute(QUERIES, progress=lambda *told: seen.append(told))
    assert result.method == name
    assert result.scores.shape == result.shares.shape == (3, 10)
    assert np.isfinite(result.scores).all()
    assert (result.shares.sum(axis=1) <= 1 + 1e-5).all()
    models = 2 if name in ("tracincp", "gas") else 1
    assert seen[-1] == (models * 13 * 2, models * 13 * 2)
    assert sorted(seen) == seen
    settings = Attribution.load(result.save(tmp_path)).settings
    assert settings == result.settings
    assert settings["models"] == [fingerprint(MODEL), fingerprint(OTHER)][:models]
    assert settings["timesteps"] == [250, 750]
    assert (settings["seed"], settings["dimension"], settings["projection"]) == (0, 16, "count sketch")


def test_gradient_similarity_is_inner_product_or_cosine(exact):
    found = plain("gradient").fit(TRAIN).attribute(QUERIES)
    close(found.scores, exact["queries"] @ exact["train"].T)
    found = plain("gradient", metric="cosine").fit(TRAIN).attribute(QUERIES)
    close(found.scores, cosine(exact["queries"], exact["train"]))


def test_tracincp_and_gas_are_means_over_checkpoints(exact):
    pairs = [(exact["queries"], exact["train"]), (exact["queries-other"], exact["train-other"])]
    close(plain("tracincp").fit(TRAIN).attribute(QUERIES).scores, sum(q @ t.T for q, t in pairs) / 2)
    close(plain("gas").fit(TRAIN).attribute(QUERIES).scores, sum(cosine(q, t) for q, t in pairs) / 2)


def test_checkpoints_are_found_in_the_directory_of_a_training(tmp_path):
    OTHER.save(tmp_path / "checkpoints" / "00000005")
    MODEL.save(tmp_path)
    method = TracInCP(tmp_path, timesteps=TIMES, dimension=64).fit(TRAIN)
    assert method.models_ == (fingerprint(OTHER), fingerprint(MODEL))
    with pytest.raises(PatchtraceError, match="train it with checkpoints=4"):
        TracInCP(tmp_path / "checkpoints" / "00000005").fit(TRAIN)
    listed = TracInCP([tmp_path / "checkpoints" / "00000005", MODEL], timesteps=TIMES, dimension=64).fit(TRAIN)
    assert (method.attribute(QUERIES).scores == listed.attribute(QUERIES).scores).all()


@pytest.mark.parametrize(("name", "suffix"), [("trak", ""), ("dtrak", "-output")])
def test_trak_is_the_inverse_kernel_of_its_gradients(exact, name, suffix):
    queries, train = (exact[stream + suffix] for stream in ("queries", "train"))
    # Phi^T Phi is as wide as the model; turned into the span of the images the formula stays what it is
    basis = np.linalg.qr(np.concatenate([train, queries]).T)[0]
    for lam in (0.01, 1.0):
        found = plain(name, lam=lam).fit(TRAIN).attribute(QUERIES).scores
        close(found, kernel(queries @ basis, train @ basis, lam), 1e-3 if lam < 1 else 1e-4)


@pytest.mark.parametrize("dimension", [4, 10, 25])
@pytest.mark.parametrize("memory", [ENOUGH, 3000])
def test_the_smaller_kernel_gives_the_scores_of_the_formula(dimension, memory, monkeypatch):
    monkeypatch.setattr("patchtrace.methods.gradients.kernels.check_kernel", lambda *shape: None)
    queries, train = (RNG.standard_normal((count, dimension)).astype(np.float32) for count in (3, 10))
    ridge = Ridge(train, memory)
    assert len(ridge.values) == min(10, dimension)
    for lam, found in zip((0.01, 3.0), ridge.scores(queries, (0.01, 3.0)), strict=True):
        close(found, kernel(queries.astype(float), train.astype(float), lam), 1e-9)


@pytest.mark.parametrize("memory", [ENOUGH, 500])
def test_products_and_cosines_in_blocks_are_those_of_whole_arrays(memory):
    queries, train = (RNG.standard_normal((count, 37)).astype(np.float32) for count in (3, 10))
    train[4] = 0
    a, b = queries.astype(float), train.astype(float)
    close(products(queries, train, memory), a @ b.T, 1e-12)
    found = cosines(queries, train, memory)
    assert (found[:, 4] == 0).all()
    others = np.arange(10) != 4
    close(found[:, others], cosine(a, b[others]), 1e-12)


def test_many_lambdas_are_each_what_one_would_be(tmp_path, monkeypatch):
    method = plain("trak", dimension=64, cache=tmp_path).fit(TRAIN)
    found = method.with_lambdas(QUERIES)
    assert tuple(found) == LAMBDAS
    for lam in (LAMBDAS[0], LAMBDAS[-1]):
        single = plain("trak", dimension=64, cache=tmp_path, lam=lam).fit(TRAIN).attribute(QUERIES)
        np.testing.assert_allclose(found[lam], single.scores, rtol=1e-5)
    # so many that both ends of the useful range are among them
    dot = plain("gradient", dimension=64, cache=tmp_path).fit(TRAIN).attribute(QUERIES).scores
    assert np.corrcoef(found[LAMBDAS[-1]].ravel(), dot.ravel())[0, 1] > 0.999
    smaller = [np.corrcoef(found[LAMBDAS[i]].ravel(), found[LAMBDAS[i + 1]].ravel())[0, 1] for i in (0, 1)]
    assert min(smaller) > 0.99


# -- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GradientSimilarity(MODEL, "l2"), "metric is 'l2': use one of dot, cosine"),
        (lambda: GradientSimilarity(MODEL, draws=0), "draws is 0: use a whole number of at least 1"),
        (lambda: GradientSimilarity(MODEL, seed=-1), "seed is -1"),
        (lambda: GradientSimilarity(MODEL, dimension=0), "dimension is 0"),
        (lambda: GradientSimilarity(MODEL, timesteps=[1000]), "each from 0 to 999"),
        (lambda: GradientSimilarity([MODEL, OTHER]), "use a Denoiser, or the directory"),
        (lambda: GradientSimilarity(network(out_channels=6)), "takes 3 channels and gives 6"),
        (lambda: GradientSimilarity(network(sample_size=16)), "open them with the model's size"),
        (lambda: TracInCP(MODEL), "TracInCP compares several models .* train it with checkpoints=4"),
        (lambda: TracInCP("nowhere"), "there is no directory 'nowhere'"),
        (lambda: GAS([MODEL]), "GAS compares several models"),
        (lambda: TRAK(MODEL, lam=0), "lam is 0: use a finite number greater than 0"),
        (lambda: DTRAK(MODEL, lam=float("nan")), "lam is nan"),
    ],
)
def test_what_cannot_work_is_refused_when_the_training_set_is_taken(make, message):
    method = make()
    with pytest.raises(PatchtraceError, match=message):
        method.fit(TRAIN)


def test_memory_that_is_too_small_is_refused():
    with pytest.raises(PatchtraceError, match="at least 10MB"):
        GradientSimilarity(MODEL, compute=Compute(memory="1"))


def test_a_model_that_is_not_ready_is_refused():
    busy, frozen = network(), network()
    busy.model.train()
    frozen.model.requires_grad_(False)
    with pytest.raises(PatchtraceError, match=r"call model.eval\(\)"):
        GradientSimilarity(busy).fit(TRAIN)
    with pytest.raises(PatchtraceError, match="are frozen"):
        GradientSimilarity(frozen).fit(TRAIN)


def test_a_model_that_changes_after_fit_is_noticed():
    changing = network()
    method = GradientSimilarity(changing, timesteps=TIMES).fit(TRAIN)
    with torch.no_grad():
        next(changing.model.parameters()).add_(1)
    with pytest.raises(PatchtraceError, match=r"call fit\(train\) again"):
        method.attribute(QUERIES)


def test_a_model_whose_weights_are_not_finite_is_noticed():
    broken = network()
    with torch.no_grad():
        next(broken.model.parameters()).fill_(float("nan"))
    with pytest.raises(PatchtraceError, match="gradients of images 0 to 9 are not finite"):
        GradientSimilarity(broken, timesteps=TIMES).fit(TRAIN).attribute(QUERIES)


def test_a_kernel_that_does_not_fit_is_refused_before_any_gradient(monkeypatch):
    monkeypatch.setattr(Gradients, "of", None)
    many = ImageSet.open(np.zeros((600, 8, 8, 3), np.uint8))
    method = plain("trak", dimension=600, compute=Compute(memory="10MB")).fit(many)
    with pytest.raises(PatchtraceError, match=r"600 images in 600 dimensions takes 12 MB: use memory='0.1GB'"):
        method.attribute(QUERIES)


def test_no_lambda_of_several_may_be_wrong():
    with pytest.raises(PatchtraceError, match="lam is -1"):
        plain("trak").fit(TRAIN).with_lambdas(QUERIES, [1.0, -1])


def test_no_method_works_before_it_has_a_training_set():
    with pytest.raises(PatchtraceError, match=r"fit\(train\)"):
        plain("dtrak").attribute(QUERIES)
