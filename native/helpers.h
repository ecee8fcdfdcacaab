// Threads that help the calling one, as far as they get a processor in time.
#pragma once

#include <functional>

namespace patchtrace {

// Processors that this process may use.
int processors();

// Calls work(member, item) once for each item from 0 to items - 1 and returns when all are done. Items of one chunk
// follow each other on one thread. Member 0 is the calling thread; the others are fewer than `threads`, and no two
// threads have the same number at once. The work may not throw.
//
// Where a parallel region of OpenMP waits for all of its threads, even for those that come too late to find any work,
// this waits only for those that have begun an item. On a machine whose processors are taken by others, each such wait
// would take as long as the others' turns do.
void together(int threads, long items, long chunk, const std::function<void(int member, long item)>& work);

}  // namespace patchtrace
