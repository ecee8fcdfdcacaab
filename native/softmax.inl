// From the logits of one query patch to three numbers: largest logit, sum of exp, sum of the k largest.

struct Sums {
    float total, top;
};

// Logits so far below the largest one that all of them together add less than e^-17 = 4e-8 of it are left out. That is
// below the rounding of a float32, depends on nothing but this image, and is most of them at low noise.
inline float cut_below(int count) { return float(-BINARY * (17 + __builtin_log(double(count)))); }

constexpr int UNROLLED = 4;  // vectors counted in one go

// A threshold that exactly k of the values lie above, or, where values repeat, one that fewer lie above, followed by
// values that agree to 1e-7. All values lie in (lowest, 0], and more than k are given, followed by UNROLLED
// vectors of FAR. Counting is cheap: the search guesses from the counts at both ends, and halves the range where that is slow.
STAGE float threshold_of(const float* values, int count, long k, float lowest, int& above) {
    float low = lowest, high = 0;
    int at_low = count, at_high = 0;
    for (int step = 1; high - low > 1e-7f; ++step) {
        float part = step % 4 ? (float(at_low - k) - 0.5f) / float(at_low - at_high) : 0.5f;
        part = part < 0.02f ? 0.02f : part > 0.98f ? 0.98f : part;
        const float guess = low + (high - low) * part;
        if (!(guess > low && guess < high)) break;
        I counted[UNROLLED]{};
        for (int i = 0; i < count; i += UNROLLED * W)
            for (int u = 0; u < UNROLLED; ++u) counted[u] -= load(values + i + u * W) > guess;
        const int found = sum((counted[0] + counted[1]) + (counted[2] + counted[3]));
        if (found == k) {
            above = found;
            return guess;
        }
        if (found > k) low = guess, at_low = found;
        else high = guess, at_high = found;
    }
    above = at_high;
    return high;
}

// The sum of weight times pixel over `lanes` logits, for each channel: pixels [channel][lane].
template <class T, int CHANNELS>
STAGE void colours_of(const T* logits, int lanes, T peak, float cut, const float* pixels, std::size_t stride, float* out) {
    double totals[CHANNELS]{};
    for (int begin = 0; begin < lanes; begin += 64 * W) {  // a float32 sum of few terms at a time
        F sums[CHANNELS]{};
        for (int i = begin; i < at_most(lanes, begin + 64 * W); i += W) {
            if (!any_above(logits + i, peak, cut)) continue;
            const F weight = power_of_any(below(logits + i, peak));
            for (int c = 0; c < CHANNELS; ++c) sums[c] += weight * load(pixels + c * stride + i);
        }
        for (int c = 0; c < CHANNELS; ++c) totals[c] += sum(sums[c]);
    }
    for (int c = 0; c < CHANNELS; ++c) out[c] = float(totals[c]);
}

template <class T>
inline void colours_of(const T* logits, int lanes, T peak, float cut, int channels, const float* pixels,
                       std::size_t stride, float* out) {
    int c = 0;
    for (; c + 3 <= channels; c += 3) colours_of<T, 3>(logits, lanes, peak, cut, pixels + c * stride, stride, out + c);
    for (; c < channels; ++c) colours_of<T, 1>(logits, lanes, peak, cut, pixels + c * stride, stride, out + c);
}

// Sums over `lanes` logits: whole vectors, with NOTHING where there is no partner.
// `kept` has room for all of them and UNROLLED vectors more.
template <class T> STAGE Sums sums_of(const T* logits, int lanes, T peak, float cut, long k, float* kept) {
    if (lanes <= at_most(k, 8 * W)) {  // so few that looking closer costs more
        F total{};
        for (int i = 0; i < lanes; i += W) total += power_of_any(below(logits + i, peak));
        const float sums = sum(total);
        return {sums, sums};
    }
    int found = 0;
    const auto look = [&](int i) {
        const F value = below(logits + i, peak);
        const unsigned near = lanes_above(value, all(cut));
        keep(value, near, kept + found);
        found += __builtin_popcount(near);
    };
    int i = 0;
    for (; i + UNROLLED * W <= lanes; i += UNROLLED * W)
        for (int u = 0; u < UNROLLED; ++u) look(i + u * W);
    for (; i < lanes; i += W) look(i);
    for (int u = 0; u < UNROLLED; ++u) store(kept + found + u * W, all(FAR));
    int above = 0;
    const float threshold = found > k ? threshold_of(kept, found, k, cut, above) : NOTHING;
    double total = 0, top = 0;
    for (int begin = 0; begin < found; begin += 64 * W) {  // a float32 sum of few terms at a time
        F part{}, part_top{};
        for (int i = begin; i < at_most(found, begin + 64 * W); i += W) {
            const F value = load(kept + i), weight = power(value);
            part += weight;
            part_top += value > threshold ? weight : F{};
        }
        total += sum(part), top += sum(part_top);
    }
    // where values repeat, those at the threshold fill up the k
    if (found > k && above < k) top += double(k - above) * power(all(threshold))[0];
    return {float(total), float(top)};
}
