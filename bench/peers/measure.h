// What is measured of an allocator: loops of pairs in one thread and in many, and recorded lists of operations.
#pragma once

#include "allocator.h"

#include <cstdint>
#include <string>
#include <vector>

// One cell of the table.
struct Figure {
  std::string workload;
  std::string unit;
  // Of repeated runs; the median counts.
  std::vector<double> samples{};
  // The first pass of a list, where everything is new; in the same unit.
  std::optional<double> cold{};
  std::optional<size_t> peak_live_bytes{};
  std::optional<size_t> reserved_bytes{};
  // Why there are no samples.
  std::string failure{};
};

// Streams that wait for none but those they are told to. They stay until the process ends: a handle comes back for
// another stream, and allocators that know streams by their handles would take one for the other.
class Streams {
 public:
  explicit Streams(size_t count);
  cudaStream_t operator[](size_t index) const { return streams_[index]; }

 private:
  std::vector<cudaStream_t> streams_;
};

struct Op {
  enum class Kind : uint32_t { Allocate, Free, Use };
  Kind kind;
  // Where the block is noted while it lives. Slots are used again, so that noting them costs little.
  uint32_t slot;
  uint32_t stream;
  size_t bytes;
};

struct Workload {
  std::string name;
  std::vector<Op> ops;
  uint32_t slots = 0;
  uint32_t streams = 0;
  size_t peak_live_bytes = 0;
};

// Throws a sentence with the line where the text is no workload.
Workload read_workload(const std::string &path);

// The list is carried out once cold, then again and again.
Figure replay(Allocator &allocator, const Workload &workload);

// Allocate and free, again and again, in one thread and one stream.
Figure pairs(Allocator &allocator, size_t bytes);

// Pairs of mixed sizes in threads that each have a stream, or share one.
enum class Sharing { OwnStreams, OneStream };
Figure threads(Allocator &allocator, size_t thread_count, Sharing sharing);

// Each thread frees what its neighbour allocated.
Figure handed_over(Allocator &allocator, size_t thread_count);
