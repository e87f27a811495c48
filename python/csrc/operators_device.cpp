#include "operators_device.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <atomic>

namespace freehold {

namespace {

constexpr uint32_t VERSION = 4;
constexpr int NOT_FOUND = 500;

// The functions of the extension, in its order. Those that are not called here have no types.
struct Table {
  void* describe;
  void* forget;
  void* read_only;
  void* fault;
  void* device;
  void* is_checked;
  void* handed_out;
  void* freed;
  void* resized;
  int (*launch_host)(void* stream, const char* name, void (*task)(void*), void* data, const Access* accesses, size_t count);
  int (*host_view)(uint64_t start, uint64_t bytes, void** view);
};

std::atomic<const Table*> table{nullptr};

const Table& extension() {
  const Table* found = table.load(std::memory_order_acquire);
  TORCH_CHECK(found != nullptr, "the CUDA driver is not Freehold's software driver");
  return *found;
}

void check(int code, const char* name, const char* what) {
  TORCH_CHECK(code == 0, name, ": the software device refused to ", what, " (CUDA error ", code, ")");
}

}  // namespace

bool find_device() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) {
    return false;
  }
  using ProcAddress = int (*)(const char*, void**, int, uint64_t, void*);
  auto lookup = reinterpret_cast<ProcAddress>(dlsym(driver, "cuGetProcAddress_v2"));
  void* entry = nullptr;
  if (lookup == nullptr || lookup("freeholdExtension", &entry, 12000, 0, nullptr) == NOT_FOUND || entry == nullptr) {
    return false;
  }
  table.store(reinterpret_cast<const Table* (*)(uint32_t)>(entry)(VERSION), std::memory_order_release);
  return table.load() != nullptr;
}

void* host_view(const void* start, uint64_t bytes) {
  void* view = nullptr;
  int code = extension().host_view(reinterpret_cast<uint64_t>(start), bytes, &view);
  check(code, "freehold", "show the memory of a tensor");
  return view;
}

void launch(
    c10::cuda::CUDAStream stream,
    const char* name,
    void (*task)(void*),
    void* data,
    c10::ArrayRef<Access> accesses) {
  void* handle = stream.stream();
  check(extension().launch_host(handle, name, task, data, accesses.data(), accesses.size()), name, "run it");
}

}  // namespace freehold
