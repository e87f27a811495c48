#include "allocator_socket.h"

#include <c10/util/Exception.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <thread>

namespace freehold_torch {

namespace {

// Linux takes at most 253 descriptors in a message.
constexpr size_t kDescriptorsMax = 200;
constexpr int kTimeoutSeconds = 30;

struct Header {
  uint64_t offset;
  uint64_t chunks;
  uint64_t error_bytes;
};

// An address in the abstract name space, which needs no file.
socklen_t address_of(const std::string &name, sockaddr_un &address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool send_all(int socket, const void *data, size_t bytes) {
  const auto *next = static_cast<const char *>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, next, bytes, MSG_NOSIGNAL);
    if (sent <= 0 && errno != EINTR) {
      return false;
    }
    next += std::max<ssize_t>(sent, 0);
    bytes -= static_cast<size_t>(std::max<ssize_t>(sent, 0));
  }
  return true;
}

bool receive_all(int socket, void *data, size_t bytes) {
  auto *next = static_cast<char *>(data);
  while (bytes > 0) {
    const ssize_t received = recv(socket, next, bytes, MSG_WAITALL);
    if (received == 0 || (received < 0 && errno != EINTR)) {
      return false;
    }
    next += std::max<ssize_t>(received, 0);
    bytes -= static_cast<size_t>(std::max<ssize_t>(received, 0));
  }
  return true;
}

// A message of sizes, with a descriptor for each.
struct Batch {
  explicit Batch(size_t count) : sizes(count), control(CMSG_SPACE(count * sizeof(int))) {
    io.iov_base = sizes.data();
    io.iov_len = count * sizeof(uint64_t);
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  Batch(const Batch &) = delete;
  Batch &operator=(const Batch &) = delete;

  std::vector<uint64_t> sizes;
  std::vector<char> control;
  iovec io{};
  msghdr message{};
};

bool send_chunks(int socket, const std::vector<ReceivedChunk> &chunks) {
  for (size_t first = 0; first < chunks.size(); first += kDescriptorsMax) {
    const size_t count = std::min(kDescriptorsMax, chunks.size() - first);
    Batch batch(count);
    cmsghdr *const header = CMSG_FIRSTHDR(&batch.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    auto *const descriptors = reinterpret_cast<int *>(CMSG_DATA(header));
    for (size_t index = 0; index < count; ++index) {
      batch.sizes[index] = chunks[first + index].size;
      descriptors[index] = chunks[first + index].descriptor.get();
    }
    if (sendmsg(socket, &batch.message, MSG_NOSIGNAL) != static_cast<ssize_t>(batch.io.iov_len)) {
      return false;
    }
  }
  return true;
}

bool receive_chunks(int socket, size_t total, std::vector<ReceivedChunk> &chunks) {
  while (chunks.size() < total) {
    Batch batch(std::min(kDescriptorsMax, total - chunks.size()));
    const ssize_t received = recvmsg(socket, &batch.message, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    const cmsghdr *const header = CMSG_FIRSTHDR(&batch.message);
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
      return false;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const auto *const descriptors = reinterpret_cast<const int *>(CMSG_DATA(header));
    for (size_t index = 0; index < count; ++index) {
      chunks.push_back({batch.sizes[index], Descriptor(descriptors[index])});
    }
    if (count != batch.sizes.size() || received != static_cast<ssize_t>(batch.io.iov_len)) {
      return false;
    }
  }
  return true;
}

bool is_same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == getuid() || peer.uid == 0);
}

void set_timeouts(int socket) {
  const timeval timeout{kTimeoutSeconds, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

void serve_one(int socket, Answer (*answer)(const Request &)) {
  set_timeouts(socket);
  Request request{};
  if (!is_same_user(socket) || !receive_all(socket, &request, sizeof request)) {
    return;
  }
  const Answer sent = answer(request);
  const Header header{sent.offset, sent.chunks.size(), sent.error.size()};
  // A process that went away gets no answer, and needs none.
  if (send_all(socket, &header, sizeof header) && send_all(socket, sent.error.data(), sent.error.size())) {
    send_chunks(socket, sent.chunks);
  }
}

std::string listen_for(Answer (*answer)(const Request &)) {
  std::random_device random;
  const std::string name = "freehold-torch-" + std::to_string(getpid()) + "-" + std::to_string(random());
  sockaddr_un address{};
  const socklen_t length = address_of(name, address);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  TORCH_CHECK(
      listener >= 0 && bind(listener, reinterpret_cast<sockaddr *>(&address), length) == 0 && listen(listener, 64) == 0,
      "Freehold: no Unix socket can be made, over which tensors are shared: ",
      std::strerror(errno));
  std::thread([listener, answer] {
    while (true) {
      const Descriptor client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      if (client.get() >= 0) {
        serve_one(client.get(), answer);
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;
      }
    }
  }).detach();
  return name;
}

} // namespace

const std::string &serve(Answer (*answer)(const Request &)) {
  static const std::string name = listen_for(answer);
  return name;
}

Answer ask(const std::string &name, const Request &request) {
  Answer received;
  sockaddr_un address{};
  const socklen_t length = address_of(name, address);
  const Descriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set_timeouts(connection.get());
  if (connect(connection.get(), reinterpret_cast<sockaddr *>(&address), length) != 0) {
    received.error = "the process that shared it has ended, or is in another network name space";
    return received;
  }
  Header header{};
  bool is_whole = send_all(connection.get(), &request, sizeof request) &&
      receive_all(connection.get(), &header, sizeof header) && header.error_bytes < 4096;
  if (is_whole) {
    received.error.resize(header.error_bytes);
    received.offset = header.offset;
    is_whole = receive_all(connection.get(), received.error.data(), header.error_bytes) &&
        receive_chunks(connection.get(), header.chunks, received.chunks);
  }
  if (!is_whole) {
    received.error = "the process that shared it did not answer";
  }
  return received;
}

} // namespace freehold_torch
