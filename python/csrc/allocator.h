// Freehold behind PyTorch's own allocator interface.
#pragma once

#include "allocator_device.h"

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace freehold_torch {

using c10::cuda::CUDACachingAllocator::AllocatorState;
using c10::cuda::CUDACachingAllocator::ShareableHandle;
using c10::cuda::CUDACachingAllocator::SnapshotInfo;
using c10::cuda::CUDACachingAllocator::StreamSegmentSize;

class Allocator final : public c10::cuda::CUDACachingAllocator::CUDAAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void *to, const void *from, size_t bytes) const override;

  bool initialized() override;
  void init(int device_count) override;
  void *raw_alloc(size_t bytes) override;
  void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void *ptr) override;
  void emptyCache(MempoolId_t id) override;
  void enable(bool value) override { is_enabled_ = value; }
  bool isEnabled() const override { return is_enabled_; }
  void recordStream(const at::DataPtr &data, c10::cuda::CUDAStream stream) override;

  double getMemoryFraction(DeviceIndex device) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;
  std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;
  void cacheInfo(DeviceIndex device, size_t *largest) override;
  void *getBaseAllocation(void *ptr, size_t *size) override;
  DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;

  void beginAllocateToPool(DeviceIndex device, MempoolId_t id, Filter filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
  void releasePool(DeviceIndex device, MempoolId_t id) override;
  int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
  void createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> of) override;
  void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override;
  void setNoSplit(DeviceIndex device, MempoolId_t id) override;
  bool checkPoolLiveAllocations(
      DeviceIndex device, MempoolId_t id, const std::unordered_set<void *> &expected) override;
  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
  CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state) override;

  SnapshotInfo snapshot(MempoolId_t id, bool include_traces) override;
  bool isHistoryEnabled() override;
  void recordHistory(
      bool enabled,
      CreateContextFn recorder,
      size_t entries_max,
      RecordContext when,
      bool clears,
      const std::vector<std::string> &skipped) override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata) override;
  void pushCompileContext(std::string &name) override { compile_contexts().push_back(name); }
  void popCompileContext() override;
  void setUserMetadata(const std::string &metadata) override;
  std::string getUserMetadata() override;
  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;

  ShareableHandle shareIpcHandle(void *ptr) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  void enablePeerAccess(DeviceIndex device, DeviceIndex other) override;
  cudaError_t memcpyAsync(
      void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream, bool p2p)
      override;
  std::string name() override { return "freehold"; }

  // Frees a block of any device.
  void free(void *ptr);
  // Calls `act` if the block at an address still has this token.
  bool while_shared(void *base, uint64_t token, const std::function<void()> &act);

 private:
  Device &at(DeviceIndex index);
  void *alloc_on(DeviceIndex device, size_t bytes, cudaStream_t stream);
  at::DataPtr data_of(DeviceIndex device, void *ptr) const;

  std::vector<std::unique_ptr<Device>> devices_;
  bool is_enabled_ = true;
  // What raw_alloc took from the driver while the allocator was disabled.
  std::mutex uncached_mutex_;
  std::unordered_set<void *> uncached_;
  std::mutex annotations_mutex_;
  std::deque<c10::CachingDeviceAllocator::AnnotationEntry> annotations_;
  size_t annotations_max_ = 0;
  c10::ApproximateClockToUnixTimeConverter clock_;
};

// The one allocator of the process. It is never destroyed: tensors may outlive everything else.
Allocator &the_allocator();


} // namespace freehold_torch
