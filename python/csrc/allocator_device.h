// The allocator of one device: its live blocks, their statistics and history, and its private pools.
#pragma once

#include "allocator_library.h"
#include "allocator_pool.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

namespace freehold_torch {

using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::cuda::CUDACachingAllocator::CheckpointDelta;
using c10::cuda::CUDACachingAllocator::OutOfMemoryObserver;
using Filter = std::function<bool(cudaStream_t)>;

// While a capture may run, lets this thread make calls that the capture forbids and that do not belong to it.
class MaybeRelaxed {
 public:
  explicit MaybeRelaxed(const std::atomic<size_t> &captures) {
    if (captures.load(std::memory_order_acquire) > 0) {
      guard_.emplace(cudaStreamCaptureModeRelaxed);
    }
  }

 private:
  std::optional<c10::cuda::CUDAStreamCaptureModeGuard> guard_;
};

// An allocated block, or one that was freed and that work may still use.
struct Block {
  size_t size;
  size_t requested;
  cudaStream_t stream;
  // Null for Freehold's own pool.
  PrivatePool *pool;
  Context context;
  // Streams that use it, and that Freehold was not told of: while they are captured, or because they are another device's.
  std::vector<c10::cuda::CUDAStream> uses;
  // Not zero if another process was told of it.
  uint64_t share_token = 0;
};

// A freed block that becomes free when its events are complete.
struct PendingFree {
  char *ptr;
  Block block;
  std::vector<cudaEvent_t> events;
};

class Device {
 public:
  explicit Device(DeviceIndex index) : index_(index) {}

  void *alloc(size_t bytes, cudaStream_t stream);
  // Returns false if there is no such block on this device.
  bool free(void *ptr);
  bool record_stream(void *ptr, c10::cuda::CUDAStream stream);
  void empty_cache(const MempoolId_t &id);

  void set_fraction(double fraction);
  double fraction() const { return fraction_; }
  size_t largest_cached_bytes();
  void *base_of(void *ptr, size_t *size);

  DeviceStats stats();
  void reset_accumulated();
  void reset_peaks();

  void begin_pool(const MempoolId_t &id, Filter filter);
  void end_pool(const MempoolId_t &id);
  void release_pool(const MempoolId_t &id);
  void hold_pool(const MempoolId_t &id, std::shared_ptr<CUDAAllocator> allocator);
  int pool_users(const MempoolId_t &id);
  void set_pool(const MempoolId_t &id, const std::function<void(PrivatePool &)> &change);
  bool has_live(const MempoolId_t &id, const std::unordered_set<void *> &expected);
  std::shared_ptr<PoolState> state_of(const MempoolId_t &id);
  // `to_data` makes the owner of a block that the state brings back.
  CheckpointDelta restore(const PoolState &state, const std::function<at::DataPtr(void *)> &to_data);

  std::vector<SegmentInfo> snapshot(const MempoolId_t &id);
  std::vector<TraceEntry> trace();
  void set_history(const HistorySettings &settings);
  void add_tracker(AllocatorTraceTracker tracker);
  void add_observer(OutOfMemoryObserver observer);
  void set_user_metadata(const std::string &metadata);
  std::string user_metadata();
  bool is_history_enabled() const { return history_.is_enabled(); }

  void add_peer(int other);
  // Returns the token under which another process may ask for the block, where the block's memory begins, and its offset there.
  bool share(void *ptr, uint64_t *token, void **base, ptrdiff_t *offset);
  // Calls `act` if the block with this token is still allocated; it is not freed meanwhile.
  bool while_shared(void *base, uint64_t token, const std::function<void()> &act);

 private:
  using Lock = std::unique_lock<std::recursive_mutex>;

  void prepare();
  bool free(void *ptr, const Context &context);
  PrivatePool &pool(const MempoolId_t &id);
  PrivatePool *pool_for(cudaStream_t stream);
  void *alloc_in(PrivatePool &pool, size_t bytes, cudaStream_t stream, const Context &context);
  void *alloc_with_room(PrivatePool *pool, size_t bytes, cudaStream_t stream, const Context &context);
  void *alloc_on_oom(size_t bytes, cudaStream_t stream, PrivatePool **from);
  char *new_segment(PrivatePool &pool, size_t size);
  void give_back(PrivatePool &pool);
  void give_back_all();
  void trim();
  [[noreturn]] void out_of_memory(
      size_t bytes, const std::string &reason, cudaStream_t stream, const MempoolId_t &pool, const Context &context);

  void add(void *ptr, Block block);
  // Counts a free, and notes it.
  void note_freed(void *ptr, const Block &block);
  bool is_in_capture(const Block &block);
  void release(char *ptr, Block block, const Context &context);
  // `context` is the stack of the free, or of the allocation if there is none.
  void finish(char *ptr, const Block &block, const Context &context);
  void finish_complete(bool waits);
  void finish_deferred();
  bool is_capturing(cudaStream_t stream);
  // `context` is the stack of the call that may have changed it.
  void update_reserved(const Context &context = nullptr);
  void update_segments(const Context &context);
  void set_user_bytes(size_t bytes);
  size_t reserved_bytes() const { return library.reserved_bytes(index_) + user_bytes_; }
  std::vector<LibrarySegment> library_segments() const;
  std::vector<SegmentInfo> bare_segments(const MempoolId_t &id) const;
  std::vector<SegmentInfo> segments_with_blocks(const MempoolId_t &id) const;

  const DeviceIndex index_;
  std::once_flag is_prepared_;
  mutable std::recursive_mutex mutex_;
  ska::flat_hash_map<void *, Block> blocks_;
  DeviceStats stats_;
  History history_;
  std::vector<OutOfMemoryObserver> observers_;
  std::map<MempoolId_t, std::unique_ptr<PrivatePool>> pools_;
  std::vector<std::pair<MempoolId_t, Filter>> begun_;
  // How many pools are begun, for readers without the lock.
  std::atomic<size_t> begun_count_{0};
  // Blocks that were freed while their streams were captured.
  std::vector<std::pair<char *, Block>> deferred_;
  std::deque<PendingFree> pending_;
  // Segments of private pools come in the order of this stream.
  cudaStream_t pool_stream_ = nullptr;
  // What user allocators gave to private pools. It counts towards the limit, which Freehold's pool is told the rest of.
  size_t user_bytes_ = 0;
  size_t limit_ = SIZE_MAX;
  double fraction_ = 1.0;
  std::vector<LibrarySegment> seen_segments_;
  std::vector<int> peers_;
};

} // namespace freehold_torch
