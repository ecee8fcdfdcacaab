#include "helpers.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace patchtrace {
namespace {

using Work = std::function<void(int, long)>;

// What one call wants done. Helpers may hold it longer than the call lasts, but then touch nothing else of it.
struct Call {
    Call(const Work& w, long n, long c) : work(w), items(n), chunk(c) {}

    void run(int member) {
        for (long begin; (begin = next.fetch_add(chunk, std::memory_order_relaxed)) < items;)
            for (long item = begin; item < std::min(begin + chunk, items); ++item) work(member, item);
    }

    const Work& work;
    const long items, chunk;
    std::atomic<long> next{0};
    // guarded by the mutex of the helpers
    int joined = 0, at_work = 0;
    std::condition_variable finished;
};

// Threads that wait for calls, as many as were ever wanted at once.
class Helpers {
  public:
    void run(int wanted, const std::shared_ptr<Call>& call) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            calls_.insert(calls_.end(), wanted, call);
            try {
                for (; idle_ < calls_.size(); ++idle_) std::thread([this] { serve(); }).detach();
            } catch (const std::system_error&) {  // no more threads are to be had; it works with fewer, or alone
            }
        }
        wanted == 1 ? wake_.notify_one() : wake_.notify_all();
        call->run(0);
        std::unique_lock<std::mutex> lock(mutex_);
        calls_.erase(std::remove(calls_.begin(), calls_.end(), call), calls_.end());  // who comes now finds nothing
        call->finished.wait(lock, [&] { return call->at_work == 0; });
    }

  private:
    void serve() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return !calls_.empty(); });
            const std::shared_ptr<Call> call = std::move(calls_.front());
            calls_.pop_front();
            --idle_;
            const int member = ++call->joined;
            ++call->at_work;
            lock.unlock();
            call->run(member);
            lock.lock();
            if (--call->at_work == 0) call->finished.notify_one();
            ++idle_;
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::shared_ptr<Call>> calls_;  // each as often as it wants helpers
    std::size_t idle_ = 0;
};

// Never destroyed: at the end of the process threads may still wait in it.
std::atomic<Helpers*> helpers{nullptr};

Helpers& the_helpers() {
    static std::once_flag once;
    std::call_once(once, [] {
        helpers = new Helpers;
#if defined(__unix__) || defined(__APPLE__)
        pthread_atfork(nullptr, nullptr, [] { helpers = new Helpers; });  // threads do not live on in a forked process
#endif
    });
    return *helpers;
}

}  // namespace

int processors() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void together(int threads, long items, long chunk, const Work& work) {
    const long chunks = (items + chunk - 1) / chunk;
    const int wanted = static_cast<int>(std::min<long>(threads, chunks)) - 1;
    const auto call = std::make_shared<Call>(work, items, chunk);
    if (wanted > 0)
        the_helpers().run(wanted, call);
    else
        call->run(0);
}

}  // namespace patchtrace
