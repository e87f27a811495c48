// A private pool: memory that only a capture, or code within torch.cuda.use_mem_pool, allocates from.
//
// It takes segments from Freehold, or from a user's allocator, and divides them by itself: a best fit per stream. That
// is what lets cudagraph trees return a pool to an earlier state, with the same addresses. Memory of a graph goes back
// to Freehold only when the pool is released. It knows nothing of locks: its device has one.
#pragma once

#include "allocator_history.h"

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace freehold_torch {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

// A part of a segment.
struct Part {
  size_t size;
  cudaStream_t stream;
  char *segment;
  bool is_free;
};

struct PoolSegment {
  size_t size;
  cudaStream_t stream;
  Context context;
};

// What lies where in a pool: the allocated parts, for torch._C._cuda_getCheckpointState.
struct PoolState : c10::cuda::CUDACachingAllocator::AllocatorState {
  struct Live {
    char *ptr;
    size_t size;
    size_t requested;
    cudaStream_t stream;
  };
  MempoolId_t id;
  std::vector<Live> live;
};

class PrivatePool {
 public:
  PrivatePool(DeviceIndex device, MempoolId_t id) : id(id), device_(device) {}

  // Returns memory that is free in the order of a stream, or null.
  char *alloc(size_t bytes, cudaStream_t stream);
  // Allocates exactly this range, all of which is free.
  void alloc_at(char *ptr, size_t bytes);
  void free(char *ptr);
  size_t size_at(char *ptr) const { return parts_.at(ptr).size; }
  char *segment_of(char *ptr) const { return parts_.at(ptr).segment; }

  // The size of the segment that an allocation needs.
  size_t segment_bytes(size_t bytes) const;
  void add_segment(char *base, size_t size, cudaStream_t stream, Context context);
  // Removes the segments that are entirely free, and returns them.
  std::vector<std::pair<char *, PoolSegment>> take_free_segments();

  const std::map<char *, PoolSegment> &segments() const { return segments_; }
  const std::map<char *, Part> &parts() const { return parts_; }
  // The free parts of segments that are in use elsewhere, and their bytes.
  std::pair<size_t, size_t> inactive_split() const;

  const MempoolId_t id;
  int use_count = 0;
  // The user's, if this pool has one.
  std::shared_ptr<CUDAAllocator> allocator;
  bool is_used_on_oom = false;
  bool is_unsplit = false;

 private:
  using Parts = std::map<char *, Part>;
  void list(Parts::iterator part) { free_[part->second.stream].emplace(part->second.size, part->first); }
  void unlist(Parts::iterator part) { free_[part->second.stream].erase({part->second.size, part->first}); }
  // Allocates the beginning of a free part; the rest stays free.
  void cut(Parts::iterator part, size_t bytes);
  // Joins a free part with the one that follows it, if that is free and of the same segment.
  void join_next(Parts::iterator part);

  DeviceIndex device_;
  std::map<char *, PoolSegment> segments_;
  Parts parts_;
  std::map<cudaStream_t, std::set<std::pair<size_t, char *>>> free_;
};

// PyTorch rounds sizes to this.
constexpr size_t kGranuleBytes = 512;

inline size_t rounded(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

} // namespace freehold_torch
