// Measures one allocator and prints what was measured as JSON. A process has one allocator, so that none finds the
// device's memory full of another's.
//
//     peers ALLOCATOR [WORKLOAD.ops ...]
#include "measure.h"

#include <cstdio>
#include <iostream>
#include <sstream>
#include <thread>

namespace {

struct Peer {
  const char *name;
  std::unique_ptr<Allocator> (*open)();
};

constexpr Peer PEERS[] = {
    {"freehold", open_freehold},
#ifdef WITH_TORCH
    {"torch", open_torch},
    {"torch-expandable", open_torch_expandable},
#endif
#ifdef WITH_RMM
    {"rmm-pool", open_rmm_pool},
    {"rmm-arena", open_rmm_arena},
#endif
    {"cuda-malloc-async", open_cuda_malloc_async},
    {"cuda-malloc", open_cuda_malloc},
};

constexpr size_t THREADS = 16;

std::string quoted(const std::string &text) {
  std::string out = "\"";
  for (const char c : text) {
    char escaped[7];
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

void print(const Figure &figure, std::ostream &out) {
  out << "{\"workload\": " << quoted(figure.workload) << ", \"unit\": " << quoted(figure.unit) << ", \"samples\": [";
  for (size_t at = 0; at < figure.samples.size(); at += 1) out << (at == 0 ? "" : ", ") << figure.samples[at];
  out << "]";
  if (figure.cold) out << ", \"cold\": " << *figure.cold;
  if (figure.peak_live_bytes) out << ", \"peak_live_bytes\": " << *figure.peak_live_bytes;
  if (figure.reserved_bytes) out << ", \"reserved_bytes\": " << *figure.reserved_bytes;
  if (!figure.failure.empty()) out << ", \"failure\": " << quoted(figure.failure);
  out << "}";
}

std::vector<Figure> measure(Allocator &allocator, const std::vector<Workload> &workloads) {
  std::vector<Figure> figures;
  for (const size_t bytes : {size_t{512}, size_t{64} << 10, size_t{2} << 20, size_t{20} << 20}) {
    figures.push_back(pairs(allocator, bytes));
  }
  figures.push_back(threads(allocator, 1, Sharing::OwnStreams));
  figures.push_back(threads(allocator, THREADS, Sharing::OwnStreams));
  figures.push_back(threads(allocator, THREADS, Sharing::OneStream));
  figures.push_back(handed_over(allocator, THREADS));
  for (const Workload &workload : workloads) figures.push_back(replay(allocator, workload));
  return figures;
}

void report(const Peer &peer, const std::vector<Workload> &workloads) {
  cudaDeviceProp device{};
  must(cudaSetDevice(DEVICE), "cudaSetDevice");
  must(cudaGetDeviceProperties(&device, DEVICE), "cudaGetDeviceProperties");
  // The context is made before anything is measured.
  must(cudaFree(nullptr), "cudaFree");
  const std::unique_ptr<Allocator> allocator = peer.open();
  const std::vector<Figure> figures = measure(*allocator, workloads);
  // Nothing is printed of a measurement that broke off.
  std::ostringstream out;
  out << "{\"allocator\": " << quoted(peer.name) << ", \"version\": " << quoted(allocator->version())
      << ", \"device\": " << quoted(device.name) << ", \"cpu_threads\": " << std::thread::hardware_concurrency()
      << ",\n \"figures\": [\n  ";
  for (size_t at = 0; at < figures.size(); at += 1) {
    if (at > 0) out << ",\n  ";
    print(figures[at], out);
  }
  out << "\n ]}\n";
  std::cout << out.str() << std::flush;
}

const Peer *find(const std::string &name) {
  for (const Peer &peer : PEERS) {
    if (name == peer.name) return &peer;
  }
  return nullptr;
}

}  // namespace

int main(int argument_count, char **arguments) {
  const Peer *peer = argument_count < 2 ? nullptr : find(arguments[1]);
  if (peer == nullptr) {
    std::cerr << "name an allocator that this was built with:";
    for (const Peer &known : PEERS) std::cerr << ' ' << known.name;
    std::cerr << '\n';
    return 2;
  }
  std::vector<Workload> workloads;
  try {
    for (int at = 2; at < argument_count; at += 1) workloads.push_back(read_workload(arguments[at]));
  } catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
  try {
    report(*peer, workloads);
  } catch (const std::exception &error) {
    std::cerr << peer->name << ": " << reason(error) << '\n';
    return 1;
  }
  return 0;
}
