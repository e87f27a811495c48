// Operators that are more than a task with the CPU's kernel.
#pragma once

#include <torch/library.h>

#include <string>
#include <unordered_map>

#include "operators_task.h"

namespace freehold {

using Implementations = std::unordered_map<std::string, Implementation>;

const Implementations& attention_implementations();
const Implementations& batch_norm_implementations();
const Implementations& cell_implementations();
const Implementations& norm_implementations();

// Returns how an operator is computed that the CPU has no kernel for; null if it has one.
Implementation special_implementation(const std::string& name);

// Returns whether a task computes an operator that PyTorch has one function for on all devices: it calls
// kernels past the dispatcher, or takes the operator apart into ones that the CPU lacks.
bool is_added(const std::string& name);

// Returns whether `register_special` registers an operator itself.
bool is_special(const std::string& name);

void register_special(torch::Library& library);

}  // namespace freehold
