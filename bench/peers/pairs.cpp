// Loops of allocate and free: in one thread, in many, and from one thread to the next.
#include "measure.h"

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <mutex>
#include <random>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t REPEATS = 9;
// How long one loop of pairs is at least.
constexpr double PAIRS_NS_MIN = 5e6;
constexpr std::chrono::milliseconds THREADS_WARM{100};
constexpr std::chrono::milliseconds THREADS_RUN{200};
constexpr size_t MIXED_BYTES_MAX = 64 << 10;
// Blocks that a thread allocates before it frees them or hands them on, in the order of their allocation.
constexpr size_t HELD = 32;
// Handfuls that are on their way from one thread to the next at most.
constexpr size_t ON_THE_WAY = 8;

std::string size_text(size_t bytes) {
  if (bytes < 1 << 10) return std::to_string(bytes) + " B";
  if (bytes < 1 << 20) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes >> 20) + " MiB";
}

double pair_ns(Allocator &allocator, size_t bytes, cudaStream_t stream, size_t count) {
  const auto begin = Clock::now();
  for (size_t pair = 0; pair < count; pair += 1) allocator.release(allocator.allocate(bytes, stream), bytes, stream);
  const std::chrono::duration<double, std::nano> taken = Clock::now() - begin;
  return taken.count() / static_cast<double>(count);
}

// A thread's sizes, drawn before the clock runs; the same in every run.
class Sizes {
 public:
  explicit Sizes(size_t thread) {
    std::mt19937 random(static_cast<uint32_t>(thread));
    for (size_t &bytes : bytes_) bytes = 1 + random() % MIXED_BYTES_MAX;
  }
  size_t next() { return bytes_[at_++ % bytes_.size()]; }

 private:
  std::array<size_t, 1024> bytes_;
  size_t at_ = 0;
};

// What one thread does until the flag is up; returns how many pairs it made.
using Body = std::function<uint64_t(size_t thread, const std::atomic<bool> &is_over)>;

// Pairs a second of all threads together, in millions.
double run(size_t thread_count, const Body &body, std::chrono::milliseconds length) {
  std::latch ready(static_cast<ptrdiff_t>(thread_count));
  std::atomic<bool> is_begun{false}, is_over{false};
  std::atomic<uint64_t> pairs{0};
  std::mutex failing;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < thread_count; thread += 1) {
    threads.emplace_back([&, thread] {
      const cudaError_t status = cudaSetDevice(DEVICE);
      ready.count_down();
      try {
        must(status, "cudaSetDevice");
        while (!is_begun) std::this_thread::yield();
        pairs += body(thread, is_over);
      } catch (...) {
        const std::lock_guard lock(failing);
        failure = std::current_exception();
      }
    });
  }
  ready.wait();
  const auto begin = Clock::now();
  is_begun = true;
  std::this_thread::sleep_for(length);
  is_over = true;
  const std::chrono::duration<double> taken = Clock::now() - begin;
  for (std::thread &thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return static_cast<double>(pairs) / taken.count() / 1e6;
}

Figure repeat(std::string name, size_t thread_count, const Body &body) {
  Figure figure{.workload = std::move(name), .unit = "M pairs/s"};
  try {
    run(thread_count, body, THREADS_WARM);
    while (figure.samples.size() < REPEATS) figure.samples.push_back(run(thread_count, body, THREADS_RUN));
  } catch (const std::exception &error) {
    figure.failure = reason(error);
    figure.samples.clear();
  }
  return figure;
}

struct Handful {
  std::array<void *, HELD> starts;
  std::array<size_t, HELD> bytes;
};

void allocate(Allocator &allocator, Handful &handful, Sizes &sizes, cudaStream_t stream) {
  for (size_t at = 0; at < HELD; at += 1) {
    handful.bytes[at] = sizes.next();
    handful.starts[at] = allocator.allocate(handful.bytes[at], stream);
  }
}

void release(Allocator &allocator, const Handful &handful, cudaStream_t stream) {
  for (size_t at = 0; at < HELD; at += 1) allocator.release(handful.starts[at], handful.bytes[at], stream);
}

// Handfuls from one thread to one other; neither waits for the other.
class Ring {
 public:
  // Where the next handful goes, or null while the ring is full.
  Handful *room() { return filled_ - emptied_ == ON_THE_WAY ? nullptr : &handfuls_[filled_ % ON_THE_WAY]; }
  void fill() { filled_ += 1; }
  // The oldest handful, or null while the ring is empty.
  const Handful *oldest() { return filled_ == emptied_ ? nullptr : &handfuls_[emptied_ % ON_THE_WAY]; }
  void empty() { emptied_ += 1; }

 private:
  alignas(64) std::array<Handful, ON_THE_WAY> handfuls_;
  // Each is written by one of the two threads alone.
  alignas(64) std::atomic<size_t> filled_{0};
  alignas(64) std::atomic<size_t> emptied_{0};
};

}  // namespace

Streams::Streams(size_t count) : streams_(count) {
  for (cudaStream_t &stream : streams_) {
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
}

Figure pairs(Allocator &allocator, size_t bytes) {
  Figure figure{.workload = "pair " + size_text(bytes), .unit = "ns/pair"};
  const Streams streams(1);
  try {
    size_t count = 16;
    while (pair_ns(allocator, bytes, streams[0], count) * static_cast<double>(count) < PAIRS_NS_MIN) count *= 2;
    while (figure.samples.size() < REPEATS) figure.samples.push_back(pair_ns(allocator, bytes, streams[0], count));
  } catch (const std::exception &error) {
    figure.failure = reason(error);
  }
  allocator.trim();
  return figure;
}

Figure threads(Allocator &allocator, size_t thread_count, Sharing sharing) {
  const bool is_shared = sharing == Sharing::OneStream;
  const Streams streams(is_shared ? 1 : thread_count);
  const std::string name = "threads " + std::to_string(thread_count) + (is_shared ? " shared" : " own");
  Figure figure = repeat(name, thread_count, [&](size_t thread, const std::atomic<bool> &is_over) {
    Sizes sizes(thread);
    const cudaStream_t stream = streams[is_shared ? 0 : thread];
    Handful handful;
    uint64_t pairs = 0;
    for (; !is_over.load(std::memory_order_relaxed); pairs += HELD) {
      allocate(allocator, handful, sizes, stream);
      release(allocator, handful, stream);
    }
    return pairs;
  });
  allocator.trim();
  return figure;
}

Figure handed_over(Allocator &allocator, size_t thread_count) {
  const Streams streams(thread_count);
  // Ring `n` leads from thread `n` to the next one.
  std::vector<Ring> rings(thread_count);
  const std::string name = "threads " + std::to_string(thread_count) + " handed over";
  Figure figure = repeat(name, thread_count, [&](size_t thread, const std::atomic<bool> &is_over) {
    Sizes sizes(thread);
    const size_t before = (thread + thread_count - 1) % thread_count;
    uint64_t pairs = 0;
    while (!is_over.load(std::memory_order_relaxed)) {
      Handful *room = rings[thread].room();
      if (room != nullptr) {
        allocate(allocator, *room, sizes, streams[thread]);
        rings[thread].fill();
      }
      const Handful *oldest = rings[before].oldest();
      if (oldest != nullptr) {
        release(allocator, *oldest, streams[before]);
        rings[before].empty();
        pairs += HELD;
      }
      if (room == nullptr && oldest == nullptr) std::this_thread::yield();
    }
    return pairs;
  });
  for (size_t thread = 0; thread < thread_count; thread += 1) {
    for (; rings[thread].oldest() != nullptr; rings[thread].empty()) {
      release(allocator, *rings[thread].oldest(), streams[thread]);
    }
  }
  allocator.trim();
  return figure;
}
