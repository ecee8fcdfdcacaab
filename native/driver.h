// A block of training images against the versions of a query: which kernel, which threads, in which order.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel.h"

namespace patchtrace {

// Kernels that this processor can run, the fastest first.
std::vector<const Kernel*> kernels();

// Bytes of second-level cache that one core has.
std::size_t second_level_cache();

// Bytes that the tables of one image may take. Fewer mean that pixel products are computed more often.
std::size_t table_bytes();

struct Block {
    const float* pixels;  // (images, channels, rows, columns)
    std::size_t images;
};

// Mean of each channel over the block, and the mean over images and pixels of the squared distance to it, summed over
// channels. Always added up in the same order.
struct Colour {
    std::vector<double> mean;
    double squares;
};
Colour colour_of(const Geometry&, const Block&, bool moved, int threads);

// Fills log_normaliser (queries, patches), share (queries, patches, images) and, if not null, colour (queries, patches,
// images, channels). `mean` is the colour that is taken off the block. `interrupted` is asked about ten times
// a second, on the calling thread; once it is true the work stops and false comes back.
bool compare(const Kernel&, const Geometry&, const std::vector<Query>&, const Block&, const double* mean, int threads,
             double* log_normaliser, float* share, float* colour, const std::function<bool()>& interrupted);

}  // namespace patchtrace
