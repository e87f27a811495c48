// Freehold through its C interface, loaded as PyTorch loads it.
#include "allocator.h"

#include <dlfcn.h>
#include <sys/types.h>

#include <cstdlib>

namespace {

class Freehold final : public Allocator {
 public:
  explicit Freehold(const char *path) : path_(path), library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    find(alloc_, "freehold_alloc");
    find(free_, "freehold_free");
    find(record_use_, "freehold_record_use");
    find(reserved_bytes_, "freehold_reserved_bytes");
    find(trim_, "freehold_trim");
    find(last_error_, "freehold_last_error");
    // Nothing is captured here: without the promise each call asks the driver whether its stream is capturing.
    void (*announce_captures)();
    find(announce_captures, "freehold_announce_captures");
    announce_captures();
  }
  void *allocate(size_t bytes, cudaStream_t stream) override {
    void *start = alloc_(static_cast<ssize_t>(bytes), DEVICE, stream);
    if (start == nullptr) fail("freehold_alloc");
    return start;
  }
  void release(void *start, size_t bytes, cudaStream_t stream) override {
    free_(start, static_cast<ssize_t>(bytes), DEVICE, stream);
  }
  void use(void *start, cudaStream_t, cudaStream_t stream) override { record_use_(start, stream); }
  std::optional<size_t> reserved_bytes() override { return reserved_bytes_(DEVICE); }
  void trim() override {
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    if (trim_(DEVICE, 0) != 0) fail("freehold_trim");
  }
  std::string version() override { return ""; }

 private:
  template <class Function>
  void find(Function &function, const char *name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(path_ + " has no " + name + ": build it from this repository");
  }
  [[noreturn]] void fail(const char *call) {
    const char *why = last_error_();
    throw std::runtime_error(std::string(call) + ": " + (why == nullptr ? "no reason was given" : why));
  }

  std::string path_;
  // Never closed: the blocks' memory is the library's until the process ends.
  void *library_;
  void *(*alloc_)(ssize_t, int, cudaStream_t);
  void (*free_)(void *, ssize_t, int, cudaStream_t);
  void (*record_use_)(void *, cudaStream_t);
  size_t (*reserved_bytes_)(int);
  int (*trim_)(int, size_t);
  const char *(*last_error_)();
};

}  // namespace

std::unique_ptr<Allocator> open_freehold() {
  const char *path = std::getenv("FREEHOLD_LIBRARY");
  if (path == nullptr) throw std::runtime_error("set FREEHOLD_LIBRARY to the path of libfreehold.so");
  return std::make_unique<Freehold>(path);
}
