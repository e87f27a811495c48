// The statistics of a device, and its limit.

#include "allocator_device.h"
#include "allocator_stats.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

namespace freehold_torch {

namespace {

const MempoolId_t kNoPool{0, 0};

// The device's statistics, each of which `act` changes.
template <typename Act>
void for_each_stat(DeviceStats &stats, Act act) {
  for (StatArray *array :
       {&stats.allocation,
        &stats.segment,
        &stats.active,
        &stats.inactive_split,
        &stats.allocated_bytes,
        &stats.reserved_bytes,
        &stats.active_bytes,
        &stats.inactive_split_bytes,
        &stats.requested_bytes}) {
    for (auto &stat : *array) {
      act(stat);
    }
  }
  act(stats.oversize_allocations);
  act(stats.oversize_segments);
}

} // namespace

void Device::update_reserved(const Context &context) {
  const size_t now = reserved_bytes();
  const auto before = static_cast<size_t>(stats_.reserved_bytes[0].current);
  if (now == before) {
    return;
  }
  (now > before ? stats_.num_device_alloc : stats_.num_device_free) += 1;
  set_current(stats_.reserved_bytes, now);
  update_segments(context);
}

DeviceStats Device::stats() {
  const Lock lock(mutex_);
  finish_complete(false);
  update_reserved();
  set_current(stats_.segment, bare_segments(kNoPool).size());
  std::pair<size_t, size_t> split{0, 0};
  for (const auto &[id, pool] : pools_) {
    const auto [count, bytes] = pool->inactive_split();
    split.first += count;
    split.second += bytes;
  }
  set_current(stats_.inactive_split, split.first);
  set_current(stats_.inactive_split_bytes, split.second);
  return stats_;
}

void Device::reset_accumulated() {
  const Lock lock(mutex_);
  for_each_stat(stats_, [](auto &stat) { stat.reset_accumulated(); });
  stats_.num_alloc_retries = 0;
  stats_.num_ooms = 0;
}

void Device::reset_peaks() {
  const Lock lock(mutex_);
  update_reserved();
  for_each_stat(stats_, [](auto &stat) { stat.reset_peak(); });
}

void Device::set_fraction(double fraction) {
  size_t device_free = 0;
  size_t device_total = 0;
  const c10::cuda::CUDAGuard guard(index_);
  C10_CUDA_CHECK(cudaMemGetInfo(&device_free, &device_total));
  const Lock lock(mutex_);
  limit_ = fraction < 1.0 ? static_cast<size_t>(fraction * static_cast<double>(device_total)) : SIZE_MAX;
  fraction_ = fraction;
  if (limit_ == SIZE_MAX) {
    check(library.set_budget(index_, SIZE_MAX), "no longer limiting the memory of a device");
  }
  set_user_bytes(user_bytes_);
}

void Device::set_user_bytes(size_t bytes) {
  user_bytes_ = bytes;
  // Without a limit, the program may have set a budget itself.
  if (limit_ != SIZE_MAX) {
    check(library.set_budget(index_, limit_ - std::min(limit_, bytes)), "limiting the memory of a device");
  }
}

size_t Device::largest_cached_bytes() {
  const size_t live = library.live_bytes(index_);
  const size_t reserved = library.reserved_bytes(index_);
  // Freehold can map cached memory side by side.
  return reserved > live ? reserved - live : 0;
}

} // namespace freehold_torch
