// Put before each kernel in the tests. AddressSanitizer cannot see one part of the scratch memory run into the next: so
// they move apart, and kernel_test.cpp forbids what lies between them.
#pragma once

#include <cstddef>

namespace patchtrace {
void fence(std::size_t begin, std::size_t end);
}

#define PATCHTRACE_FENCE(begin, end) (end += 4096, patchtrace::fence(begin, end))
