// The shapes of an operator's results, which are needed before its task has run.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "operators_task.h"

namespace freehold {

struct Shape {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  at::ScalarType dtype;
};

// A result: a tensor, which may be undefined, or a list of tensors, or a number.
struct ResultShape {
  bool is_list;
  std::vector<std::optional<Shape>> tensors;
  // None unless it is a number.
  c10::IValue number;
};

// What an operator does to the shapes of its arguments.
struct Shapes {
  // Empty for a result that is one of the arguments.
  std::vector<ResultShape> results;
  // The arguments `out` that get another shape, by index.
  std::vector<std::pair<size_t, Shape>> resized;
};

// The shapes of one operator, each found once.
class ShapeCache {
 public:
  // Returns the shapes for arguments of the device. Wrong arguments are an error.
  std::shared_ptr<const Shapes> find(
      const c10::OperatorHandle& op,
      Implementation implementation,
      c10::ArrayRef<c10::IValue> arguments);

 private:
  std::mutex lock_;
  std::unordered_map<std::string, std::shared_ptr<const Shapes>> known_;
};

}  // namespace freehold
