#include "operators_special.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout.h>
#include <c10/cuda/CUDAGuard.h>

#include <unordered_map>

namespace freehold {

namespace {

using torch::jit::Stack;

void native_dropout(Stack& stack, const std::optional<at::Generator>& generator) {
  at::Tensor input = stack[0].toTensor();
  double p = stack[1].toDouble();
  bool is_training = stack[2].isNone() || stack[2].toBool();
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  at::Tensor output;
  if (!is_training) {
    mask.fill_(true);
    output = input.clone();
  } else {
    mask.bernoulli_(1 - p, generator);
    double scale = p == 1 ? 0 : 1 / (1 - p);
    output = input.mul(mask).mul_(scale);
  }
  stack = {output, mask};
}

// Copies between tensors of one device as a task; whole blocks of memory are the driver's to copy.
at::Tensor& copy_within(at::Tensor& self, const at::Tensor& source) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  c10::cuda::CUDAGuard guard(self.device());
  at::Tensor from = source.expand_as(self);
  auto task = std::make_unique<Task>(op);
  append_access(task->accesses, from, READ);
  append_access(task->accesses, self, WRITE);
  task->arguments = {cpu_view(self), cpu_view(from), false};
  task->outputs.emplace_back();
  submit(c10::cuda::getCurrentCUDAStream(self.device().index()), std::move(task));
  return self;
}

bool is_plain_copy(const at::Tensor& self, const at::Tensor& source) {
  return self.scalar_type() == source.scalar_type() && self.is_contiguous() && source.is_contiguous() &&
      self.sizes() == source.sizes() && self.is_conj() == source.is_conj() && self.is_neg() == source.is_neg();
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  throw_error_of_task();
  bool is_strided = self.layout() == at::kStrided && source.layout() == at::kStrided;
  bool is_cuda = self.is_cuda() && source.is_cuda();
  if (!is_strided || !is_cuda || is_plain_copy(self, source) || self.is_same(source)) {
    at::native::copy_(self, source, non_blocking);
    if (!self.is_cuda() && !non_blocking) {
      // The copy has waited for the tasks before it.
      throw_error_of_task();
    }
    return self;
  }
  if (self.device() == source.device()) {
    return copy_within(self, source);
  }
  // Another device is reached by whole blocks only.
  at::Tensor sent = source.to(self.scalar_type()).expand_as(self).contiguous().resolve_conj().resolve_neg();
  at::Tensor received = at::empty_like(self, at::MemoryFormat::Contiguous);
  at::native::copy_(received, sent, non_blocking);
  return copy_within(self, received);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  at::Tensor read = self.to(at::kCPU);
  throw_error_of_task();
  return at::_local_scalar_dense(read);
}

}  // namespace

Implementation special_implementation(const std::string& name) {
  static const std::unordered_map<std::string, Implementation> implementations = {
      {"aten::native_dropout", native_dropout},
  };
  auto found = implementations.find(name);
  return found == implementations.end() ? nullptr : found->second;
}

bool is_added(const std::string& name) {
  return name == "aten::convolution" || name == "aten::convolution_backward";
}

bool is_special(const std::string& name) {
  return name == "aten::copy_" || name == "aten::_local_scalar_dense";
}

void register_special(torch::Library& library) {
  library.impl("copy_", copy_);
  library.impl("_local_scalar_dense", local_scalar_dense);
}

}  // namespace freehold
