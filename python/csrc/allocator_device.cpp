#include "allocator_device.h"
#include "allocator_stats.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

namespace freehold_torch {

using c10::CachingAllocator::format_size;

namespace {

const MempoolId_t kNoPool{0, 0};

MempoolId_t id_of(const PrivatePool *pool) {
  return pool == nullptr ? kNoPool : pool->id;
}

// Runs what other parts of PyTorch free when memory is short.
bool run_free_callbacks() {
  bool has_freed = false;
  for (const auto &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
    has_freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  }
  return has_freed;
}

} // namespace

void Device::prepare() {
  // Not earlier: it creates a context, and a program may use one device of many. The memory of a device that cannot export it
  // works as well, but for tensors shared between processes.
  (void)library.make_exportable(index_);
}

void *Device::alloc(size_t bytes, cudaStream_t stream) {
  std::call_once(is_prepared_, [this] { prepare(); });
  const Context context = history_.gather(RecordContext::STATE);
  PrivatePool *pool = nullptr;
  void *ptr = nullptr;
  if (begun_count_.load(std::memory_order_acquire) > 0) {
    const Lock lock(mutex_);
    pool = pool_for(stream);
    ptr = pool == nullptr ? nullptr : alloc_in(*pool, bytes, stream, context);
  }
  if (pool == nullptr) {
    const MaybeRelaxed relaxed(begun_count_);
    ptr = library.alloc(static_cast<ssize_t>(bytes), index_, stream);
  }
  if (ptr == nullptr) {
    return alloc_with_room(pool, bytes, stream, context);
  }
  add(ptr, Block{0, bytes, stream, pool, context, {}});
  return ptr;
}

void *Device::alloc_with_room(PrivatePool *pool, size_t bytes, cudaStream_t stream, const Context &context) {
  const MaybeRelaxed relaxed(begun_count_);
  const auto attempt = [&]() -> void * {
    if (pool == nullptr) {
      return library.alloc(static_cast<ssize_t>(bytes), index_, stream);
    }
    const Lock lock(mutex_);
    return alloc_in(*pool, bytes, stream, context);
  };
  const bool is_users = pool != nullptr && pool->allocator;
  const auto why = [&]() -> std::string {
    return is_users ? "the private pool's own allocator has no memory, or the limit leaves none" : library.last_error();
  };
  // A device that has failed, say, has no less to explain because memory is short.
  TORCH_CHECK(is_users || library.last_error_code() == kOutOfMemory, "Freehold cannot allocate: ", why());
  std::string reason;
  void *ptr = run_free_callbacks() ? attempt() : nullptr;
  if (ptr == nullptr) {
    {
      const Lock lock(mutex_);
      stats_.num_alloc_retries += 1;
      give_back_all();
    }
    ptr = attempt();
  }
  if (ptr == nullptr) {
    reason = why();
    const Lock lock(mutex_);
    ptr = pool == nullptr ? alloc_on_oom(bytes, stream, &pool) : nullptr;
  }
  if (ptr == nullptr) {
    out_of_memory(bytes, reason, stream, id_of(pool), context);
  }
  add(ptr, Block{0, bytes, stream, pool, context, {}});
  return ptr;
}

void *Device::alloc_on_oom(size_t bytes, cudaStream_t stream, PrivatePool **from) {
  for (const auto &[id, pool] : pools_) {
    if (!pool->is_used_on_oom) {
      continue;
    }
    if (void *const ptr = pool->alloc(bytes, stream); ptr != nullptr) {
      *from = pool.get();
      return ptr;
    }
  }
  return nullptr;
}

void Device::out_of_memory(
    size_t bytes, const std::string &reason, cudaStream_t stream, const MempoolId_t &pool, const Context &context) {
  size_t device_free = 0;
  size_t device_total = 0;
  {
    const c10::cuda::CUDAGuard guard(index_);
    C10_CUDA_CHECK(cudaMemGetInfo(&device_free, &device_total));
  }
  Lock lock(mutex_);
  stats_.num_ooms += 1;
  update_reserved();
  const auto allocated = static_cast<size_t>(stats_.allocated_bytes[0].current);
  const auto reserved = static_cast<size_t>(stats_.reserved_bytes[0].current);
  history_.note(Action::OOM, index_, device_free, bytes, stream, pool, context);
  const auto observers = observers_;
  lock.unlock();
  const auto limit = static_cast<size_t>(fraction_ * static_cast<double>(device_total));
  for (const auto &observer : observers) {
    observer(index_, bytes, limit, device_free);
  }
  const c10::Device device(c10::DeviceType::CUDA, index_);
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), allocated, reserved, device);
  const std::string allowed =
      fraction_ < 1.0 ? " " + format_size(limit) + " allowed by set_per_process_memory_fraction." : "";
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "CUDA out of memory. Tried to allocate ",
      format_size(bytes),
      ". GPU ",
      static_cast<int>(index_),
      " has a total capacity of ",
      format_size(device_total),
      " of which ",
      format_size(device_free),
      " is free.",
      allowed,
      " Tensors of this process have ",
      format_size(allocated),
      ", Freehold has reserved ",
      format_size(reserved),
      ". Freehold: ",
      reason);
}

void Device::add(void *ptr, Block block) {
  const Lock lock(mutex_);
  block.size = block.pool == nullptr ? rounded(block.requested, kGranuleBytes)
                                     : block.pool->size_at(static_cast<char *>(ptr));
  update_reserved(block.context);
  increase(stats_.allocation, 1);
  increase(stats_.active, 1);
  increase(stats_.allocated_bytes, block.size);
  increase(stats_.active_bytes, block.size);
  increase(stats_.requested_bytes, block.requested);
  const auto address = reinterpret_cast<size_t>(ptr);
  history_.note(Action::ALLOC, index_, address, block.requested, block.stream, id_of(block.pool), block.context);
  const c10::Device device(c10::DeviceType::CUDA, index_);
  c10::reportMemoryUsageToProfiler(
      ptr,
      static_cast<int64_t>(block.size),
      static_cast<size_t>(stats_.allocated_bytes[0].current),
      static_cast<size_t>(stats_.reserved_bytes[0].current),
      device);
  blocks_[ptr] = std::move(block);
}

void Device::note_freed(void *ptr, const Block &block) {
  decrease(stats_.allocation, 1);
  decrease(stats_.allocated_bytes, block.size);
  const c10::Device device(c10::DeviceType::CUDA, index_);
  c10::reportMemoryUsageToProfiler(
      ptr,
      -static_cast<int64_t>(block.size),
      static_cast<size_t>(stats_.allocated_bytes[0].current),
      static_cast<size_t>(stats_.reserved_bytes[0].current),
      device);
}

bool Device::free(void *ptr) {
  const Context context = history_.gather(RecordContext::ALL);
  return free(ptr, context);
}

bool Device::free(void *ptr, const Context &context) {
  const Lock lock(mutex_);
  const auto found = blocks_.find(ptr);
  if (found == blocks_.end()) {
    return false;
  }
  Block block = std::move(found->second);
  blocks_.erase(found);
  note_freed(ptr, block);
  const auto address = reinterpret_cast<size_t>(ptr);
  history_.note(
      Action::FREE_REQUESTED,
      index_,
      address,
      block.requested,
      block.stream,
      id_of(block.pool),
      context ? context : block.context);
  auto *const at = static_cast<char *>(ptr);
  PrivatePool *const pool = block.pool;
  const MaybeRelaxed relaxed(begun_count_);
  if (is_in_capture(block)) {
    deferred_.emplace_back(at, std::move(block));
  } else {
    release(at, std::move(block), context);
  }
  if (pool != nullptr && pool->use_count == 0 && pool->segments().empty()) {
    pools_.erase(pool->id);
  }
  return true;
}

// Whether the end of a block's uses cannot be recorded before a capture ends.
bool Device::is_in_capture(const Block &block) {
  if (begun_.empty()) {
    return false;
  }
  const auto is_captured = [this](const auto &user) { return is_capturing(user.stream()); };
  // In a private pool a capture reuses its own memory at once.
  return (block.pool == nullptr && is_capturing(block.stream)) ||
      std::any_of(block.uses.begin(), block.uses.end(), is_captured);
}

void Device::release(char *ptr, Block block, const Context &context) {
  std::vector<cudaEvent_t> events;
  for (const auto &user : block.uses) {
    if (block.pool == nullptr && user.device_index() == index_) {
      check(library.record_use(ptr, user.stream()), "recording the use of a block in another stream");
      continue;
    }
    const c10::cuda::CUDAGuard guard(user.device_index());
    cudaEvent_t event = nullptr;
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventRecord(event, user.stream()));
    events.push_back(event);
  }
  if (events.empty()) {
    finish(ptr, block, context ? context : block.context);
  } else {
    pending_.push_back({ptr, std::move(block), std::move(events)});
  }
}

void Device::finish(char *ptr, const Block &block, const Context &context) {
  decrease(stats_.active, 1);
  decrease(stats_.active_bytes, block.size);
  decrease(stats_.requested_bytes, block.requested);
  const auto address = reinterpret_cast<size_t>(ptr);
  history_.note(Action::FREE_COMPLETED, index_, address, block.requested, block.stream, id_of(block.pool), context);
  if (block.pool == nullptr) {
    const int code = library.try_free(ptr, static_cast<ssize_t>(block.requested), index_, block.stream);
    check(code, "freeing a block");
    return;
  }
  block.pool->free(ptr);
  if (block.pool->use_count == 0) {
    give_back(*block.pool);
  }
}

bool Device::record_stream(void *ptr, c10::cuda::CUDAStream stream) {
  const Lock lock(mutex_);
  const auto found = blocks_.find(ptr);
  if (found == blocks_.end()) {
    return false;
  }
  Block &block = found->second;
  if (stream.stream() == block.stream && stream.device_index() == index_) {
    return true;
  }
  const bool is_late = block.pool != nullptr || stream.device_index() != index_;
  if (!is_late && (begun_.empty() || !is_capturing(stream.stream()))) {
    check(library.record_use(ptr, stream.stream()), "recording the use of a block in another stream");
  } else if (std::find(block.uses.begin(), block.uses.end(), stream) == block.uses.end()) {
    block.uses.push_back(stream);
  }
  return true;
}

bool Device::is_capturing(cudaStream_t stream) {
  // The legacy default stream cannot be captured, and asking about it would invalidate other captures.
  if (stream == nullptr || stream == cudaStreamLegacy) {
    return false;
  }
  const c10::cuda::CUDAGuard guard(index_);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

void Device::finish_complete(bool waits) {
  if (pending_.empty()) {
    return;
  }
  // Other streams may be captured.
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  std::deque<PendingFree> still;
  for (auto &freed : pending_) {
    while (!freed.events.empty()) {
      cudaEvent_t event = freed.events.back();
      if (waits) {
        C10_CUDA_CHECK(cudaEventSynchronize(event));
      } else if (const cudaError_t state = cudaEventQuery(event); state == cudaErrorNotReady) {
        (void)cudaGetLastError();
        break;
      } else {
        C10_CUDA_CHECK(state);
      }
      C10_CUDA_CHECK(cudaEventDestroy(event));
      freed.events.pop_back();
    }
    if (freed.events.empty()) {
      finish(freed.ptr, freed.block, freed.block.context);
    } else {
      still.push_back(std::move(freed));
    }
  }
  pending_ = std::move(still);
}

void Device::finish_deferred() {
  auto deferred = std::move(deferred_);
  deferred_.clear();
  for (auto &[ptr, block] : deferred) {
    release(ptr, std::move(block), nullptr);
  }
}

} // namespace freehold_torch
