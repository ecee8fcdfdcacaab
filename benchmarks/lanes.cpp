// Another order of the work, tried and not taken: lanes across training images instead of along training columns.
// Interior pairs only, three channels, no pooling. Built and run by benchmarks/lanes.py; docs/performance.md says what
// came out.

#include <immintrin.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "kernel.h"

namespace patchtrace {
namespace {
#include "vector.inl"

#include "softmax.inl"

#include "pictures.inl"

#include "tables.inl"

constexpr int TILE = 4;  // query columns, and query rows, that are summed together
double fill_seconds, down_seconds, select_seconds;
long passes, calls;

double now() {  // of this process alone, so that a busy machine does not count
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

// Vectors in large pages, all 0.
struct Vectors {
    std::unique_ptr<void, Free> memory;
    explicit Vectors(std::size_t count) {
        const std::size_t page = 2 << 20, bytes = (count * sizeof(F) + page - 1) / page * page;
        memory.reset(std::aligned_alloc(page, bytes));
        std::memset(memory.get(), 0, bytes);
    }
    F* get() const { return static_cast<F*>(memory.get()); }
};

// S(a, b) for TILE query columns from l on: products and window sums of one diagonal in registers, no table K.
// x: [channel][column] of row a; z: [column][channel], a vector of images each, of row b.
template <int P> STAGE void fill(int inside, const float* x, int side, const F* z, F* out, std::size_t column_stride) {
    constexpr int COUNT = P + TILE - 1;
    F query[COUNT][3];
    for (int e = 0; e < COUNT; ++e)
        for (int c = 0; c < 3; ++c) query[e][c] = all(x[c * side + e]);
    for (int m = 1 - TILE; m < inside; ++m) {
        F products[COUNT], sums[TILE];
        for (int e = 0; e < COUNT; ++e) {
            const F* pixel = z + (m + e) * 3;
            products[e] = pixel[0] * query[e][0];
            products[e] += pixel[1] * query[e][1];
            products[e] += pixel[2] * query[e][2];
        }
        windows<float, TILE>(P, [&](int e) { return products[e]; }, sums);
        if (m >= 0 && m + TILE <= inside) {
            for (int r = 0; r < TILE; ++r) out[r * column_stride + m + r] = sums[r];
        } else {
            for (int r = 0; r < TILE; ++r)
                if (m + r >= 0 && m + r < inside) out[r * column_stride + m + r] = sums[r];
        }
    }
}

// All partners of TILE query patches on top of each other, as Comparer::column_down.
template <int P>
STAGE void down(int inside, const F* const* tables, const F* norms, F* logits, std::size_t logit_stride, F (&peaks)[TILE]) {
    const F* from[P + TILE - 1];
    for (int e = 0; e < P + TILE - 1; ++e) from[e] = tables[e];
    for (F& peak : peaks) peak = all(NOTHING);
    for (int q = 1 - TILE; q < inside; ++q)
        for (int m = 0; m < inside; ++m) {
            F sums[TILE];
            const long at = long(q) * inside + m;
            windows<float, TILE>(P, [&](int e) { return from[e][at]; }, sums);
            for (int r = 0; r < TILE; ++r) {
                const F logit = sums[r] + norms[at + r * inside];
                logits[r * logit_stride + at + r * inside] = logit;
                peaks[r] = larger(peaks[r], logit);
            }
        }
}

// sum of all weights and, by counting logits for all lanes at once, the sum of the k largest
STAGE void select(F* v, int count, F peak, long k, F& guess, F& total, F& top) {
    const float cut = cut_below(count);
    F t0{}, t1{}; I c0{}, c1{}, c2{}, cc{};
    const F g0 = guess * 0.9f, g1 = guess, g2 = guess * 1.1f;
    for (int i = 0; i < count; i += 2) {
        const F x = v[i] - peak, y = v[i + 1] - peak;
        v[i] = x, v[i + 1] = y; t0 += power_of_any(x), t1 += power_of_any(y);
        c0 -= x > g0; c0 -= y > g0; c1 -= x > g1; c1 -= y > g1; c2 -= x > g2; c2 -= y > g2; cc -= x > cut; cc -= y > cut;
    }
    total = t0 + t1;
    const I kk = I{} + int(k);
    F low = all(cut), high = all(0.0f); I nlow = cc, nhigh{};
    auto narrow = [&](F g, I c) { const I more = c > kk; const I inside = (I)(g > low) & (I)(g < high);
        low = (more & inside) ? g : low; nlow = (more & inside) ? c : nlow;
        high = (~more & inside) ? g : high; nhigh = (~more & inside) ? c : nhigh; };
    narrow(g0, c0), narrow(g1, c1), narrow(g2, c2);
    ++calls;
    const I few = cc <= kk;  // all that count are among the k
    for (int step = 0; step < 24; ++step) {
        const I want = kk - nhigh, between = nlow - nhigh;
        const I open = ~(few | (want == 0) | (want == 1) | (want == between - 1)) & ((I)(high - low > 1e-7f));
        if (!sum(open)) break;
        ++passes;
        const F w = __builtin_convertvector(want, F), n = larger(__builtin_convertvector(between, F), all(1.0f));
        const F f = (w + 0.5f) / n, spread = 0.02f + 0.5f / n;
        F fa = larger(f - spread, all(0.02f)), fb = f + spread; fb = fb > 0.98f ? all(0.98f) : fb;
        if (step % 3 == 2) fa = all(0.33f), fb = all(0.67f);
        const F ga = high + (low - high) * fa, gb = high + (low - high) * fb;
        I a0{}, a1{}, b0{}, b1{};
        for (int i = 0; i < count; i += 2) { a0 -= v[i] > ga; a1 -= v[i + 1] > ga; b0 -= v[i] > gb; b1 -= v[i + 1] > gb; }
        narrow(ga, a0 + a1), narrow(gb, b0 + b1);
    }
    if (sum(~few)) {
        guess = few ? guess : high;
        F s0{}, between{}, most = all(FAR), least = all(0.0f);
        for (int i = 0; i < count; ++i) {
            const F weight = power_of_any(v[i]);
            s0 += v[i] > high ? weight : F{};
            const I mid = (I)(v[i] > low) & (I)(v[i] <= high);
            between += mid ? weight : F{};
            const F m = mid ? v[i] : all(FAR), l = mid ? v[i] : all(0.0f);
            most = larger(most, m); least = l < least ? l : least;
        }
        const I want = kk - nhigh, nb = nlow - nhigh;
        const F extra = want == 0 ? F{} : want == 1 ? power_of_any(most) : want == nb - 1 ? between - power_of_any(least)
            : __builtin_convertvector(want, F) * power_of_any(high);
        top = few ? total : s0 + extra;
    } else top = total;
}


// All interior patches of a query against images in groups of W.
template <int P>
void compare(int side, long k, const float* query, double s, double v, const float* block, long images, double* peak,
             float* total, float* top) {
    const int inside = side - P + 1, count = inside * inside, width = side + 2 * TILE;
    const long area = long(side) * side;
    double mean[3]{};
    for (long plane = 0; plane < 3 * images; ++plane)
        for (long i = 0; i < area; ++i) mean[plane % 3] += block[plane * area + i] / (double(images) * double(area));
    std::vector<float> x(3 * area);
    for (int c = 0; c < 3; ++c)
        for (long i = 0; i < area; ++i)
            x[(i / side * 3 + c) * side + i % side] = float((query[c * area + i] - s * mean[c]) * BINARY * s / v);
    constexpr int SLOTS = P + TILE - 1;
    const std::size_t margin = 2 * TILE * inside, column_stride = std::size_t(side) * inside + 8;  // no power of two
    const std::size_t slot_stride = column_stride * TILE + 24, logit_stride = count + margin + 5;
    const Vectors train(std::size_t(side) * width * 3), norms(count + margin), tables(slot_stride * SLOTS + 2 * margin),
        logits(logit_stride * TILE + 2 * margin);
    F *const z = train.get(), *const ring = tables.get() + margin, *const own = logits.get() + margin;
    std::vector<double> squares(area);
    for (long first = 0; first < images; first += W) {
        float* const norm = reinterpret_cast<float*>(norms.get());
        for (std::size_t i = 0; i < (count + margin) * W; ++i) norm[i] = NOTHING;
        for (int lane = 0; lane < W; ++lane) {
            for (long i = 0; i < area; ++i) {
                squares[i] = 0;
                for (int c = 0; c < 3; ++c) {
                    const double value = block[((first + lane) * 3 + c) * area + i] - mean[c];
                    squares[i] += value * value;
                    reinterpret_cast<float*>(z + (i / side * width + TILE + i % side) * 3 + c)[lane] = float(value);
                }
            }
            for (int i = 0; i < count; ++i) {
                double sum = 0;
                for (int d = 0; d < P * P; ++d) sum += squares[(i / inside + d / P) * side + i % inside + d % P];
                norm[(TILE * inside + i) * W + lane] = float(-sum * s * s / (2 * v) * BINARY);
            }
        }
        F guess = all(-8.0f);
        for (int tile = 0; tile < inside; tile += TILE) {
            const int begin = at_most(inside - TILE, tile);  // the last tile may do columns again
            int filled = 0;
            for (int row = 0; row < inside; row += TILE) {
                const int rows = at_most(TILE, inside - row);
                double time = now();
                for (; filled < row + P + rows - 1; ++filled)
                    for (int b = at_least(0, filled - inside + 1); b < at_most(side, filled + inside); ++b)
                        fill<P>(inside, &x[filled * 3 * side + begin], side, z + (b * width + TILE) * 3,
                                ring + filled % SLOTS * slot_stride + b * inside, column_stride);
                fill_seconds += now() - time;
                for (int l = tile - begin; l < TILE; ++l) {
                    time = now();
                    const F* from[SLOTS];
                    for (int e = 0; e < SLOTS; ++e)
                        from[e] = ring + (row + e) % SLOTS * slot_stride + l * column_stride + e * inside;
                    F peaks[TILE];
                    down<P>(inside, from, norms.get() + TILE * inside, own, logit_stride, peaks);
                    const double between = now();
                    down_seconds += between - time;
                    for (int r = 0; r < rows; ++r) {
                        F sums, largest_sums;
                        select(own + r * logit_stride, count, peaks[r], k, guess, sums, largest_sums);
                        for (int lane = 0; lane < W; ++lane) {
                            const std::size_t at = (first + lane) * count + (row + r) * inside + begin + l;
                            peak[at] = peaks[r][lane] / BINARY, total[at] = sums[lane], top[at] = largest_sums[lane];
                        }
                    }
                    select_seconds += now() - between;
                }
            }
        }
    }
}

}  // namespace
}  // namespace patchtrace

// Arrays of (images, interior patches); images in whole groups. `facts`: seconds for S, for logits, for the sums,
// and passes of counting for each query patch.
extern "C" void lanes(int patch, int side, long k, const float* query, double s, double v, const float* block,
                      long images, double* peak, float* total, float* top, double* facts) {
    using namespace patchtrace;
    fill_seconds = down_seconds = select_seconds = 0, passes = calls = 0;
    const auto work = patch == 5 ? compare<5> : patch == 7 ? compare<7> : patch == 9 ? compare<9> : compare<13>;
    work(side, k, query, s, v, block, images, peak, total, top);
    facts[0] = fill_seconds, facts[1] = down_seconds, facts[2] = select_seconds, facts[3] = double(passes) / double(calls);
}
