#include "driver.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#if defined(_WIN32)
#include <malloc.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "helpers.h"

namespace patchtrace {
namespace {

// Patches whose shares one thread works out at a time.
constexpr std::size_t PIECE = 64;
constexpr std::size_t ALIGNMENT = 64;
constexpr std::size_t HUGE_PAGE = 2 << 20;
// Values, or pairs of patches, that are worth a thread's waking: about a tenth of a millisecond.
constexpr std::size_t WORTH_A_THREAD = 1 << 18;

#if defined(_WIN32)
void* aligned(std::size_t alignment, std::size_t bytes) { return _aligned_malloc(bytes, alignment); }
void release(void* memory) { _aligned_free(memory); }
#else
void* aligned(std::size_t alignment, std::size_t bytes) { return std::aligned_alloc(alignment, bytes); }
void release(void* memory) { std::free(memory); }
#endif

struct Free {
    void operator()(void* memory) const { release(memory); }
};
using Memory = std::unique_ptr<void, Free>;

// Large tables ask for large pages: many small ones would each have to be looked up, and share the cache badly.
// Not touched yet, so that each thread can do that to its own.
Memory reserved(std::size_t bytes) {
    const std::size_t alignment = bytes >= HUGE_PAGE / 4 ? HUGE_PAGE : ALIGNMENT;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    void* memory = aligned(alignment, bytes);
    if (!memory) throw std::bad_alloc();
#if defined(__linux__)
    if (alignment == HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return Memory(memory);
}

int threads_for(std::size_t values, int threads) {
    const std::size_t worth = values / WORTH_A_THREAD + 1;
    return worth < static_cast<std::size_t>(threads) ? static_cast<int>(worth) : threads;
}

// Lets the calling thread ask for an interrupt now and then, and all threads see the answer.
class Watch {
  public:
    explicit Watch(const std::function<bool()>& interrupted)
        : interrupted_(interrupted), next_(std::chrono::steady_clock::now() + PAUSE) {}

    Control control(bool asks) { return {asks ? ask : look, this}; }
    bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

  private:
    static constexpr std::chrono::milliseconds PAUSE{100};

    static bool look(void* self) { return static_cast<Watch*>(self)->stopped(); }

    static bool ask(void* self) {
        auto& watch = *static_cast<Watch*>(self);
        const auto now = std::chrono::steady_clock::now();
        if (!watch.stopped() && now >= watch.next_) {
            watch.next_ = now + PAUSE;
            if (watch.interrupted_()) watch.stopped_.store(true, std::memory_order_relaxed);
        }
        return watch.stopped();
    }

    const std::function<bool()>& interrupted_;
    std::chrono::steady_clock::time_point next_;
    std::atomic<bool> stopped_{false};
};

}  // namespace

std::vector<const Kernel*> kernels() {
    std::vector<const Kernel*> usable;
#if defined(PATCHTRACE_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        usable.push_back(&avx512_kernel);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) usable.push_back(&avx2_kernel);
#endif
    usable.push_back(&baseline_kernel);
    return usable;
}

std::size_t second_level_cache() {
    long bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return bytes > 0 ? static_cast<std::size_t>(bytes) : 512 << 10;
}

// What is in use at any moment, the tables of one query column, is a tenth of it. So where the second-level cache is
// small, having some of the rest in the third is better than doing work twice; where it is large, all fits.
std::size_t table_bytes() {
    const std::size_t cache = second_level_cache(), enough = 2 << 20;
    const std::size_t more = 4 * cache < enough ? 4 * cache : enough;
    return cache / 8 * 7 > more ? cache / 8 * 7 : more;
}

Colour colour_of(const Geometry& geometry, const Block& block, bool moved, int threads) {
    const std::size_t channels = geometry.channels, area = geometry.pixels() / channels;
    std::vector<double> sums(block.images * channels), squares(block.images * channels);
    const long planes = static_cast<long>(sums.size());
    together(threads_for(planes * area, threads), planes, 1, [&](int, long plane) {
        const float* pixel = block.pixels + plane * area;
        double sum = 0, square = 0;
#pragma omp simd reduction(+ : sum, square)
        for (std::size_t i = 0; i < area; ++i) {
            sum += pixel[i];
            square += double(pixel[i]) * pixel[i];
        }
        sums[plane] = sum, squares[plane] = square;
    });
    Colour colour{std::vector<double>(channels), 0};
    const double count = double(area) * block.images;
    for (std::size_t c = 0; c < channels; ++c) {
        double square = 0;
        for (std::size_t n = 0; n < block.images; ++n) {
            colour.mean[c] += sums[n * channels + c];
            square += squares[n * channels + c];
        }
        colour.mean[c] = moved ? colour.mean[c] / count : 0;
        colour.squares += square / count - colour.mean[c] * colour.mean[c];
    }
    return colour;
}

bool compare(const Kernel& kernel, const Geometry& geometry, const std::vector<Query>& queries, const Block& block,
             const double* mean, int threads, double* log_normaliser, float* share, float* colour,
             const std::function<bool()>& interrupted) {
    const std::size_t patches = geometry.patches(), values = queries.size() * block.images * patches;
    const long count = static_cast<long>(queries.size()), items = count * static_cast<long>(block.images);
    const long pieces = static_cast<long>((patches + PIECE - 1) / PIECE);
    if (threads > items) threads = static_cast<int>(items);
    std::vector<Memory> prepared, scratch[2];  // scratch memory for float32 and for float64, for each thread
    const std::size_t scratch_bytes[2] = {kernel.scratch_bytes(geometry, false), kernel.scratch_bytes(geometry, true)};
    for (const Query& query : queries) {
        const std::size_t bytes = kernel.query_bytes(geometry, query.wide);
        prepared.push_back(reserved(bytes));
        std::memset(prepared.back().get(), 0, bytes);
        while (static_cast<int>(scratch[query.wide].size()) < threads)
            scratch[query.wide].push_back(reserved(scratch_bytes[query.wide]));
    }
    std::vector<float> lines(threads * block.images * 32);
    std::unique_ptr<double[]> peak(new double[values]);
    std::unique_ptr<float[]> total(new float[values]), top(new float[values]);
    std::unique_ptr<float[]> painted(colour ? new float[values * geometry.channels] : nullptr);
    const auto answer = [&](std::size_t query, std::size_t image) {  // (queries, images, patches)
        const std::size_t at = (query * block.images + image) * patches;
        return Answer{peak.get() + at, total.get() + at, top.get() + at,
                      colour ? painted.get() + at * geometry.channels : nullptr};
    };
    Watch watch(interrupted);
    // Items are images, or, where there are fewer of them than threads could use, queries of an image. A thread that goes
    // on with the same image finds it prepared.
    const long chunk = static_cast<long>(block.images) >= 4L * threads ? count : 1;
    // Of each thread: which of its scratch memory is laid out, and the image that is prepared in each precision.
    struct State {
        bool touched[2] = {false, false};
        long last[2] = {-1, -1};
    };
    std::vector<State> states(threads);
    const auto scratch_of = [&](int member, bool wide) {
        void* const memory = scratch[wide][member].get();
        if (!states[member].touched[wide]) std::memset(memory, 0, scratch_bytes[wide]);
        states[member].touched[wide] = true;
        return memory;
    };
    together(threads_for(count * geometry.pixels(), threads), count, 1, [&](int member, long query) {
        const bool wide = queries[query].wide;
        kernel.prepare(geometry, queries[query], scratch_of(member, wide), prepared[query].get());
    });
    together(threads_for(items * patches * patches, threads), items, chunk, [&](int member, long item) {
        const Control control = watch.control(member == 0);
        if (control.stop(control.context)) return;
        const long image = item / count, query = item % count;
        const bool wide = queries[query].wide;
        long& last = states[member].last[wide];
        kernel.compare(geometry, queries[query], prepared[query].get(),
                       {block.pixels + image * geometry.pixels(), mean, image == last}, scratch_of(member, wide),
                       answer(query, image), control);
        last = image;
    });
    if (watch.stopped()) return false;
    together(threads_for(values, threads), count * pieces, 1, [&](int member, long item) {
        const long query = item / pieces, piece = item % pieces;
        const std::size_t begin = piece * PIECE, left = patches - begin;
        float* const shares = share + query * patches * block.images;
        kernel.share(geometry, block.images, begin, left < PIECE ? left : PIECE, answer(query, 0),
                     log_normaliser + query * patches, shares,
                     colour ? colour + (shares - share) * geometry.channels : nullptr,
                     lines.data() + member * block.images * 32);
    });
    return true;
}

}  // namespace patchtrace
