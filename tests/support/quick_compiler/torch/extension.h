// What DeepSpeed's ops use of torch's header of this name, which takes a compiler three times as long.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
namespace torch {
using namespace at;
constexpr auto kFloat32 = at::kFloat;
}  // namespace torch
