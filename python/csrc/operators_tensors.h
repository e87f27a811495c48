// Tensors of the device as a task and as the search for shapes see them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <vector>

#include "operators_device.h"

namespace freehold {

// Returns a tensor of the CPU over the memory of a tensor of the device, which only a task may access.
at::Tensor cpu_view(const at::Tensor& tensor);

// Copies what is not part of the shape but changes what an operator computes.
void copy_flags(const at::Tensor& from, const at::Tensor& to);

// Adds the memory that a tensor of the device occupies: its rows, or if they are many, all from its first element to its last.
void append_access(std::vector<Access>& accesses, const at::Tensor& tensor, uint32_t kind);

// Calls `visit` for each defined tensor of an argument, also within lists.
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);

using TensorMap = std::function<at::Tensor(const at::Tensor&)>;

// Returns an argument with each defined tensor replaced, also within lists.
c10::IValue map_tensors(const c10::IValue& value, const TensorMap& map);

// Returns a map that replaces a tensor by the same one each time: operators tell a tensor that is both read and written by
// its identity.
TensorMap once_each(TensorMap map);

}  // namespace freehold
