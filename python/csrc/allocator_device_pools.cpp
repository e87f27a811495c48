// The private pools of a device: captures, torch.cuda.MemPool, and the checkpoints of cudagraph trees.

#include "allocator_device.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

namespace freehold_torch {

namespace {

// The name under which Freehold is told that streams may be captured. Nothing is allocated there.
constexpr uint64_t kCaptures = 0x746f726368;

// Lets calls that a capture forbids pass in this thread.
using Relaxed = c10::cuda::CUDAStreamCaptureModeGuard;

} // namespace

PrivatePool &Device::pool(const MempoolId_t &id) {
  const auto found = pools_.find(id);
  TORCH_CHECK(
      found != pools_.end(),
      "Freehold: device ",
      static_cast<int>(index_),
      " has no private pool (",
      id.first,
      ", ",
      id.second,
      "): it was never begun, or was released");
  return *found->second;
}

void Device::set_pool(const MempoolId_t &id, const std::function<void(PrivatePool &)> &change) {
  const Lock lock(mutex_);
  change(pool(id));
}

void Device::hold_pool(const MempoolId_t &id, std::shared_ptr<CUDAAllocator> allocator) {
  const Lock lock(mutex_);
  auto &pool = pools_[id];
  if (!pool) {
    pool = std::make_unique<PrivatePool>(index_, id);
    pool->allocator = std::move(allocator);
  }
  pool->use_count += 1;
}

void Device::begin_pool(const MempoolId_t &id, Filter filter) {
  const Lock lock(mutex_);
  for (const auto &begun : begun_) {
    TORCH_CHECK(begun.first != id, "beginAllocateToPool: already recording to mempool_id");
  }
  hold_pool(id, nullptr);
  if (begun_.empty()) {
    check(library.pool_begin(index_, kCaptures, static_cast<uint64_t>(index_)), "announcing a capture");
  }
  begun_.emplace_back(id, std::move(filter));
  begun_count_ = begun_.size();
}

void Device::end_pool(const MempoolId_t &id) {
  const Lock lock(mutex_);
  const auto begun = std::find_if(begun_.begin(), begun_.end(), [&](const auto &one) { return one.first == id; });
  TORCH_CHECK(begun != begun_.end(), "endAllocatePool: not currently recording to mempool_id");
  begun_.erase(begun);
  begun_count_ = begun_.size();
  if (begun_.empty()) {
    check(library.pool_end(index_, kCaptures, static_cast<uint64_t>(index_)), "ending a capture");
    finish_deferred();
  }
}

void Device::release_pool(const MempoolId_t &id) {
  const Lock lock(mutex_);
  PrivatePool &released = pool(id);
  released.use_count -= 1;
  if (released.use_count == 0) {
    finish_complete(false);
    give_back(released);
    if (released.segments().empty()) {
      pools_.erase(id);
    }
  }
}

int Device::pool_users(const MempoolId_t &id) {
  const Lock lock(mutex_);
  const auto found = pools_.find(id);
  return found == pools_.end() ? 0 : found->second->use_count;
}

PrivatePool *Device::pool_for(cudaStream_t stream) {
  // The innermost: what was begun last.
  for (auto begun = begun_.rbegin(); begun != begun_.rend(); ++begun) {
    if (begun->second(stream)) {
      return pools_.at(begun->first).get();
    }
  }
  return nullptr;
}

void *Device::alloc_in(PrivatePool &pool, size_t bytes, cudaStream_t stream, const Context &context) {
  finish_complete(false);
  if (void *const ptr = pool.alloc(bytes, stream); ptr != nullptr) {
    return ptr;
  }
  const size_t size = pool.segment_bytes(bytes);
  char *const base = new_segment(pool, size);
  if (base == nullptr) {
    return nullptr;
  }
  pool.add_segment(base, size, stream, context);
  return pool.alloc(bytes, stream);
}

char *Device::new_segment(PrivatePool &pool, size_t size) {
  const Relaxed relaxed(cudaStreamCaptureModeRelaxed);
  const c10::cuda::CUDAGuard guard(index_);
  if (pool.allocator) {
    if (size > limit_ || reserved_bytes() > limit_ - size) {
      return nullptr;
    }
    auto *const base = static_cast<char *>(pool.allocator->raw_alloc(size));
    set_user_bytes(user_bytes_ + (base == nullptr ? 0 : size));
    return base;
  }
  if (pool_stream_ == nullptr) {
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&pool_stream_, cudaStreamNonBlocking));
  }
  auto *const base = static_cast<char *>(library.alloc(static_cast<ssize_t>(size), index_, pool_stream_));
  // The memory may be free in the order of this stream only, and a capture cannot wait for it.
  C10_CUDA_CHECK(cudaStreamSynchronize(pool_stream_));
  return base;
}

void Device::give_back(PrivatePool &pool) {
  // A user's allocator gets back what nothing uses, and waiting for that would invalidate a capture.
  if (pool.allocator && !begun_.empty()) {
    return;
  }
  const auto segments = pool.take_free_segments();
  if (segments.empty()) {
    return;
  }
  const Relaxed relaxed(cudaStreamCaptureModeRelaxed);
  const c10::cuda::CUDAGuard guard(index_);
  if (pool.allocator) {
    C10_CUDA_CHECK(cudaDeviceSynchronize());
  }
  for (const auto &[base, segment] : segments) {
    if (pool.allocator) {
      pool.allocator->raw_delete(base);
      set_user_bytes(user_bytes_ - segment.size);
    } else {
      // A graph that used it may still run, in any stream.
      check(library.free_after_all(base, index_), "releasing a private pool");
    }
  }
  update_reserved();
}

void Device::give_back_all() {
  finish_complete(true);
  for (auto pool = pools_.begin(); pool != pools_.end();) {
    if (pool->second->use_count == 0) {
      give_back(*pool->second);
    }
    const bool is_gone = pool->second->use_count == 0 && pool->second->segments().empty();
    pool = is_gone ? pools_.erase(pool) : std::next(pool);
  }
}

void Device::trim() {
  const Relaxed relaxed(cudaStreamCaptureModeRelaxed);
  if (begun_.empty()) {
    // First makes blocks free whose work is complete, in an order of their own, which is then waited for.
    check(library.trim(index_, SIZE_MAX), "freeing blocks whose work is complete");
    const c10::cuda::CUDAGuard guard(index_);
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    stats_.num_sync_all_streams += 1;
  }
  check(library.trim(index_, 0), "returning cached memory to the driver");
}

void Device::empty_cache(const MempoolId_t &id) {
  const Context context = history_.gather(RecordContext::ALL);
  const Lock lock(mutex_);
  if (id == MempoolId_t{0, 0}) {
    give_back_all();
    if (reserved_bytes() > 0) {
      trim();
    }
  } else if (const auto found = pools_.find(id); found != pools_.end()) {
    // While anyone holds the pool, a graph may use all of its memory.
    finish_complete(true);
    if (found->second->use_count == 0) {
      give_back(*found->second);
    }
    if (found->second->use_count == 0 && found->second->segments().empty()) {
      pools_.erase(found);
    }
  }
  update_reserved(context);
}

bool Device::has_live(const MempoolId_t &id, const std::unordered_set<void *> &expected) {
  const Lock lock(mutex_);
  const PrivatePool &asked = pool(id);
  size_t live = 0;
  for (const auto &[ptr, block] : blocks_) {
    if (block.pool == &asked) {
      live += 1;
      if (expected.count(ptr) == 0) {
        return false;
      }
    }
  }
  return live == expected.size();
}

std::shared_ptr<PoolState> Device::state_of(const MempoolId_t &id) {
  const Lock lock(mutex_);
  const PrivatePool &asked = pool(id);
  finish_complete(false);
  auto state = std::make_shared<PoolState>();
  state->id = id;
  for (const auto &[ptr, block] : blocks_) {
    if (block.pool == &asked) {
      state->live.push_back({static_cast<char *>(ptr), block.size, block.requested, block.stream});
    }
  }
  return state;
}

CheckpointDelta Device::restore(const PoolState &state, const std::function<at::DataPtr(void *)> &to_data) {
  const Lock lock(mutex_);
  PrivatePool &restored = pool(state.id);
  finish_complete(true);
  CheckpointDelta delta;
  std::vector<void *> live;
  for (const auto &[ptr, block] : blocks_) {
    if (block.pool == &restored) {
      TORCH_CHECK(block.uses.empty(), "Freehold: a block in a checkpoint is used by other streams");
      live.push_back(ptr);
    }
  }
  for (void *const ptr : live) {
    delta.ptrs_freed.push_back(ptr);
    free(ptr, nullptr);
  }
  for (const auto &wanted : state.live) {
    restored.alloc_at(wanted.ptr, wanted.size);
    add(wanted.ptr, Block{0, wanted.requested, wanted.stream, &restored, nullptr, {}});
    delta.dataptrs_allocd.push_back(to_data(wanted.ptr));
  }
  return delta;
}

} // namespace freehold_torch
