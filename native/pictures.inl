// Pictures and patch norms as the tables need them.

// A picture with its colour taken off, padded with 0, pooled at every pixel, scaled and rounded once. Stored twice:
// [row][channel][column] and [column][channel][row], so that lanes can run either way.
template <class T> struct Picture {
    const T* by_row;
    const T* by_column;
    int row_stride, column_stride;  // from channel to channel
    int channels;

    const T* row(int r) const { return by_row + std::size_t(r) * channels * row_stride; }
    const T* column(int c) const { return by_column + std::size_t(c) * channels * column_stride; }
};

#if !defined(PATCHTRACE_FENCE)  // see tests/fence.h
#define PATCHTRACE_FENCE(begin, end)
#endif

// Lays parts one after the other in one piece of memory, each at a multiple of 64 bytes.
struct Places {
    std::size_t next = 0;
    std::size_t take(std::size_t count, std::size_t size) {
        const std::size_t here = next;
        next += (count * size + 127) / 64 * 64;
        PATCHTRACE_FENCE(here + count * size, next);
        return here;
    }
};

template <class T> struct PictureLayout {
    int height, width;  // of the pooled picture with its padding
    int row_stride, column_stride;
    std::size_t by_column, end;

    explicit PictureLayout(const Geometry& g)
        : height(g.rows.side + 2 * g.rows.pad - g.pool + 1),
          width(g.columns.side + 2 * g.columns.pad - g.pool + 1),
          row_stride(whole(width) + WIDTH<T>),
          column_stride(whole(height) + WIDTH<T>) {
        Places places;
        places.take(std::size_t(height) * g.channels * row_stride, sizeof(T));
        by_column = places.take(std::size_t(width) * g.channels * column_stride, sizeof(T));
        end = places.next;
    }

    static int whole(int count) { return (count + WIDTH<T> - 1) / WIDTH<T> * WIDTH<T>; }

    Picture<T> at(const Geometry& g, const void* memory) const {
        const char* bytes = static_cast<const char*>(memory);
        return {reinterpret_cast<const T*>(bytes), reinterpret_cast<const T*>(bytes + by_column), row_stride,
                column_stride, g.channels};
    }
};

// Room, in float64, for one padded channel, one pooled row, and the squares of the picture.
inline std::size_t plane_size(const Geometry& g) {
    const std::size_t height = g.rows.side + 2 * g.rows.pad, width = g.columns.side + 2 * g.columns.pad;
    return height * width + width;
}

// `colour`, if not null, is taken off. `squares`, if not null, gets for each pixel the sum of the squares of its
// channels: [row][column].
template <class T>
STAGE void prepare_picture(const Geometry& g, const float* pixels, const double* colour, double scale, double* plane,
                           void* memory, double* squares) {
    const PictureLayout<T> at(g);
    T* by_row = static_cast<T*>(memory);
    T* by_column = reinterpret_cast<T*>(static_cast<char*>(memory) + at.by_column);
    const int H = g.rows.side, S = g.columns.side, top = g.rows.pad, left = g.columns.pad, pool = g.pool;
    const int padded = S + 2 * left, height = at.height, width = at.width;
    double* pooled = plane + std::size_t(H + 2 * top) * padded;
    for (int i = 0; i < (H + 2 * top) * padded; ++i) plane[i] = 0;
    if (squares)
        for (int i = 0; i < height * width; ++i) squares[i] = 0;
    for (int c = 0; c < g.channels; ++c) {
        for (int r = 0; r < H; ++r)
            for (int j = 0; j < S; ++j)
                plane[(r + top) * padded + left + j] = pixels[(std::size_t(c) * H + r) * S + j] - (colour ? colour[c] : 0);
        for (int r = 0; r < height; ++r) {
            const double* from = plane + std::size_t(r) * padded;
            if (pool > 1) {
                for (int j = 0; j < width; ++j) pooled[j] = 0;
                for (int y = 0; y < pool; ++y)
                    for (int x = 0; x < pool; ++x)
                        for (int j = 0; j < width; ++j) pooled[j] += from[y * padded + x + j];
                for (int j = 0; j < width; ++j) pooled[j] /= g.divisor;
                from = pooled;
            }
            T* row = by_row + (std::size_t(r) * g.channels + c) * at.row_stride;
            for (int j = 0; j < width; ++j) row[j] = T(from[j] * scale);
            if (squares)
                for (int j = 0; j < width; ++j) squares[std::size_t(r) * width + j] += from[j] * from[j];
        }
        if (g.columns.edges())
            for (int j = 0; j < width; ++j) {
                T* column = by_column + (std::size_t(j) * g.channels + c) * at.column_stride;
                for (int r = 0; r < height; ++r)
                    column[r] = by_row[(std::size_t(r) * g.channels + c) * at.row_stride + j];
            }
    }
}

// out[i] = sum over e of values[i + e step], in windows of doubling length; the values are overwritten.
inline void window_sums(int taps, long step, long count, double* values, double* out) {
    long start = 0, left = count + (taps - 1) * step;
    for (long i = 0; i < count; ++i) out[i] = 0;
    for (long length = step; taps; length *= 2) {
        if (taps & 1) {
            for (long i = 0; i < count; ++i) out[i] += values[start + i];
            start += length;
        }
        taps >>= 1;
        if (!taps) break;
        left -= length;
        const double* const ahead = values + length;
#pragma GCC ivdep
        for (long i = 0; i < left; ++i) values[i] += ahead[i];
    }
}

// Sums over each patch of values [row][column], in place: [row position][column position], `width` apart. Rows follow
// each other without a gap: what runs over the end of one is of no use, and nobody looks at it.
STAGE void patch_sums(const Geometry& g, int width, double* values, double* spare) {
    const long count = long(g.rows.positions) * width;
    window_sums(g.taps, long(g.pool) * width, count, values, spare);
    window_sums(g.taps, g.pool, count - long(g.taps - 1) * g.pool, spare, values);
}
