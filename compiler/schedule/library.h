// Which part of a dag a library can compute: its convolution or product, with the padding before it and the bias,
// residual and relu behind it where one call takes them. The rest of the dag stays with generated kernels.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/library_call.h"

namespace diapason {

struct LibraryMatch {
  LibraryCall call;           // algorithm 0
  int anchor = -1;            // the stage of the convolution or product
  int last = -1;              // the stage whose tensor the call writes: the anchor, or one behind it
  std::vector<int> operands;  // stages that the call reads, in order of LibraryCall::Operands
  // Stages that the call computes on its way and that get no memory: a padding, the anchor and what follows it up to
  // `last`.
  std::vector<int> covered;
  // w lies in memory as [kernel_h, kernel_w, channels, filters] and is wanted as [filters, kernel_h, kernel_w,
  // channels].
  bool repack_weights = false;
  // `last` is in float32, and the call stores it as float16 (cuDNN knows no mixture).
  bool narrow = false;
};

// `stages` are those of a dag or of a fresh schedule state, by id. With `fused`, the call takes as much of what follows
// the anchor as it can; InvalidArgument if it can take nothing. Without, it computes the anchor alone.
//   kCudnn   2-D convolutions in float32 and float16, NCHW with weights [o, i, h, w] or NHWC with [h, w, i, o],
//            with strides, padding, dilation and groups. The call pads itself where zeros are the same on both sides.
//            Fused: bias, then or before it one residual of the result's shape, then a relu, each optional but the
//            bias.
//   kCublas  products of two tensors in float32 or float16 whose elements are those of matrices: dense layers of any
//            transposition, batched products, 1x1 convolutions of stride 1. Never fused.
// InvalidArgument, saying why, for all others.
absl::StatusOr<LibraryMatch> MatchLibrary(absl::Span<const Stage* const> stages, const std::vector<int>& outputs,
                                          Library library, bool fused);
absl::StatusOr<LibraryMatch> MatchLibrary(const ComputeDag& dag, Library library, bool fused);

// cuDNN's algorithms that may work for a convolution, the most promising first. Which of them do, the library tells
// when it is called.
std::vector<int> AlgorithmsOf(const LibraryCall& call);

}  // namespace diapason
