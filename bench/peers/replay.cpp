// Recorded lists of operations: reading them, and carrying them out.
#include "measure.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <unordered_map>
#include <utility>

namespace {

constexpr size_t PASSES_MAX = 9;
// A slow allocator gets fewer passes, but at least one.
constexpr double SECONDS_MAX = 3;

[[noreturn]] void refuse(const std::string &path, size_t line, const std::string &why) {
  throw std::runtime_error(path + " line " + std::to_string(line) + ": " + why);
}

// The blocks that live at one point of a text, by id.
class Reader {
 public:
  explicit Reader(const std::string &path) : path_(path) {}

  void read(const std::string &text, size_t line) {
    std::istringstream words(text);
    std::string kind;
    uint32_t id = 0, stream = 0;
    size_t bytes = 0;
    words >> kind >> id;
    if (kind == "a") words >> bytes;
    words >> stream;
    const bool is_known = kind == "a" || kind == "f" || kind == "u";
    if (!is_known || words.fail() || !(words >> std::ws).eof()) {
      refuse(path_, line, "say `a ID BYTES STREAM`, `f ID STREAM` or `u ID STREAM`");
    }
    workload_.streams = std::max(workload_.streams, stream + 1);
    if (kind == "a") return allocate(id, bytes, stream, line);
    const auto block = live_.find(id);
    if (block == live_.end()) refuse(path_, line, "block " + std::to_string(id) + " is not allocated here");
    const Op op = block->second;
    if (kind == "u") return workload_.ops.push_back({Op::Kind::Use, op.slot, stream, op.bytes});
    workload_.ops.push_back({Op::Kind::Free, op.slot, stream, op.bytes});
    live_bytes_ -= op.bytes;
    free_slots_.push_back(op.slot);
    live_.erase(block);
  }

  Workload end(std::string name) {
    if (!live_.empty()) throw std::runtime_error(path_ + ": a block is still allocated at the end: free every block");
    workload_.name = std::move(name);
    return std::move(workload_);
  }

 private:
  void allocate(uint32_t id, size_t bytes, uint32_t stream, size_t line) {
    if (bytes == 0) refuse(path_, line, "a block has 1 byte or more");
    uint32_t slot = workload_.slots;
    if (free_slots_.empty()) {
      workload_.slots += 1;
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    const Op op{Op::Kind::Allocate, slot, stream, bytes};
    if (!live_.emplace(id, op).second) refuse(path_, line, "block " + std::to_string(id) + " was allocated before");
    workload_.ops.push_back(op);
    live_bytes_ += bytes;
    workload_.peak_live_bytes = std::max(workload_.peak_live_bytes, live_bytes_);
  }

  const std::string &path_;
  Workload workload_;
  std::unordered_map<uint32_t, Op> live_;
  std::vector<uint32_t> free_slots_;
  size_t live_bytes_ = 0;
};

struct Block {
  void *start = nullptr;
  size_t bytes = 0;
  cudaStream_t home = nullptr;
};

// Nanoseconds for one operation. Blocks that are still live after a failure are left in `blocks`.
double pass(Allocator &allocator, const Workload &workload, const Streams &streams, std::vector<Block> &blocks) {
  const auto begin = std::chrono::steady_clock::now();
  for (const Op &op : workload.ops) {
    Block &block = blocks[op.slot];
    const cudaStream_t stream = streams[op.stream];
    switch (op.kind) {
      case Op::Kind::Allocate:
        block = {allocator.allocate(op.bytes, stream), op.bytes, stream};
        break;
      case Op::Kind::Free:
        allocator.release(std::exchange(block.start, nullptr), op.bytes, stream);
        break;
      case Op::Kind::Use:
        allocator.use(block.start, block.home, stream);
        break;
    }
  }
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / static_cast<double>(workload.ops.size());
}

}  // namespace

Workload read_workload(const std::string &path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  std::string text, name;
  Reader reader(path);
  for (size_t line = 1; std::getline(file, text); line += 1) {
    if (line == 1 && text.rfind("# ", 0) == 0) name = text.substr(2);
    if (name.empty()) refuse(path, 1, "a workload begins with its name, as in `# random-1m`");
    if (text.empty() || text[0] == '#') continue;
    reader.read(text, line);
  }
  Workload workload = reader.end(name);
  if (workload.ops.empty()) throw std::runtime_error(path + " has no operations");
  return workload;
}

Figure replay(Allocator &allocator, const Workload &workload) {
  Figure figure{.workload = workload.name, .unit = "ns/op", .peak_live_bytes = workload.peak_live_bytes};
  std::vector<Block> blocks(workload.slots);
  const Streams streams(workload.streams);
  try {
    figure.cold = pass(allocator, workload, streams, blocks);
    const auto begin = std::chrono::steady_clock::now();
    std::chrono::duration<double> taken{};
    while (figure.samples.size() < PASSES_MAX && taken.count() < SECONDS_MAX) {
      figure.samples.push_back(pass(allocator, workload, streams, blocks));
      taken = std::chrono::steady_clock::now() - begin;
    }
    figure.reserved_bytes = allocator.reserved_bytes();
  } catch (const std::exception &error) {
    figure.failure = reason(error);
    for (const Block &block : blocks) {
      if (block.start != nullptr) allocator.release(block.start, block.bytes, block.home);
    }
  }
  allocator.trim();
  return figure;
}
