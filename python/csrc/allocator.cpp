#include "allocator.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <pthread.h>

#include <atomic>

namespace freehold_torch {

namespace {

// The deleter of tensors, which must not throw.
void delete_block(void *ptr) {
  try {
    the_allocator().free(ptr);
  } catch (const std::exception &error) {
    int count = 0;
    // When the process exits, the driver may be gone before the last tensor.
    if (cudaGetDeviceCount(&count) != cudaErrorCudartUnloading) {
      TORCH_WARN_ONCE("a CUDA tensor could not be freed: ", error.what());
    }
  }
}

// Whether this is a fork of the process that has the memory. Its frees would be wrong, and locks may be held for ever.
std::atomic<bool> is_fork{false};

void delete_uncached(void *ptr) {
  C10_CUDA_CHECK(cudaFree(ptr));
}

c10::Device cuda_device(DeviceIndex index) {
  return {c10::DeviceType::CUDA, index};
}

} // namespace

Allocator &the_allocator() {
  static auto *const allocator = new Allocator;
  return *allocator;
}

Device &Allocator::at(DeviceIndex index) {
  TORCH_CHECK(
      index >= 0 && static_cast<size_t>(index) < devices_.size(),
      "Allocator not initialized for device ",
      static_cast<int>(index),
      ": did you call init?");
  return *devices_[static_cast<size_t>(index)];
}

bool Allocator::initialized() {
  return !devices_.empty();
}

void Allocator::init(int device_count) {
  static const int told = pthread_atfork(nullptr, nullptr, [] { is_fork = true; });
  TORCH_CHECK(told == 0, "Freehold: forks cannot be watched: error ", told);
  const double fraction = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::per_process_memory_fraction();
  for (auto index = static_cast<int>(devices_.size()); index < device_count; ++index) {
    devices_.push_back(std::make_unique<Device>(static_cast<DeviceIndex>(index)));
    if (fraction < 1.0) {
      setMemoryFraction(fraction, static_cast<DeviceIndex>(index));
    }
  }
}

void *Allocator::alloc_on(DeviceIndex device, size_t bytes, cudaStream_t stream) {
  void *const ptr = at(device).alloc(bytes, stream);
  if (const auto *trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr)) {
    (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
  }
  return ptr;
}

void Allocator::free(void *ptr) {
  if (ptr == nullptr || is_fork.load(std::memory_order_relaxed)) {
    return;
  }
  if (const auto *trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr)) {
    (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
  }
  for (const auto &device : devices_) {
    if (device->free(ptr)) {
      return;
    }
  }
  TORCH_CHECK(false, "invalid device pointer: ", ptr);
}

at::DataPtr Allocator::data_of(DeviceIndex device, void *ptr) const {
  return {ptr, ptr, &delete_block, cuda_device(device)};
}

at::DataPtr Allocator::allocate(size_t bytes) {
  constexpr size_t kMost = size_t{1} << 60;
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < kMost, "CUDA out of memory. Tried to allocate more than 1EB memory.");
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  if (bytes == 0) {
    return data_of(device, nullptr);
  }
  if (!is_enabled_) {
    void *ptr = nullptr;
    C10_CUDA_CHECK(cudaMalloc(&ptr, bytes));
    return {ptr, ptr, &delete_uncached, cuda_device(device)};
  }
  return data_of(device, alloc_on(device, bytes, c10::cuda::getCurrentCUDAStream(device)));
}

c10::DeleterFnPtr Allocator::raw_deleter() const {
  return is_enabled_ ? &delete_block : &delete_uncached;
}

void Allocator::copy_data(void *to, const void *from, size_t bytes) const {
  C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
}

void *Allocator::raw_alloc(size_t bytes) {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return raw_alloc_with_stream(bytes, c10::cuda::getCurrentCUDAStream(device));
}

void *Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  if (bytes == 0) {
    return nullptr;
  }
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  if (is_enabled_) {
    return alloc_on(device, bytes, stream);
  }
  void *ptr = nullptr;
  C10_CUDA_CHECK(cudaMalloc(&ptr, bytes));
  const std::lock_guard<std::mutex> lock(uncached_mutex_);
  uncached_.insert(ptr);
  return ptr;
}

void Allocator::raw_delete(void *ptr) {
  std::unique_lock<std::mutex> lock(uncached_mutex_);
  const bool is_uncached = uncached_.erase(ptr) != 0;
  lock.unlock();
  if (is_uncached) {
    delete_uncached(ptr);
  } else {
    free(ptr);
  }
}

void Allocator::emptyCache(MempoolId_t id) {
  for (const auto &device : devices_) {
    device->empty_cache(id);
  }
}

void Allocator::recordStream(const at::DataPtr &data, c10::cuda::CUDAStream stream) {
  // Memory from elsewhere, such as other processes', has another deleter.
  if (data.get() == nullptr || data.get_deleter() != &delete_block) {
    return;
  }
  for (const auto &device : devices_) {
    if (device->record_stream(data.get(), stream)) {
      return;
    }
  }
  TORCH_CHECK(false, "invalid device pointer: ", data.get());
}

double Allocator::getMemoryFraction(DeviceIndex device) {
  return at(device).fraction();
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex device) {
  TORCH_CHECK(fraction >= 0 && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
  at(device).set_fraction(fraction);
}

std::vector<StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex device) {
  std::vector<StreamSegmentSize> sizes;
  for (const auto &segment : at(device).snapshot({0, 0})) {
    if (segment.is_expandable && segment.address != 0) {
      sizes.emplace_back(static_cast<cudaStream_t>(segment.stream), false, segment.total_size);
    }
  }
  return sizes;
}

void Allocator::cacheInfo(DeviceIndex device, size_t *largest) {
  if (*largest == 0) {
    const c10::cuda::CUDAGuard guard(device);
    size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(largest, &total));
  }
  *largest = std::max(*largest, at(device).largest_cached_bytes());
}

void *Allocator::getBaseAllocation(void *ptr, size_t *size) {
  size_t found = 0;
  for (const auto &device : devices_) {
    if (void *const base = device->base_of(ptr, &found); base != nullptr) {
      if (size != nullptr) {
        *size = found;
      }
      return base;
    }
  }
  TORCH_CHECK(false, "invalid device pointer: ", ptr);
}

DeviceStats Allocator::getDeviceStats(DeviceIndex device) {
  return at(device).stats();
}

void Allocator::resetAccumulatedStats(DeviceIndex device) {
  at(device).reset_accumulated();
}

void Allocator::resetPeakStats(DeviceIndex device) {
  at(device).reset_peaks();
}

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t id, Filter filter) {
  at(device).begin_pool(id, std::move(filter));
}

void Allocator::endAllocateToPool(DeviceIndex device, MempoolId_t id) {
  at(device).end_pool(id);
}

void Allocator::releasePool(DeviceIndex device, MempoolId_t id) {
  at(device).release_pool(id);
}

int Allocator::getPoolUseCount(DeviceIndex device, MempoolId_t id) {
  return at(device).pool_users(id);
}

void Allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> of) {
  at(device).hold_pool(id, std::move(of));
}

void Allocator::setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) {
  at(device).set_pool(id, [=](PrivatePool &pool) { pool.is_used_on_oom = use_on_oom; });
}

void Allocator::setNoSplit(DeviceIndex device, MempoolId_t id) {
  at(device).set_pool(id, [](PrivatePool &pool) { pool.is_unsplit = true; });
}

bool Allocator::checkPoolLiveAllocations(
    DeviceIndex device, MempoolId_t id, const std::unordered_set<void *> &expected) {
  return at(device).has_live(id, expected);
}

std::shared_ptr<AllocatorState> Allocator::getCheckpointState(DeviceIndex device, MempoolId_t id) {
  return at(device).state_of(id);
}

CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state) {
  const auto own = std::dynamic_pointer_cast<PoolState>(state);
  TORCH_CHECK(own, "Freehold: the checkpoint was made by another allocator");
  return at(device).restore(*own, [&](void *ptr) { return data_of(device, ptr); });
}

SnapshotInfo Allocator::snapshot(MempoolId_t id, bool include_traces) {
  const auto to_time = clock_.makeConverter();
  const auto convert = [&](auto &time) { time.t_ = to_time(time.approx_t_) / 1000; };
  SnapshotInfo info;
  for (const auto &device : devices_) {
    auto segments = device->snapshot(id);
    std::move(segments.begin(), segments.end(), std::back_inserter(info.segments));
    info.device_traces.emplace_back();
    if (include_traces) {
      info.device_traces.back() = device->trace();
      for (auto &entry : info.device_traces.back()) {
        convert(entry.time_);
      }
    }
  }
  {
    const std::lock_guard<std::mutex> lock(annotations_mutex_);
    info.external_annotations.assign(annotations_.begin(), annotations_.end());
  }
  for (auto &annotation : info.external_annotations) {
    convert(annotation.time_);
  }
  info.config_metadata = {};
  // Freehold maps memory as expandable segments do, and splits blocks of all sizes.
  info.config_metadata.max_split_size = SIZE_MAX;
  info.config_metadata.expandable_segments = true;
  info.config_metadata.last_allocator_settings = "freehold";
  return info;
}

bool Allocator::isHistoryEnabled() {
  return !devices_.empty() && devices_[0]->is_history_enabled();
}

void Allocator::recordHistory(
    bool enabled,
    CreateContextFn recorder,
    size_t entries_max,
    RecordContext when,
    bool clears,
    const std::vector<std::string> &skipped) {
  TORCH_CHECK(when == RecordContext::NEVER || recorder, "recording stacks needs a function that makes them");
  {
    const std::lock_guard<std::mutex> lock(annotations_mutex_);
    annotations_max_ = enabled ? entries_max : 0;
    if (!enabled || clears) {
      annotations_.clear();
    }
  }
  for (const auto &device : devices_) {
    device->set_history({enabled, recorder, entries_max, when, clears, skipped});
  }
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata) {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  c10::CachingDeviceAllocator::AnnotationEntry entry(device, c10::getApproximateTime());
  for (const auto &[name, value] : metadata) {
    entry.recordUserMetadata(name, value);
  }
  const std::lock_guard<std::mutex> lock(annotations_mutex_);
  annotations_.push_back(std::move(entry));
  while (annotations_.size() > annotations_max_) {
    annotations_.pop_front();
  }
}

void Allocator::popCompileContext() {
  if (auto &contexts = compile_contexts(); !contexts.empty()) {
    contexts.pop_back();
  }
}

void Allocator::setUserMetadata(const std::string &metadata) {
  for (const auto &device : devices_) {
    device->set_user_metadata(metadata);
  }
}

std::string Allocator::getUserMetadata() {
  return devices_.empty() ? "" : devices_[0]->user_metadata();
}

void Allocator::attachOutOfMemoryObserver(OutOfMemoryObserver observer) {
  for (const auto &device : devices_) {
    device->add_observer(observer);
  }
}

void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker) {
  for (const auto &device : devices_) {
    device->add_tracker(tracker);
  }
}

bool Allocator::while_shared(void *base, uint64_t token, const std::function<void()> &act) {
  for (const auto &device : devices_) {
    if (device->while_shared(base, token, act)) {
      return true;
    }
  }
  return false;
}

} // namespace freehold_torch
