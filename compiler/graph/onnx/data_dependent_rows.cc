#include "compiler/graph/onnx/data_dependent_rows.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/graph/onnx/input_shapes.h"

namespace diapason {

std::string DataDependentRows::Symbol() const { return RowsSymbol(node_); }

bool DataDependentRows::IsUnbounded() const { return !state_.dims.contains(Symbol()); }

void DataDependentRows::SetCount(ImportValue count) { state_.counts[Symbol()] = std::move(count); }

absl::StatusOr<int64_t> DataDependentRows::Capacity(const std::string& what) const {
  if (state_.counts.contains(Symbol()))
    return absl::InvalidArgumentError(
        absl::StrCat("how many ", what, " is known only when the network runs, which is not supported in a loop"));
  const auto given = state_.dims.find(Symbol());
  if (given == state_.dims.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "how many ", what, " is known only when the network runs: say how many its result has room for with ",
        DimFlag(Symbol())));
  }
  if (given->second >= 1) return given->second;
  return absl::InvalidArgumentError(absl::StrCat("its result cannot have room for ", given->second));
}

int64_t DataDependentRows::Taken() const {
  const auto taken = state_.rows_taken.find(Symbol());
  return taken != state_.rows_taken.end() ? taken->second : state_.dims.at(Symbol());
}

FoundRowsPtr DataDependentRows::Flagged(const absl::Status& no_capacity, const ImportValue& source,
                                        ImportValue flags) const {
  FoundRows rows;
  rows.capacity = flags->type.elements();
  rows.flags = std::move(flags);
  rows.flag = DimFlag(Symbol());
  rows.wanted = std::string(no_capacity.message());
  rows.key = absl::StrCat(node_.op, " ", reinterpret_cast<uintptr_t>(source.get()));
  rows.source = source;
  return std::make_shared<const FoundRows>(std::move(rows));
}

FoundRowsPtr DataDependentRows::Bounded(ImportValue flags) const {
  FoundRows rows;
  rows.capacity = flags->type.elements();
  rows.flags = std::move(flags);
  rows.bound = Symbol();
  rows.flag = DimFlag(rows.bound);
  rows.key = absl::StrCat("bounded ", rows.bound);
  rows.first = true;
  return std::make_shared<const FoundRows>(std::move(rows));
}

}  // namespace diapason
