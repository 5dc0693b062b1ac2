// The policy of comparison: how far a result may be from its reference, and whether it is. Verification of candidates,
// checks of packages and the tests of the search space all use it.
//
// A correct evaluation differs from the reference by rounding. How much is derived for each stage of a dag from the
// precision of its type (unit roundoff u, 2^-24 for sums of float32 and float16, 2^-53 for float64), the length n of
// its sums and the magnitude t (root mean square) of their terms, after Higham and Mary, "A New Approach to
// Probabilistic Rounding Error Analysis" (2019):
//
// - A sum in any order: partial sums of terms of either sign grow like sqrt(k) t, each addition rounds by 0.42 u of
// them (rms), so
//   that the error is 0.3 n u t (rms) and, at 5.5 standard deviations (one in 10^7 elements), 1.6 n u t. 4 n u t is
//   allowed. Terms of one sign: the partial sums grow like k t, and 4 u sqrt(n) of the sum is allowed.
// - Algorithms with fewer multiplications cancel larger numbers: 4 times that for sums of products (two levels of
// Strassen's), 8 times
//   for windows of 3x3 and 320 u of the sum for the transforms (Winograd F(4x4, 3x3)). Simulated in float32 both stay
//   below half of it (compare_test.cc). Every dag to which they apply gets the allowance, whether a candidate uses them
//   or not.
// - Tensor cores cut off what does not fit into the accumulator (a bias towards zero, once for 8 terms): n u / 12 of
// the sum.
//   3xTF32 drops 2^-22 of a product at random, less than the first item from 4 terms on.
// - Other operations round by u, functions by 32 u. A store to float16 rounds the reference and the result by up to
// 2^-11 each, one to bfloat16 by 2^-8.
//
// Errors of operands are independent: they add in quadrature, and are scaled by derivatives at typical magnitudes. The
// result is an error relative to the larger of the reference's element and the output's root mean square.
//
// With the inputs of RangeOfInput a term is at least 0.43 t, and one that is missing or counted twice in one element
// exceeds what is allowed there: always for sums of up to 20,000 terms in float32, 2,000 in float16 and 500 in
// bfloat16, in 95 of 100 elements for 100,000 terms in float32, and in most for longer sums in float16 and bfloat16,
// whose result is itself rounded to 2^-11 (2^-8) sqrt(n) t (compare_test.cc).
//
// Where floats are rounded to integers (requantised sums), a value near the middle of two numbers may become either.
// Such an element is off by a whole step, and how many are follows from the error of what is rounded: 2e of the
// elements for an error of e steps. So a tolerance has two parts: what any element may be off by, and by how much more
// a few may be (Tolerance::jump and share). Inputs that scale what is rounded are drawn so that it spreads over the
// numbers of 8 bits and is not clipped.
//
// Numbers that stand for infinity (the -10,000 or -3.4e38 of an attention mask) would drown all others: magnitudes
// leave them out.
//
// In a network the outputs of one task are inputs of others, with the errors that they have by then: a network's
// tolerance follows from its tasks in order, or, where that bound is of no use, from an evaluation with random errors
// (compiler/build/check_package.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// Where verification draws the elements of a float placeholder from: uniform in [low, high), with either sign when
// `both_signs`. Magnitudes stay away from zero, so that no term of a sum is negligible.
struct InputRange {
  double low = 0.5, high = 1;
  bool both_signs = true;
};

// One sign where the dag takes roots, logarithms, powers or quotients. Where it takes exponentials, sigmoids or the
// like of sums of n products, second factors are smaller by sqrt(n), so that the functions do not saturate. Where it
// rounds, factors of what is rounded have magnitudes that make it 64.
InputRange RangeOfInput(const ComputeDag& dag, int placeholder);

// Where verification draws the elements of an integer placeholder from, ends included: the stage's valid range, or,
// where it has none, all values of 8 bits, -1000 to 1000 for int32 constants beside them (biases), else 0 and 1
// (masks).
struct IntegerRange {
  int64_t low = 0, high = 0;
};
IntegerRange DrawnIntegers(const ComputeDag& dag, int placeholder);
// The same of an input of a network, by type and valid range.
IntegerRange DrawnIntegers(DType dtype, int64_t valid_min, int64_t valid_max);

// What is known of a placeholder's contents in a network.
struct InputError {
  double magnitude = 1;  // root mean square; 0 for integers: as they are drawn
  double error = 0;      // what a correct evaluation may be off by, absolute
  double jump = 0;       // what a share of the elements may be off by, absolute
  double share = 0;
};

struct Tolerance {
  // Share of max(|reference|, scale) that an element may be off by; 0: it must be equal (integers, booleans).
  double relative = 0;
  // The output's magnitude by the model; the scale where the reference is smaller (cancellation), up to 8 times its
  // root mean square.
  double magnitude = 0;
  // What a few elements may be off by beyond that, absolute: so many of n as ElementsOf says of `share`, the share that
  // is expected at most.
  double jump = 0, share = 0;
};

// How many of n elements may jump where a share is expected to: at most that share and 5 standard deviations, plus one.
// None where the share is 0.
int64_t ElementsOf(double share, int64_t n);

// Of output number `output` of the dag, for inputs without errors from RangeOfInput, or (by placeholder) for other
// ones.
Tolerance ToleranceOf(const ComputeDag& dag, int output, const std::map<int, InputError>& inputs = {});

struct Comparison {
  bool ok = true;
  double max_abs_error = 0;  // infinity where one of the two is not finite and the other differs
  // Largest |got - reference| / max(|reference|, scale), without the elements that may jump, if there are not too many.
  double max_rel_error = 0;
  int64_t jumps = 0;     // elements that are off by more than max_rel_error
  double tolerance = 0;  // max_rel_error that is allowed
  int64_t worst = -1;    // element with the largest max_rel_error; -1: all are equal
  double allowed = 0;    // absolute error that is allowed there
};

// Non-finite elements must match exactly: NaN with NaN, +inf with +inf, -inf with -inf.
// REQUIRES: same type and number of elements.
Comparison Compare(const Array& got, const Array& reference, const Tolerance& tolerance);

// Root mean square of the finite elements but those of masks; 0 when there are none. Of a mask are elements of 1e30 and
// more, and negative ones from -1e4 on that lie within a factor of 4 of each other and are at least 256 times as large
// as all others, or all equal.
double MagnitudeOf(const Array& array);

// How many times fewer operations than dag.flops() an algorithm that we know may need: 4 where a window of 3x3 is
// summed (Winograd F(4x4, 3x3) has 36 multiplications where plain counting has 144), (8/7)^2 for other sums of products
// (Strassen, two levels), else 1.
double LargestSaving(const ComputeDag& dag);

}  // namespace diapason
