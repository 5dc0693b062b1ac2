// Passes: rewrites of a network that keep its results (within rounding). One file each in compiler/graph/passes/. All
// keep Validate() true, the network's inputs and outputs (names, types, order), and are deterministic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/model.h"
#include "compiler/graph/network.h"

namespace diapason {

// Infers all types and shapes again, from inputs and constants on.
absl::Status InferShapes(Network& network);
// Replaces nodes whose inputs are all constants by their value. Data movements of large constants are done directly;
// arithmetic on more than a million elements is left to the kernels.
absl::Status FoldConstants(Network& network);
// Removes identities and operands that change nothing, turns transposed and scaled constant operands of gemm into plain
// ones, matmul by a constant matrix into gemm, zero padding into convolutions; merges transposes and reshapes in a row;
// puts a view that splits a slice's axis in front of the slice.
absl::Status Canonicalize(Network& network);
// Makes nodes with equal operators, attributes and inputs one, so that it does not matter whether an exporter writes
// what several layers need once or for each of them.
absl::Status MergeEqual(Network& network);
// Arithmetic that divides rows by the root of the mean of their squares, less their mean or not, becomes layer_norm and
// rms_norm along the last axis (recognize_norms.cc). What computed means and roots is left for EliminateDeadCode.
void RecognizeNorms(Network& network);
// batch_norm behind a conv2d, gemm with constant weights and no other reader: into weights and bias. Elsewhere: into
// a multiplication and an addition by constants.
absl::Status FoldBatchNorm(Network& network);
// Slices that take at most half of the places along an axis move in front of operators that compute each of these
// places from the same one of their inputs (products by rows, softmax, normalisations, element-wise operators and
// moves), where nobody reads the others: the last layer of a network of tokens that reads its class token alone is
// computed for that token. Whether anything changed; slices of constants and of slices remain.
bool DropUnreadRows(Network& network);
// Views behind a layer or RMS normalisation (group normalisation has them) move behind the element-wise operators that
// read them, so that these join its kernel.
absl::Status SinkViews(Network& network);
// Products of one tensor by several constant matrices, each of which a view divides into heads and a transposition
// reads (queries, keys and values of an attention), become one product and slices of it.
absl::Status MergeProjections(Network& network);
// Slices and transpositions in front of a product of an attention (one whose softmax alone another product reads, or
// that product) come again for it where others read their results too: they can then be part of the attention's kernel.
// So do concatenations of two tensors whose result a product of one row reads.
void RepeatMoves(Network& network);
// Layer and RMS normalizations of narrow floats whose readers are products by constant matrices and additions move
// behind these (defer_norms.cc), if they have up to `most_rows` rows (0: none). How many did; their nodes are left for
// EliminateDeadCode.
int DeferNorms(Network& network, int64_t most_rows);
// Removes nodes and constants that no output needs and numbers the rest anew, in the order they stand.
absl::Status EliminateDeadCode(Network& network);
// Gives four-dimensional activations between image operators the layout, with weights laid out anew and transposes only
// where a tensor crosses to operators (or network inputs and outputs) that depend on the other order.
absl::Status ConvertLayout(Network& network, Layout layout);

// What ConvertDoubles changes.
struct DoubleTensors {
  int64_t count = 0;
  std::string first, inputs,
      outputs;  // quoted names: of the first one, and of all inputs and outputs among them ("'x', 'y'")
};
DoubleTensors FindDoubles(const Network& network);
// float64 inputs, constants and results become float32. Finite constants stay finite. Exempt are tensors between casts
// from integers and results that are no floats: there float64 is exact integer arithmetic.
absl::Status ConvertDoubles(Network& network);

// float32 inputs, constants and results become a narrow float (--dtype float16); casts to float32 likewise. Finite
// constants stay finite. What is computed from integers (sums of 8-bit products, counts, positions) stays float32 until
// it is added to other results or is a factor of longer products, and what becomes integers is computed in float32.
absl::Status ConvertToNarrow(Network& network, DType dtype);

// All of them (ConvertToNarrow where options.dtype is a narrow float), in order, to a network ready for
// PartitionNetwork. What a user should know of the result is appended to `warnings`, unless that is null, one sentence
// each. InvalidArgument for float64 with options.strict.
absl::StatusOr<Network> Optimize(Network network, const ModelOptions& options,
                                 std::vector<std::string>* warnings = nullptr);

}  // namespace diapason
