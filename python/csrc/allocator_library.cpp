#include "allocator_library.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

namespace freehold_torch {

Library library{};

namespace {

struct Loader {
  void *handle;
  std::string missing;

  template <typename Function>
  void find(Function &function, const char *name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr && missing.empty()) {
      missing = name;
    }
  }
};

} // namespace

std::string load_library(const char *path) {
  Loader loader{dlopen(path, RTLD_NOW | RTLD_LOCAL), ""};
  if (loader.handle == nullptr) {
    return dlerror();
  }
  loader.find(library.alloc, "freehold_alloc");
  loader.find(library.try_free, "freehold_try_free");
  loader.find(library.free_after_all, "freehold_free_after_all");
  loader.find(library.record_use, "freehold_record_use");
  loader.find(library.announce_captures, "freehold_announce_captures");
  loader.find(library.pool_begin, "freehold_pool_begin");
  loader.find(library.pool_end, "freehold_pool_end");
  loader.find(library.reserved_bytes, "freehold_reserved_bytes");
  loader.find(library.live_bytes, "freehold_live_bytes");
  loader.find(library.trim, "freehold_trim");
  loader.find(library.set_budget, "freehold_set_budget");
  loader.find(library.segments, "freehold_segments");
  loader.find(library.make_exportable, "freehold_make_exportable");
  loader.find(library.export_block, "freehold_export");
  loader.find(library.set_peers, "freehold_set_peers");
  loader.find(library.last_error, "freehold_last_error");
  loader.find(library.last_error_code, "freehold_last_error_code");
  if (loader.missing.empty()) {
    return "";
  }
  return std::string(path) + " lacks " + loader.missing + ": install a freehold whose parts have one version";
}

void check(int code, const char *what) {
  TORCH_CHECK(code == 0, "Freehold: ", what, ": ", library.last_error());
}

} // namespace freehold_torch
