// What matching of library calls asks of a dag's stages (compiler/schedule/library.h).
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

// The stages of a dag with one sum of products of two tensors, the anchor. Borrows the stages. Immutable.
class LibraryParts {
 public:
  // InvalidArgument when there is not exactly one reduction, or it is no sum of products of two different tensors.
  static absl::StatusOr<LibraryParts> Create(absl::Span<const Stage* const> stages, const std::vector<int>& outputs);
  // The same with the two tensors exchanged.
  LibraryParts Swapped() const;

  const Stage& stage(int id) const { return *stages_[id]; }
  bool is_output(int id) const;
  int anchor() const { return anchor_; }
  // Loads of the two tensors in the anchor's body, casts to the type of the sum left out.
  const ExprNode* a() const { return a_; }
  const ExprNode* b() const { return b_; }
  // The one stage that reads `id`, if that is no output; else -1.
  int SoleConsumer(int id) const;

  // The index is the axis' variable, or 0 along an axis of extent 1.
  bool IsAxis(const Expr& index, const Axis& axis) const;
  // Place of the element in its tensor as a sum over variables; nothing if it is no such sum. Axes of extent 1 are left
  // out.
  std::optional<Affine> FlatIndex(const ExprNode& load, const Stage& reader) const;

  // Zeros around a tensor.
  struct Padding {
    int source = -1;
    std::vector<int64_t> before;  // by dimension
  };
  std::optional<Padding> PaddingOf(int id) const;

  // Stage `id` is max(stage `of`, 0), or a cast of it, point by point.
  bool IsRelu(int id, int of) const;
  bool IsCast(int id, int of) const;
  // Stage `id` adds an element of one other tensor to each of stage `of`: which, else -1.
  int AddedTo(int id, int of) const;
  // That tensor is a vector along the dimension, or of the same shape.
  bool AddsAlong(int id, int added, int dimension) const;
  bool AddsPointwise(int id, int added) const;

 private:
  LibraryParts() = default;
  const ExprNode* LoadOf(const Expr& e) const;
  bool ReadsPointwise(const Expr& e, int id, int of) const;
  const ExprNode* AddedLoad(int id, int of) const;
  std::optional<Affine> Place(int id, int of) const;

  std::vector<const Stage*> stages_;
  std::vector<int> outputs_;
  int anchor_ = -1;
  const ExprNode *a_ = nullptr, *b_ = nullptr;
};

}  // namespace diapason
