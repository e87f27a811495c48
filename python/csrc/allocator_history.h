// The trace of allocations of a device: torch.cuda.memory._record_memory_history.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <set>
#include <string>
#include <vector>

namespace freehold_torch {

using c10::DeviceIndex;
using c10::MempoolId_t;
using c10::CachingDeviceAllocator::AllocatorTraceTracker;
using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;
using Context = std::shared_ptr<c10::GatheredContext>;
using Action = TraceEntry::Action;

struct HistorySettings {
  bool enabled;
  CreateContextFn recorder;
  size_t entries_max;
  RecordContext when;
  bool clears;
  const std::vector<std::string> &skipped;
};

// All functions but `gather` and `is_enabled` need the device's lock.
class History {
 public:
  void set(const HistorySettings &settings);
  bool is_enabled() const { return is_enabled_.load(std::memory_order_relaxed); }

  // Returns the caller's stack, if stacks of this level are recorded. Without the lock: it may need Python's.
  Context gather(RecordContext level) const {
    const CreateContextFn recorder = recorder_.load(std::memory_order_relaxed);
    return recorder != nullptr && when_.load(std::memory_order_relaxed) >= level ? recorder() : nullptr;
  }

  // Whether anyone wants to know of events.
  bool is_watched() const { return is_enabled() || !trackers_.empty(); }
  void note(
      Action action,
      DeviceIndex device,
      size_t address,
      size_t size,
      cudaStream_t stream,
      const MempoolId_t &pool,
      const Context &context);
  // Returns the events, the oldest first.
  std::vector<TraceEntry> entries() const;
  void add_tracker(AllocatorTraceTracker tracker) { trackers_.push_back(std::move(tracker)); }
  // Returns the stack to keep with an event of the trace.
  Context of_event(const Context &context) const {
    return when_.load(std::memory_order_relaxed) >= RecordContext::ALLOC ? context : nullptr;
  }

  std::string user_metadata;

 private:
  std::atomic<bool> is_enabled_{false};
  // Null if no stacks are recorded.
  std::atomic<CreateContextFn> recorder_{nullptr};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  size_t entries_max_ = 1;
  size_t next_ = 0;
  std::vector<TraceEntry> entries_;
  std::set<Action> skipped_;
  std::vector<AllocatorTraceTracker> trackers_;
};

// The names of the compilations that the calling thread is in.
std::vector<std::string> &compile_contexts();

} // namespace freehold_torch
