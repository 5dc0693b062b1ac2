// The policy of comparison: how far a result may be from its reference, and whether it is within that tolerance. The
// verification of candidates, the checks of packages and the tests of the search space all use it.
//
// A correct evaluation differs from the reference by rounding errors. The expected error is derived for each stage of a
// dag from the unit roundoff u of its type (2^-24 for float32 and the narrower floats, which are summed in float32;
// 2^-53 for float64), the length n of its sums and the magnitude t (root mean square) of their terms, after Higham and
// Mary, "A New Approach to Probabilistic Rounding Error Analysis" (2019):
//
// - Sums in any order. With terms of either sign, partial sums grow like sqrt(k) t and each addition rounds by 0.42 u
//   of them (rms). The error is then 0.3 n u t (rms), and 1.6 n u t at 5.5 standard deviations (one in 10^7 elements);
//   4 n u t is allowed. With terms of one sign, partial sums grow like k t, and 4 u sqrt(n) of the sum is allowed.
// - Algorithms with fewer multiplications cancel larger numbers. For sums of products, 4 times the above is allowed
//   (two levels of Strassen), for 3x3 windows 8 times, and for the transforms of Winograd F(4x4, 3x3) 320 u of the sum.
//   In float32 simulations both stay below half of this (compare_test.cc). Every dag to which such an algorithm applies
//   gets the allowance, whether or not the candidate uses it.
// - Tensor cores truncate what does not fit into the accumulator (a bias towards zero, once per 8 terms): n u / 12 of
//   the sum. 3xTF32 drops 2^-22 of a product at random, which from 4 terms on is less than the first item
//   allows.
// - Single products of TensorFloat-32, where the target allows them: each factor is rounded to 10 bits of fraction, as
//   storing float16 would.
// - Sums of integers that the float type holds are exact, but for sums of products.
// - Other operations round by u, functions by 32 u. Storing float16 rounds both the reference and the result by up to
//   2^-11, storing bfloat16 by up to 2^-8.
//
// Errors of operands are independent: they add in quadrature, and are scaled by derivatives at typical magnitudes. The
// tolerance is relative to the larger of the reference's element and the output's root mean square.
//
// With the inputs of RangeOfInput, each term is at least 0.43 t, so that a term that is missing or counted twice in an
// element exceeds what is allowed there: always for sums of up to 20,000 terms in float32, 2,000 in float16 and 500 in
// bfloat16; in 95 of 100 elements for 100,000 terms in float32; and in most elements for longer sums in float16 and
// bfloat16, whose result is itself rounded to 2^-11 (2^-8) sqrt(n) t (compare_test.cc).
//
// Where floats are rounded to integers (requantized sums), a value close to the midpoint of two integers may become
// either of them. Such an element is off by a whole step. The share of such elements follows from the error before
// rounding: for an error of e steps it is 2e. A tolerance therefore has two parts: the error that any element may have,
// and the additional error that a few elements may have (Tolerance::jump and share). Inputs that scale the rounded
// values are drawn so that these spread over the range of 8 bits without being clipped.
//
// Numbers that stand for infinity (the -10,000 or -3.4e38 of an attention mask) would dominate all others; magnitudes
// leave them out.
//
// In a network, the outputs of one task are the inputs of others, with the errors accumulated so far. The tolerance of
// a network is therefore computed task by task in order or, where that bound is too loose to be useful, from an
// evaluation with random errors (compiler/build/check_package.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// The distribution from which verification draws the elements of a float placeholder: uniform in [low, high), with
// random signs if `both_signs`. Magnitudes stay away from zero, so that no term of a sum is negligible.
struct InputRange {
  double low = 0.5, high = 1;
  bool both_signs = true;
};

// The range has one sign if the dag takes roots, logarithms, powers or quotients. If it takes exponentials, sigmoids or
// similar functions of sums of n products, the second factors are smaller by sqrt(n), so that the functions do not
// saturate. If it rounds to integers, the factors of the rounded values are scaled so that these have magnitude 64.
InputRange RangeOfInput(const ComputeDag& dag, int placeholder);

// The range from which verification draws the elements of an integer placeholder, both ends included: the stage's valid
// range if it has one, else all values for 8-bit types, -1000 to 1000 for int32 constants used with these (biases), and
// 0 to 1 for all others (masks).
struct IntegerRange {
  int64_t low = 0, high = 0;
};
IntegerRange DrawnIntegers(const ComputeDag& dag, int placeholder);
// The same for an input of a network, by type and valid range.
IntegerRange DrawnIntegers(DType dtype, int64_t valid_min, int64_t valid_max);

// What is known about the contents of a placeholder in a network.
struct InputError {
  double magnitude = 1;  // root mean square; 0 for integers: that of DrawnIntegers
  double error = 0;      // absolute error that a correct evaluation may have
  double jump = 0;       // absolute error that a `share` of the elements may have
  double share = 0;
};

struct Tolerance {
  // Error allowed for an element, relative to max(|reference|, scale); 0: it must be equal (integers, booleans).
  double relative = 0;
  // The output's magnitude as the error model predicts it. It is the scale if the reference is smaller (cancellation),
  // up to 8 times the reference's root mean square.
  double magnitude = 0;
  // Absolute error beyond that which a few elements may have: ElementsOf(share, n) of n. `share` is the largest share
  // that is expected.
  double jump = 0, share = 0;
};

// How many of n elements may jump if `share` of them is expected to: that share and 5 standard deviations, plus one; 0
// if the share is 0.
int64_t ElementsOf(double share, int64_t n);

// The tolerance of output number `output` of the dag. `inputs` describes inputs by placeholder; all others are drawn
// from RangeOfInput and have no errors.
// `tf32`: that of the target (tensor/target.h). A finite one bounds what single products of TensorFloat-32 add to the
// tolerance.
Tolerance ToleranceOf(const ComputeDag& dag, int output, const std::map<int, InputError>& inputs = {}, double tf32 = 0);

struct Comparison {
  bool ok = true;
  double max_abs_error = 0;  // infinity if one of the two is not finite and the other differs
  // Largest |got - reference| / max(|reference|, scale). Elements that may jump are left out unless they are too many.
  double max_rel_error = 0;
  int64_t jumps = 0;     // elements beyond what is allowed, by at most Tolerance::jump
  double tolerance = 0;  // largest max_rel_error that is allowed
  int64_t worst = -1;    // the element with the largest relative error; -1: all are equal
  double allowed = 0;    // absolute error that is allowed for that element
};

// Non-finite elements must match exactly: NaN with NaN, +inf with +inf, -inf with -inf.
// REQUIRES: same type and number of elements.
Comparison Compare(const Array& got, const Array& reference, const Tolerance& tolerance);

// Root mean square of the finite elements that do not belong to a mask; 0 if there are none. Elements of a mask are
// those of magnitude 1e30 or more, and negative ones of -1e4 or below that lie within a factor of 4 of each other and
// are at least 256 times as large as all others, or are all equal.
double MagnitudeOf(const Array& array);

// The factor by which known algorithms may need fewer operations than dag.flops(): 4 for sums over a 3x3 window
// (Winograd F(4x4, 3x3) has 36 multiplications instead of 144), (8/7)^2 for other sums of products (two levels of
// Strassen), else 1.
double LargestSaving(const ComputeDag& dag);

}  // namespace diapason
