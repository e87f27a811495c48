#include "operators_tensors.h"

#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <unordered_map>

namespace freehold {

namespace {

// The most rows that are listed one by one; beyond, a tensor is one range.
constexpr uint64_t ROWS_MAX = 256;

// Returns how many bytes lie between the first element and the end of the last one.
uint64_t extent_bytes(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return 0;
  }
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return static_cast<uint64_t>(last + 1) * tensor.itemsize();
}

// A tensor that is not contiguous, as rows that are.
struct Rows {
  // How many elements a row has.
  uint64_t inner;
  // The sizes and strides of the dimensions in which the rows lie.
  std::vector<std::pair<uint64_t, uint64_t>> outer;
};

Rows rows_of(const at::Tensor& tensor) {
  std::vector<std::pair<uint64_t, uint64_t>> dims;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    // An expanded dimension repeats the same elements.
    if (tensor.size(dim) > 1 && tensor.stride(dim) != 0) {
      dims.emplace_back(tensor.stride(dim), tensor.size(dim));
    }
  }
  std::sort(dims.begin(), dims.end());
  Rows rows{1, {}};
  for (const auto& [stride, size] : dims) {
    if (rows.outer.empty() && stride == rows.inner) {
      rows.inner *= size;
    } else {
      rows.outer.emplace_back(size, stride);
    }
  }
  return rows;
}

}  // namespace

at::Tensor cpu_view(const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == at::kStrided && !tensor.is_quantized(),
      "the software device runs no operators on sparse and quantized tensors");
  uint64_t bytes = extent_bytes(tensor);
  void* view = bytes == 0 ? nullptr : host_view(tensor.const_data_ptr(), bytes);
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(view, at::kCPU), /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  copy_flags(tensor, made);
  return made;
}

void copy_flags(const at::Tensor& from, const at::Tensor& to) {
  if (from.is_conj()) {
    to._set_conj(true);
  }
  if (from.is_neg()) {
    to._set_neg(true);
  }
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) {
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
}

void append_access(std::vector<Access>& accesses, const at::Tensor& tensor, uint32_t kind) {
  uint64_t bytes = extent_bytes(tensor);
  if (bytes == 0) {
    return;
  }
  uint64_t start = reinterpret_cast<uint64_t>(tensor.const_data_ptr());
  if (tensor.is_non_overlapping_and_dense()) {
    accesses.push_back({start, bytes, kind, 0});
    return;
  }
  Rows rows = rows_of(tensor);
  uint64_t count = 1;
  for (const auto& [size, stride] : rows.outer) {
    count *= size;
  }
  if (count > ROWS_MAX) {
    accesses.push_back({start, bytes, kind, 0});
    return;
  }
  for (uint64_t row = 0; row < count; ++row) {
    uint64_t rest = row, offset = 0;
    for (const auto& [size, stride] : rows.outer) {
      offset += rest % size * stride;
      rest /= size;
    }
    accesses.push_back({start + offset * tensor.itemsize(), rows.inner * tensor.itemsize(), kind, 0});
  }
}

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      for_each_tensor(element, visit);
    }
  }
}

c10::IValue map_tensors(const c10::IValue& value, const TensorMap& map) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? c10::IValue(map(value.toTensor())) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& element : value.toTensorVector()) {
      mapped.push_back(element.defined() ? map(element) : element);
    }
    return mapped;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const std::optional<at::Tensor>& element : value.toOptionalTensorVector()) {
      bool is_mapped = element.has_value() && element->defined();
      mapped.push_back(is_mapped ? std::optional(map(*element)) : element);
    }
    return mapped;
  }
  return value;
}

TensorMap once_each(TensorMap map) {
  using Known = std::unordered_map<const c10::TensorImpl*, at::Tensor>;
  return [map = std::move(map), known = std::make_shared<Known>()](const at::Tensor& tensor) {
    auto found = known->find(tensor.unsafeGetTensorImpl());
    if (found == known->end()) {
      found = known->emplace(tensor.unsafeGetTensorImpl(), map(tensor)).first;
    }
    return found->second;
  };
}

}  // namespace freehold
