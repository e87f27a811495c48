#include "allocator_history.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>

namespace freehold_torch {

std::vector<std::string> &compile_contexts() {
  static thread_local std::vector<std::string> contexts;
  return contexts;
}

void History::set(const HistorySettings &settings) {
  entries_max_ = std::max<size_t>(1, settings.entries_max);
  skipped_.clear();
  for (const auto &name : settings.skipped) {
    skipped_.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(name));
  }
  when_ = settings.enabled ? settings.when : RecordContext::NEVER;
  recorder_ = settings.enabled ? settings.recorder : nullptr;
  is_enabled_ = settings.enabled;
  if (!settings.enabled || settings.clears || entries_.size() > entries_max_) {
    entries_.clear();
    next_ = 0;
  }
}

void History::note(
    Action action,
    DeviceIndex device,
    size_t address,
    size_t size,
    cudaStream_t stream,
    const MempoolId_t &pool,
    const Context &context) {
  if (!is_watched()) {
    return;
  }
  const auto &compiles = compile_contexts();
  TraceEntry entry(
      action,
      device,
      address,
      size,
      stream,
      pool,
      c10::getApproximateTime(),
      of_event(context),
      compiles.empty() ? "N/A" : compiles.back(),
      user_metadata);
  for (const auto &tracker : trackers_) {
    tracker(entry);
  }
  if (!is_enabled() || skipped_.count(action) != 0) {
    return;
  }
  if (entries_.size() < entries_max_) {
    entries_.push_back(std::move(entry));
    return;
  }
  entries_[next_] = std::move(entry);
  next_ = (next_ + 1) % entries_max_;
}

std::vector<TraceEntry> History::entries() const {
  std::vector<TraceEntry> all(entries_.begin() + static_cast<ptrdiff_t>(next_), entries_.end());
  all.insert(all.end(), entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(next_));
  return all;
}

} // namespace freehold_torch
