#include "compiler/graph/ops/registry.h"

#include <string>
#include <unordered_map>

namespace diapason {
namespace ops {
std::vector<Operator> Quantize();
}
namespace {

// Built on first use and never destroyed: operators are asked for until the process ends.
const std::vector<Operator>& Table() {
  static const std::vector<Operator>& table = *[] {
    auto* all = new std::vector<Operator>;
    for (auto group :
         {ops::BatchNorm, ops::Binary,        ops::Bits,      ops::Cast,          ops::Concat,  ops::Conv2d,
          ops::Conv3d,    ops::ConvTranspose, ops::Expand,    ops::Fold,          ops::Gather,  ops::GatherNd,
          ops::Gemm,      ops::Matmul,        ops::Narrow,    ops::Normalize,     ops::Pad,     ops::Pool,
          ops::Pool3d,    ops::Quantize,      ops::Reduce,    ops::ImageSampling, ops::RunSums, ops::SelectAlong,
          ops::Slice,     ops::Softmax,       ops::Transpose, ops::Unary,         ops::View,    ops::Where}) {
      for (const Operator& op : group()) all->push_back(op);
    }
    return all;
  }();
  return table;
}

}  // namespace

const Operator* FindOperator(const std::string& name) {
  static const auto& index = *[] {
    auto* map = new std::unordered_map<std::string, const Operator*>;
    for (const Operator& op : Table()) map->emplace(op.name, &op);
    return map;
  }();
  auto it = index.find(name);
  return it == index.end() ? nullptr : it->second;
}

std::vector<std::string> OperatorNames() {
  std::vector<std::string> names;
  for (const Operator& op : Table()) names.push_back(op.name);
  return names;
}

}  // namespace diapason
