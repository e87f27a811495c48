// A question to another process of this user, and its answer with descriptors, over a Unix socket.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace freehold_torch {

// A descriptor that is closed once.
class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  Descriptor(Descriptor &&other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

struct Request {
  uint64_t base;
  uint64_t token;
};

struct ReceivedChunk {
  size_t size;
  Descriptor descriptor;
};

struct Answer {
  // Empty if the request was granted.
  std::string error;
  // Where the block begins, from the beginning of the first chunk.
  uint64_t offset = 0;
  std::vector<ReceivedChunk> chunks;
};

// Answers requests of other processes of this user from now on, in a thread of its own. Returns the socket's name, which
// is the same in each call.
const std::string &serve(Answer (*answer)(const Request &));

// Sends a request to the process that serves a socket. A failure is in the answer.
Answer ask(const std::string &socket, const Request &request);

} // namespace freehold_torch
