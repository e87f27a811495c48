#include "operators_special.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>

#include <unordered_set>

namespace freehold {

namespace {

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

// One of the lists may be of the CPU.
void foreach_copy_(at::TensorList self, at::TensorList source, bool non_blocking) {
  TORCH_CHECK(
      self.size() == source.size(),
      "Tensor lists must have the same number of tensors, got ",
      self.size(),
      " and ",
      source.size());
  for (size_t index = 0; index < self.size(); ++index) {
    self[index].copy_(source[index], non_blocking);
  }
}

// cuDNN and MIOpen are machine code: these say that an operator does not use them.
bool cudnn_is_acceptable(const at::Tensor&) {
  return false;
}

bool use_ctc_loss_of_library(const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef, int64_t) {
  return false;
}

bool use_ctc_loss_of_library_by_tensors(
    const at::Tensor&,
    const at::Tensor&,
    const at::Tensor&,
    const at::Tensor&,
    int64_t) {
  return false;
}

void enqueue_assertion(const c10::OperatorHandle& op, const at::Tensor& self, std::vector<c10::IValue> others) {
  throw_error_of_task();
  TORCH_CHECK(self.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(self.numel() == 1, "Boolean value of Tensor with more than one value is ambiguous");
  c10::cuda::CUDAGuard guard(self.device());
  auto task = std::make_unique<Task>(op);
  append_access(task->accesses, self, READ);
  task->arguments = {cpu_view(self)};
  task->arguments.insert(task->arguments.end(), others.begin(), others.end());
  submit(c10::cuda::getCurrentCUDAStream(self.device().index()), std::move(task));
}

// Sizes are checked at once, the value when the stream comes to it.
void assert_async(const at::Tensor& self) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_assert_async", "");
  enqueue_assertion(op, self, {});
}

void assert_async_with_message(const at::Tensor& self, c10::string_view message) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_assert_async", "msg");
  enqueue_assertion(op, self, {std::string(message)});
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  at::Tensor read = self.to(at::kCPU);
  throw_error_of_task();
  return at::_local_scalar_dense(read);
}

}  // namespace

Implementation special_implementation(const std::string& name) {
  for (const Implementations* each :
       {&attention_implementations(), &batch_norm_implementations(), &cell_implementations(), &norm_implementations()}) {
    auto found = each->find(name);
    if (found != each->end()) {
      return found->second;
    }
  }
  return nullptr;
}

bool is_added(const std::string& name) {
  return name == "aten::convolution" || name == "aten::convolution_backward" || name == "aten::conj_physical_";
}

bool is_special(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::copy_",
      "aten::_foreach_copy_",
      "aten::_assert_async",
      "aten::_assert_async.msg",
      "aten::_local_scalar_dense",
      "aten::cudnn_is_acceptable",
      "aten::_use_cudnn_ctc_loss",
      "aten::_use_cudnn_ctc_loss.Tensor",
      "aten::_use_miopen_ctc_loss",
      "aten::_use_miopen_ctc_loss.Tensor",
  };
  return names.count(name) != 0;
}

void register_special(torch::Library& library) {
  library.impl("copy_", copy_);
  library.impl("_foreach_copy_", foreach_copy_);
  library.impl("_assert_async", assert_async);
  library.impl("_assert_async.msg", assert_async_with_message);
  library.impl("cudnn_is_acceptable", cudnn_is_acceptable);
  for (const char* name : {"_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"}) {
    library.impl(name, use_ctc_loss_of_library);
    library.impl((std::string(name) + ".Tensor").c_str(), use_ctc_loss_of_library_by_tensors);
  }
  library.impl("_local_scalar_dense", local_scalar_dense);
}

}  // namespace freehold
