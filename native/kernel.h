// What the driver and the kernels of the different instruction sets say to each other. Plain data only: the kernels are
// compiled with instructions that this machine may not have, so nothing inline from a library may be shared with them.
#pragma once

#include <cstddef>

namespace patchtrace {

// The patch positions along one side of a picture; see engines/contract.py.
struct Axis {
    int side;       // pixels of the picture
    int pad;        // position i begins at pixel i - pad
    int positions;
    int first;      // first interior position
    int inside;     // number of interior positions

    int edges() const { return positions - inside; }
    bool is_edge(int position) const { return position < first || position >= first + inside; }
};

struct Geometry {
    int channels;
    Axis rows, columns;
    int taps;        // pooled pixels along a side of a patch
    int pool;        // distance between them, and side of the pooling window
    int middle;      // from the position of a patch to its middle pixel
    double divisor;  // what the sum over a pooling window is divided by
    long k;
    std::size_t cache;  // bytes that the tables of one image may take
    bool patchwork;     // queries have their noise apart

    std::size_t patches() const { return static_cast<std::size_t>(rows.positions) * columns.positions; }
    std::size_t pixels() const { return static_cast<std::size_t>(channels) * rows.side * columns.side; }
};

// Which noise each query patch gets: that of the patch in another row and column, with a sign. See engines/contract.py.
struct Patchwork {
    const int* rows;      // for each row position that of its noise
    const int* columns;
    const float* signs;   // (row positions, column positions)
    const bool* turned;   // for each row position whether its corner patches get the turned noise
};

// One noisy version of the query.
struct Query {
    const float* pixels;  // (channels, rows, columns)
    const double* colour; // is taken off the pixels
    double scale;         // s / v: what they are then multiplied with
    double norm_scale;    // -s^2 / 2v: what the squares of a training patch are multiplied with
    bool wide;            // in float64
    const float* noise = nullptr;   // what is put on the pixels patch by patch, if the geometry says so
    const float* turned = nullptr;
    Patchwork patchwork = {};
};

struct Image {
    const float* pixels;
    const double* colour;
    bool prepared;        // the last call with this scratch memory had the same image and the same precision, and, in
                          // a patchwork, the same query but for its noise
};

// For each query patch: the largest logit, the sums of exp(logit - largest) over all and over the k largest, and, if not
// null, the sum over all of exp(logit - largest) times the middle pixel (patches, channels).
struct Answer {
    double* peak;
    float* total;
    float* top;
    float* colour;
};

// Asked now and then; true means stop.
struct Control {
    bool (*stop)(void* context);
    void* context;
};

struct Kernel {
    const char* name;
    // Sizes of the memory that the other functions need, aligned to 64 bytes.
    std::size_t (*scratch_bytes)(const Geometry&, bool wide);
    std::size_t (*query_bytes)(const Geometry&, bool wide);
    // Prepares a query once for all images.
    void (*prepare)(const Geometry&, const Query&, void* scratch, void* prepared);
    // One query against one image. The scratch memory is of one thread and one precision; all 0 before its first use.
    void (*compare)(const Geometry&, const Query&, const void* prepared, const Image&, void* scratch, const Answer&,
                    const Control&);
    // Normaliser, shares (patches, images) and, if not null, colours (patches, images, channels) of `count` patches from
    // `begin` on, out of answers (images, patches). The scratch memory holds 32 floats for each image.
    void (*share)(const Geometry&, std::size_t images, std::size_t begin, std::size_t count, const Answer&,
                  double* log_normaliser, float* share, float* colour, float* scratch);
};

extern const Kernel baseline_kernel;
extern const Kernel avx2_kernel;
extern const Kernel avx512_kernel;

}  // namespace patchtrace
