// The kernels and their driver without Python, for the sanitizers: `make test-asan`, `make test-tsan`. Whether the
// numbers are exact is tested in tests/engines/test_native.py; here they only have to be right, while the sanitizers look
// at how they are made. Whatever the kernels get lies in a piece of memory of its own, of exactly the size it needs.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sanitizer/asan_interface.h>

#include "../driver.h"
#include "fence.h"

namespace patchtrace {

extern const Kernel emulated_kernel;  // kernel_emulated.cpp

// The gaps in whatever was laid out since the list was last emptied: see fence.h.
static thread_local std::vector<std::pair<std::size_t, std::size_t>> gaps;
void fence(std::size_t begin, std::size_t end) { gaps.push_back({begin, end}); }

namespace {

[[noreturn]] void fail(const std::string& message) {
    std::fprintf(stderr, "kernel_test: %s\n", message.c_str());
    std::exit(1);
}

// --- kernels that keep to their fences -------------------------------------------------------------------------------

// A kernel whose memory is fenced before each use. Kernels are plain functions, so it is fixed at compile time which.
template <int NUMBER> struct Fenced {
    static const Kernel* inner;

    template <class Bytes> static void forbid_gaps(Bytes bytes, const Geometry& g, bool wide, const void* memory) {
        gaps.clear();
        bytes(g, wide);
        if (gaps.empty()) fail("the parts of the memory have no fences");
        for (const auto& gap : gaps)
            ASAN_POISON_MEMORY_REGION(static_cast<const char*>(memory) + gap.first, gap.second - gap.first);
    }

    static void prepare(const Geometry& g, const Query& query, void* scratch, void* prepared) {
        forbid_gaps(inner->scratch_bytes, g, query.wide, scratch);
        forbid_gaps(inner->query_bytes, g, query.wide, prepared);
        inner->prepare(g, query, scratch, prepared);
    }

    static void compare(const Geometry& g, const Query& query, const void* prepared, const Image& image, void* scratch,
                        const Answer& answer, const Control& control) {
        forbid_gaps(inner->scratch_bytes, g, query.wide, scratch);
        inner->compare(g, query, prepared, image, scratch, answer, control);
    }

    static Kernel of(const Kernel& kernel, const char* name) {
        inner = &kernel;
        return {name, kernel.scratch_bytes, kernel.query_bytes, prepare, compare, kernel.share};
    }
};
template <int NUMBER> const Kernel* Fenced<NUMBER>::inner = nullptr;

// All that this processor can run, and the widest vectors in any case.
std::vector<Kernel> all_kernels() {
    std::vector<Kernel> fenced{Fenced<0>::of(emulated_kernel, "emulated avx512")};
    const auto found = kernels();
    fenced.push_back(Fenced<1>::of(*found[0], found[0]->name));
    if (found.size() > 1) fenced.push_back(Fenced<2>::of(*found[1], found[1]->name));
    if (found.size() > 2) fenced.push_back(Fenced<3>::of(*found[2], found[2]->name));
    if (found.size() > 3) fail("more kernels than this test knows");
    return fenced;
}

// --- cases -----------------------------------------------------------------------------------------------------------

enum Border { MATCH, ZERO, VALID };
const char* const BORDERS[] = {"match", "zero", "valid"};

struct Case {
    int channels, height, width, patch, pool;
    Border border;
    bool mean;  // pooling
    long k;
    int images;
    std::string precisions;  // of the queries: w for float64, n for float32
    bool constant = false;
    std::size_t cache = 1 << 18;
    bool patchwork = false;

    // The same with the noise of its first query apart.
    Case as_patchwork() const {
        Case other = *this;
        other.patchwork = true;
        other.precisions.resize(1);
        return other;
    }

    int taps() const { return patch / pool; }
    int extent() const { return taps() * pool; }
    int pad() const { return border == VALID ? 0 : (patch - 1) / 2; }
    int positions(int side) const { return side + 2 * pad() - patch + 1; }
    int middle() const { return (patch - 1) / 2 - pad(); }
    int patches() const { return positions(height) * positions(width); }
    double divisor() const { return mean ? pool * pool : pool; }
    std::size_t pixels() const { return std::size_t(channels) * height * width; }

    Axis axis(int side) const {
        int first = 0, end = positions(side);
        if (border == MATCH) first = pad(), end = std::min(end, side - extent() + pad() + 1);
        return {side, pad(), positions(side), first, end - first};
    }
    bool possible() const {
        for (int side : {height, width})
            if (taps() < 1 || positions(side) < 1 || axis(side).inside < 1) return false;
        return true;
    }
    Geometry geometry() const {
        return {channels, axis(height), axis(width), taps(), pool, middle(), divisor(), k, cache, patchwork};
    }
    std::string text() const {
        char line[200];
        std::snprintf(line, sizeof line,
                      "%d channels, %d x %d, patch %d, pool %d (%s), border %s, k %ld, %d images, queries %s, cache %zu%s%s",
                      channels, height, width, patch, pool, mean ? "mean" : "orthonormal", BORDERS[border], k, images,
                      precisions.c_str(), cache, constant ? ", constant" : "",
                      patchwork ? ", patchwork" : "");
        return line;
    }
};

// The numbers of a case.
struct Input {
    const Case& of;
    std::unique_ptr<float[]> block;
    std::vector<double> colour;
    std::vector<std::unique_ptr<float[]>> noisy;
    std::vector<std::unique_ptr<double[]>> noisy_colour;
    std::vector<double> signal, variance;
    // of the first query, for a patchwork: two parts of it, with every patch where it is
    std::vector<float> pixels, noise, signs;
    std::vector<int> rows, columns;
    std::unique_ptr<bool[]> turned;

    Input(const Case& one, unsigned seed) : of(one), block(new float[one.images * one.pixels()]) {
        std::mt19937 random(seed);
        const auto uniform = [&] { return random() * 0x1p-32; };  // the same everywhere, unlike <random>'s own
        const float value = float(2 * uniform() - 1);
        for (std::size_t i = 0; i < of.images * of.pixels(); ++i)
            block[i] = of.constant ? value : float(2 * uniform() - 1);
        colour = colour_of(of.geometry(), {block.get(), std::size_t(of.images)}, of.border != ZERO, 2).mean;
        for (char precision : of.precisions) {
            // with less noise, or more pixels, float32 has too few digits
            const double v = precision == 'w' ? std::pow(10, -3 * uniform()) * 0.9 : 0.3 + 0.6 * uniform();
            signal.push_back(std::sqrt(1 - v)), variance.push_back(v);
            noisy.emplace_back(new float[of.pixels()]);
            noisy_colour.emplace_back(new double[of.channels]);
            for (std::size_t i = 0; i < of.pixels(); ++i) {
                double noise = -6;  // about normal
                for (int j = 0; j < 12; ++j) noise += uniform();
                noisy.back()[i] = float(signal.back() * block[i] + std::sqrt(v) * noise);
            }
            for (int c = 0; c < of.channels; ++c) noisy_colour.back()[c] = signal.back() * colour[c];
        }
        for (std::size_t i = 0; i < of.pixels(); ++i) {
            pixels.push_back(float(signal[0] * block[i]));
            noise.push_back(pixels[i] - noisy[0][i]);
        }
        signs.assign(of.patches(), -1.0f);
        for (int r = 0; r < of.positions(of.height); ++r) rows.push_back(r);
        for (int c = 0; c < of.positions(of.width); ++c) columns.push_back(c);
        turned.reset(new bool[rows.size()]);
        for (std::size_t r = 0; r < rows.size(); ++r) turned[r] = r % 2;
    }

    std::vector<Query> queries() const {
        std::vector<Query> all;
        for (std::size_t q = 0; q < noisy.size(); ++q)
            all.push_back({noisy[q].get(), noisy_colour[q].get(), signal[q] / variance[q],
                           -signal[q] * signal[q] / (2 * variance[q]), of.precisions[q] == 'w'});
        if (of.patchwork) {
            all[0].pixels = pixels.data();
            all[0].noise = all[0].turned = noise.data();
            all[0].patchwork = {rows.data(), columns.data(), signs.data(), turned.get()};
        }
        return all;
    }
};

struct Output {
    std::size_t normalisers, shares, colours;
    std::unique_ptr<double[]> log_normaliser;
    std::unique_ptr<float[]> share, colour;

    explicit Output(const Case& one)
        : normalisers(one.precisions.size() * one.patches()), shares(normalisers * one.images),
          colours(shares * one.channels), log_normaliser(new double[normalisers]), share(new float[shares]),
          colour(new float[colours]) {
        std::fill_n(log_normaliser.get(), normalisers, std::numeric_limits<double>::quiet_NaN());
        std::fill_n(share.get(), shares, std::numeric_limits<float>::quiet_NaN());
        std::fill_n(colour.get(), colours, std::numeric_limits<float>::quiet_NaN());
    }

    bool operator==(const Output& other) const {
        return !std::memcmp(log_normaliser.get(), other.log_normaliser.get(), normalisers * sizeof(double)) &&
               !std::memcmp(share.get(), other.share.get(), shares * sizeof(float)) &&
               !std::memcmp(colour.get(), other.colour.get(), colours * sizeof(float));
    }
};

bool never() { return false; }

bool run(const Kernel& kernel, const Input& input, int threads, Output& out,
         const std::function<bool()>& interrupted = never) {
    // geometry, queries and colour too are gone when the call is over
    const Geometry geometry = input.of.geometry();
    const std::vector<double> colour = input.colour;
    return compare(kernel, geometry, input.queries(), {input.block.get(), std::size_t(input.of.images)}, colour.data(),
                   threads, out.log_normaliser.get(), out.share.get(), out.colour.get(), interrupted);
}

// --- the formula, patch by patch ---------------------------------------------------------------------------------------

// A patch, pooled, with what hangs over the border 0; and which of its rows and columns hang over.
struct Patch {
    std::vector<double> values;
    std::vector<bool> inside;
};

std::vector<Patch> patches_of(const Case& of, const float* pixels, const double* colour) {
    std::vector<Patch> all;
    const int w = of.pool, e = of.extent();
    for (int top = -of.pad(); top < of.positions(of.height) - of.pad(); ++top)
        for (int left = -of.pad(); left < of.positions(of.width) - of.pad(); ++left) {
            Patch patch{std::vector<double>(of.channels * of.taps() * of.taps()), {}};
            for (int c = 0; c < of.channels; ++c)
                for (int y = 0; y < e; ++y)
                    for (int x = 0; x < e; ++x) {
                        const int r = top + y, j = left + x;
                        if (r < 0 || r >= of.height || j < 0 || j >= of.width) continue;
                        patch.values[(c * of.taps() + y / w) * of.taps() + x / w] +=
                            (pixels[(std::size_t(c) * of.height + r) * of.width + j] - colour[c]) / of.divisor();
                    }
            for (int y = 0; y < e; ++y) patch.inside.push_back(top + y >= 0 && top + y < of.height);
            for (int x = 0; x < e; ++x) patch.inside.push_back(left + x >= 0 && left + x < of.width);
            all.push_back(patch);
        }
    return all;
}

double log_sum(const double* begin, const double* end) {
    const double peak = *std::max_element(begin, end);
    double sum = 0;
    for (; begin < end; ++begin) sum += std::exp(*begin - peak);
    return peak + std::log(sum);
}

// As the kernels answer: without the part -||x||^2 / 2v of the logits, x being the query patch with its colour taken off.
struct Expected {
    std::vector<double> log_normaliser, share, colour, size;  // size: of the logits, as float32 has them
};

Expected formula(const Input& input) {
    const Case& of = input.of;
    const std::vector<double> nothing(of.channels, 0.0);
    std::vector<std::vector<Patch>> train;
    for (int n = 0; n < of.images; ++n)
        train.push_back(patches_of(of, input.block.get() + n * of.pixels(), nothing.data()));
    Expected expected;
    for (std::size_t q = 0; q < input.noisy.size(); ++q) {
        const double s = input.signal[q], v = input.variance[q];
        const auto query = patches_of(of, input.noisy[q].get(), nothing.data());
        const auto moved = patches_of(of, input.noisy[q].get(), input.noisy_colour[q].get());
        for (std::size_t l = 0; l < query.size(); ++l) {
            std::vector<double> totals, tops, logits, painted;  // painted: mean middle pixel of each image
            for (int n = 0; n < of.images; ++n) {
                logits.clear();
                std::vector<std::size_t> places;
                for (const Patch& u : train[n]) {
                    if (of.border == MATCH && u.inside != query[l].inside) continue;
                    double distance = 0;
                    const double *a = query[l].values.data(), *b = u.values.data();
                    for (std::size_t i = 0; i < u.values.size(); ++i) distance += (a[i] - s * b[i]) * (a[i] - s * b[i]);
                    logits.push_back(-distance / (2 * v));
                    places.push_back(&u - train[n].data());
                }
                const double own = log_sum(logits.data(), logits.data() + logits.size());
                for (int c = 0; c < of.channels; ++c) {
                    double mean = 0;
                    for (std::size_t i = 0; i < places.size(); ++i) {
                        const int r = int(places[i]) / of.positions(of.width), j = int(places[i]) % of.positions(of.width);
                        const float* plane = input.block.get() + n * of.pixels() + std::size_t(c) * of.height * of.width;
                        mean += std::exp(logits[i] - own) * plane[(r + of.middle()) * of.width + j + of.middle()];
                    }
                    painted.push_back(mean);
                }
                std::sort(logits.begin(), logits.end(), std::greater<double>());
                const double* best = logits.data();
                totals.push_back(log_sum(best, best + logits.size()));
                tops.push_back(log_sum(best, best + std::min<long>(of.k, logits.size())));
            }
            double norm = 0;
            for (double x : moved[l].values) norm += x * x / (2 * v);
            const double total = log_sum(totals.data(), totals.data() + totals.size());
            expected.log_normaliser.push_back(total + norm);
            expected.size.push_back(norm + std::abs(total));
            for (double top : tops) expected.share.push_back(std::exp(top - total));
            for (std::size_t i = 0; i < painted.size(); ++i)
                expected.colour.push_back(painted[i] * std::exp(totals[i / of.channels] - total));
        }
    }
    return expected;
}

// --- tests -----------------------------------------------------------------------------------------------------------

void check(const Expected& expected, const Output& found, const Case& of, const std::string& where) {
    for (std::size_t i = 0; i < expected.log_normaliser.size(); ++i) {
        const bool wide = of.precisions[i / of.patches()] == 'w';
        const double allowed = (wide ? 1e-6 : 1e-3) * (1 + (wide ? 0 : expected.size[i] / 1000));
        const auto near = [&](double a, double b, const char* what) {
            if (std::abs(a - b) <= allowed * std::max(1.0, std::abs(b))) return;  // not if one of them is NaN
            char line[200];
            std::snprintf(line, sizeof line, ": %s of query %zu, patch %zu is %.9g and should be %.9g", what,
                          i / of.patches(), i % of.patches(), a, b);
            fail(where + line);
        };
        near(found.log_normaliser[i], expected.log_normaliser[i], "log normaliser");
        for (int n = 0; n < of.images; ++n)
            near(found.share[i * of.images + n], expected.share[i * of.images + n], "share");
        for (int n = 0; n < of.images * of.channels; ++n)
            near(found.colour[i * of.images * of.channels + n], expected.colour[i * of.images * of.channels + n], "colour");
    }
}

void test_formula(const std::vector<Kernel>& all, const Case& of, unsigned seed) {
    if (!of.possible()) fail("no such case: " + of.text());
    const Input input(of, seed);
    const Expected expected = formula(input);
    for (const Kernel& kernel : all) {
        const std::string where = std::string(kernel.name) + ", " + of.text();
        Output alone(of);
        if (!run(kernel, input, 1, alone)) fail(where + ": stopped, though nobody asked for it");
        check(expected, alone, of, where);
        for (int threads : {2, 3}) {
            Output found(of);
            if (!run(kernel, input, threads, found)) fail(where + ": stopped, though nobody asked for it");
            if (!(found == alone)) fail(where + ": more threads change the answer");
        }
    }
}

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;

// One query against all images, without the driver: the three numbers of each patch, the shares, the normaliser.
std::vector<double> answers(const Kernel& kernel, const Input& input, std::size_t q, double rubbish) {
    const Geometry geometry = input.of.geometry();
    const Query query = input.queries()[q];
    const auto filled = [&](std::size_t bytes) {
        Memory memory(std::aligned_alloc(64, bytes));
        for (std::size_t i = 0; i < bytes / sizeof(float); ++i) {
            const double value = rubbish * ((i * 2654435761u >> 16) % 1000 / 500.0 - 1);
            if (!query.wide) static_cast<float*>(memory.get())[i] = float(value);
            else if (i % 2) static_cast<double*>(memory.get())[i / 2] = value;
        }
        return memory;
    };
    const std::size_t images = input.of.images, patches = geometry.patches();
    const Memory scratch = filled(kernel.scratch_bytes(geometry, query.wide));
    const Memory prepared = filled(kernel.query_bytes(geometry, query.wide));
    const Control control{[](void*) { return false; }, nullptr};
    kernel.prepare(geometry, query, scratch.get(), prepared.get());
    std::unique_ptr<double[]> peaks(new double[images * patches]), log_normaliser(new double[patches]);
    std::unique_ptr<float[]> totals(new float[images * patches]), tops(new float[images * patches]),
        share(new float[images * patches]), lines(new float[images * 32]);
    const std::size_t channels = geometry.channels;
    std::unique_ptr<float[]> painted(new float[images * patches * channels]), colour(new float[images * patches * channels]);
    std::vector<double> all;
    for (std::size_t n = 0; n < images; ++n)
        for (bool again : {false, true}) {
            std::unique_ptr<double[]> peak(new double[patches]);
            std::unique_ptr<float[]> total(new float[patches]), top(new float[patches]), paint(new float[patches * channels]);
            std::unique_ptr<float[]> image(new float[geometry.pixels()]);  // need not be there the second time
            if (!again) std::copy_n(input.block.get() + n * geometry.pixels(), geometry.pixels(), image.get());
            kernel.compare(geometry, query, prepared.get(), {image.get(), input.colour.data(), again}, scratch.get(),
                           {peak.get(), total.get(), top.get(), paint.get()}, control);
            if (again && (!std::equal(peak.get(), peak.get() + patches, peaks.get() + n * patches) ||
                          !std::equal(total.get(), total.get() + patches, totals.get() + n * patches) ||
                          !std::equal(top.get(), top.get() + patches, tops.get() + n * patches) ||
                          !std::equal(paint.get(), paint.get() + patches * channels,
                                      painted.get() + n * patches * channels)))
                fail(std::string(kernel.name) + ", " + input.of.text() + ": an image that is prepared gives another answer");
            std::copy_n(peak.get(), patches, peaks.get() + n * patches);
            std::copy_n(total.get(), patches, totals.get() + n * patches);
            std::copy_n(top.get(), patches, tops.get() + n * patches);
            std::copy_n(paint.get(), patches * channels, painted.get() + n * patches * channels);
        }
    kernel.share(geometry, images, 0, patches, {peaks.get(), totals.get(), tops.get(), painted.get()},
                 log_normaliser.get(), share.get(), colour.get(), lines.get());
    all.insert(all.end(), peaks.get(), peaks.get() + images * patches);
    all.insert(all.end(), totals.get(), totals.get() + images * patches);
    all.insert(all.end(), tops.get(), tops.get() + images * patches);
    all.insert(all.end(), share.get(), share.get() + images * patches);
    all.insert(all.end(), colour.get(), colour.get() + images * patches * channels);
    all.insert(all.end(), log_normaliser.get(), log_normaliser.get() + patches);
    return all;
}

// What lies in the scratch memory where nothing was put is read, but must not count.
void test_rubbish(const std::vector<Kernel>& all, const Case& of, unsigned seed) {
    const Input input(of, seed);
    for (const Kernel& kernel : all)
        for (std::size_t q = 0; q < input.noisy.size(); ++q)
            if (answers(kernel, input, q, 0) != answers(kernel, input, q, 1000))
                fail(std::string(kernel.name) + ", " + of.text() + ": what lay in the memory before changes the answer");
}

void test_interrupt(const std::vector<Kernel>& all, const Case& of) {
    const Input input(of, 1);
    for (const Kernel& kernel : all)
        for (int threads : {1, 3}) {
            Output out(of);
            int asked = 0;
            bool elsewhere = false;
            const auto caller = std::this_thread::get_id();
            const bool done = run(kernel, input, threads, out, [&] {
                elsewhere |= std::this_thread::get_id() != caller;
                return ++asked > 1;
            });
            const std::string where = std::string(kernel.name) + ", " + of.text();
            if (done) fail(where + ": an interrupt was not heard");
            if (asked != 2) fail(where + ": asked again after the interrupt");
            if (elsewhere) fail(where + ": not asked on the calling thread");
        }
}

void test_two_at_once(const std::vector<Kernel>& all) {
    const Case of{3, 20, 20, 5, 1, MATCH, false, 40, 8, "nw"};
    const Input input(of, 2);
    for (const Kernel& kernel : all) {
        Output alone(of), one(of), two(of);
        run(kernel, input, 1, alone);
        std::thread other([&] { run(kernel, input, 2, one); });
        run(kernel, input, 3, two);
        other.join();
        if (!(one == alone && two == alone)) fail(std::string(kernel.name) + ": two calls at once change the answer");
    }
}

const std::vector<Case> NASTY{
    {1, 1, 1, 1, 1, MATCH, false, 1, 1, "nw"},             // one pixel
    {3, 1, 1, 1, 1, VALID, false, 5, 3, "w"},
    {2, 1, 1, 3, 1, ZERO, false, 1, 2, "wn"},              // a patch larger than the picture
    {1, 1, 9, 1, 1, MATCH, false, 2, 2, "nw"},             // one row, one column
    {5, 9, 1, 1, 1, ZERO, true, 3, 2, "nw"},
    {3, 7, 7, 7, 1, MATCH, false, 1, 2, "nw"},             // as large as the picture
    {3, 8, 8, 8, 1, MATCH, false, 9, 2, "nw"},
    {4, 6, 6, 6, 2, VALID, true, 3, 2, "wn"},
    {1, 7, 7, 7, 3, ZERO, false, 3, 2, "wn"},
    {3, 5, 17, 4, 1, MATCH, false, 4, 2, "nw"},            // not square
    {3, 18, 6, 5, 2, MATCH, false, 4, 2, "nw"},
    {2, 4, 35, 3, 1, VALID, false, 1, 2, "nw"},
    {1, 33, 3, 3, 1, ZERO, false, 7, 2, "nw"},
    {1, 12, 12, 5, 2, MATCH, false, 6, 2, "nw"},           // rows left over from pooling
    {3, 13, 11, 5, 3, MATCH, true, 6, 2, "nw"},
    {3, 13, 14, 8, 3, MATCH, false, 6, 2, "nw"},
    {5, 12, 12, 7, 3, ZERO, false, 6, 2, "nw"},
    {4, 13, 13, 7, 2, VALID, true, 6, 2, "nw"},
    {3, 20, 20, 9, 1, MATCH, false, 20, 2, "nw"},          // windows that have a text of their own: 4 to 13 taps
    {2, 25, 26, 11, 1, MATCH, false, 20, 1, "nw"},
    {1, 32, 29, 13, 1, MATCH, false, 20, 1, "nw"},
    {3, 17, 18, 7, 1, MATCH, false, 20, 2, "nw"},
    {3, 16, 22, 5, 1, MATCH, false, 20, 2, "nw"},
    {4, 22, 16, 4, 1, MATCH, false, 20, 2, "nw"},
    {1, 26, 25, 10, 1, MATCH, false, 20, 1, "nw"},         // 8 windows across together, and almost
    {1, 24, 33, 9, 1, VALID, false, 20, 1, "nw"},
    {1, 21, 40, 17, 2, MATCH, false, 20, 1, "nw"},
    {9, 9, 10, 3, 1, MATCH, false, 9, 2, "nw"},            // channels, some at a time
    {16, 8, 9, 3, 1, ZERO, false, 9, 2, "nw"},
    {38, 7, 8, 2, 1, MATCH, false, 9, 2, "wn"},
    {3, 14, 14, 3, 1, MATCH, false, 1, 3, "nw"},           // k
    {3, 14, 14, 3, 1, MATCH, false, 1000000000, 3, "nw"},
    {3, 14, 14, 3, 1, ZERO, false, 195, 2, "nw"},
    {3, 14, 14, 3, 1, VALID, false, 143, 2, "nw", true},   // ties
    {3, 14, 14, 3, 1, MATCH, false, 1, 2, "nw", true},
    {1, 20, 20, 5, 1, ZERO, false, 50, 2, "nw", true},
    {3, 12, 12, 3, 1, MATCH, false, 9, 13, "nwnnw"},       // precisions in turn, with many images and few
    {3, 12, 12, 4, 2, MATCH, false, 9, 2, "wwnwn"},
    {3, 12, 12, 5, 1, ZERO, false, 9, 1, "n"},             // more threads than work
    {3, 12, 12, 5, 1, MATCH, false, 9, 1, "w"},
    {3, 24, 24, 5, 1, MATCH, false, 9, 1, "nw", false, 1},  // tables for few columns at a time
    {3, 24, 24, 6, 2, MATCH, false, 9, 1, "nw", false, 20000},
    {1, 22, 22, 9, 1, ZERO, false, 9, 1, "nw", false, 1},
};

Case random_case(std::mt19937& random) {
    const auto from = [&](int low, int high) { return low + int(random() % unsigned(high - low + 1)); };
    for (;;) {
        Case one{from(1, 5), 0, 0, 0, from(1, 3), Border(from(0, 2)), from(0, 1) == 1, 0, from(1, 4), ""};
        const bool large = from(0, 9) == 0;
        one.height = from(1, large ? 24 : 12), one.width = from(1, large ? 36 : 12);
        one.patch = from(one.pool, 12);
        one.k = from(0, 4) ? from(1, 60) : from(1, 2000);
        for (int queries = from(1, 3); queries; --queries) one.precisions += from(0, 1) ? 'w' : 'n';
        if (large) one.images = 1, one.precisions.resize(1);
        one.constant = from(0, 15) == 0;
        one.cache = from(0, 2) ? 1 << 18 : from(1, 50000);
        if (one.possible()) return one;
    }
}

}  // namespace
}  // namespace patchtrace

// kernel_test [how many random cases]
int main(int count, char** arguments) {
    using namespace patchtrace;
    const std::vector<Kernel> all = all_kernels();
    const int cases = count > 1 ? std::atoi(arguments[1]) : 200;
    unsigned seed = 0;
    for (const Case& one : NASTY) {
        test_formula(all, one, ++seed);
        test_rubbish(all, one, seed);
        test_formula(all, one.as_patchwork(), seed);
        test_rubbish(all, one.as_patchwork(), seed);
    }
    std::mt19937 random(20240607);
    for (int i = 0; i < cases; ++i) {
        const Case one = random_case(random);
        test_formula(all, one, ++seed);
        if (i % 2 == 0) test_formula(all, one.as_patchwork(), seed);
        if (i % 4 == 0) test_rubbish(all, one, seed), test_rubbish(all, one.as_patchwork(), seed);
    }
    test_two_at_once(all);
    // seconds of work, if it were not stopped: in few large images, and in many small ones
    test_interrupt(all, {3, 128, 128, 5, 1, MATCH, false, 100, 40, "n"});
    test_interrupt(all, {1, 24, 24, 3, 1, MATCH, false, 100, 10000, "n"});
    std::printf("kernel_test: %zu cases, %d of them random, with", NASTY.size() + cases, cases);
    for (const Kernel& kernel : all) std::printf(" [%s]", kernel.name);
    std::printf(": fine\n");
}
