#include "compiler/codegen/expr_printer.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "compiler/codegen/passes.h"
#include "compiler/tensor/gelu.h"

namespace diapason {
namespace {

std::string Parenthesized(std::string text, int level, int precedence) {
  return level < precedence ? "(" + text + ")" : text;
}

bool IsPowerOfTwo(int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

struct Helper {
  const char* name;
  const char* c;  // null: the dialect has it built in, or never calls it
  const char* opencl;
  const char* cuda;
};

// {T} is the qualifier of an inline function. Each helper stands behind those that it calls.
constexpr Helper kHelpers[] = {
    {"floordiv32", nullptr, "{T} int floordiv32(int a, int b) { const int q = a / b; return q * b > a ? q - 1 : q; }",
     "{T} int floordiv32(int a, int b) { const int q = a / b; return q * b > a ? q - 1 : q; }"},
    {"floormod32", nullptr, "{T} int floormod32(int a, int b) { const int r = a % b; return r < 0 ? r + b : r; }",
     "{T} int floormod32(int a, int b) { const int r = a % b; return r < 0 ? r + b : r; }"},
    {"udiv32", nullptr, "{T} int udiv32(int a, uint b) { return (int)((uint)a / b); }",
     "{T} int udiv32(int a, unsigned b) { return (int)((unsigned)a / b); }"},
    {"umod32", nullptr, "{T} int umod32(int a, uint b) { return (int)((uint)a % b); }",
     "{T} int umod32(int a, unsigned b) { return (int)((unsigned)a % b); }"},
    {"floordiv64", "{T} int64 floordiv64(int64 a, int64 b) { const int64 q = a / b; return q * b > a ? q - 1 : q; }",
     "{T} int64 floordiv64(int64 a, int64 b) { const int64 q = a / b; return q * b > a ? q - 1 : q; }",
     "{T} int64 floordiv64(int64 a, int64 b) { const int64 q = a / b; return q * b > a ? q - 1 : q; }"},
    {"floormod64", "{T} int64 floormod64(int64 a, int64 b) { const int64 r = a % b; return r < 0 ? r + b : r; }",
     "{T} int64 floormod64(int64 a, int64 b) { const int64 r = a % b; return r < 0 ? r + b : r; }",
     "{T} int64 floormod64(int64 a, int64 b) { const int64 r = a % b; return r < 0 ? r + b : r; }"},
    {"min32", "{T} int min32(int a, int b) { return b < a ? b : a; }",
     "{T} int min32(int a, int b) { return b < a ? b : a; }", "{T} int min32(int a, int b) { return b < a ? b : a; }"},
    {"max32", "{T} int max32(int a, int b) { return a < b ? b : a; }",
     "{T} int max32(int a, int b) { return a < b ? b : a; }", "{T} int max32(int a, int b) { return a < b ? b : a; }"},
    {"min64", "{T} int64 min64(int64 a, int64 b) { return b < a ? b : a; }",
     "{T} int64 min64(int64 a, int64 b) { return b < a ? b : a; }",
     "{T} int64 min64(int64 a, int64 b) { return b < a ? b : a; }"},
    {"max64", "{T} int64 max64(int64 a, int64 b) { return a < b ? b : a; }",
     "{T} int64 max64(int64 a, int64 b) { return a < b ? b : a; }",
     "{T} int64 max64(int64 a, int64 b) { return a < b ? b : a; }"},
    {"abs64", "{T} int64 abs64(int64 a) { return a < 0 ? -a : a; }",
     "{T} int64 abs64(int64 a) { return a < 0 ? -a : a; }", "{T} int64 abs64(int64 a) { return a < 0 ? -a : a; }"},
    // With a NaN and a constant, the NaN: fmin and fmax give the constant. An instruction of its own from sm_80 on.
    {"limit_below", nullptr, "{T} float limit_below(float a, float b) { return a < b ? b : a; }",
     "{T} float limit_below(float a, float b) {\n"
     "#if __CUDA_ARCH__ >= 800\n"
     "  float y;\n"
     "  asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b));\n"
     "  return y;\n"
     "#else\n"
     "  return a < b ? b : a;\n"
     "#endif\n"
     "}"},
    {"limit_above", nullptr, "{T} float limit_above(float a, float b) { return b < a ? b : a; }",
     "{T} float limit_above(float a, float b) {\n"
     "#if __CUDA_ARCH__ >= 800\n"
     "  float y;\n"
     "  asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b));\n"
     "  return y;\n"
     "#else\n"
     "  return b < a ? b : a;\n"
     "#endif\n"
     "}"},
    // Of two numbers one of which is NaN, the first.
    {"minf", "{T} float minf(float a, float b) { return b < a ? b : a; }", nullptr, nullptr},
    {"maxf", "{T} float maxf(float a, float b) { return a < b ? b : a; }", nullptr, nullptr},
    {"mind", "{T} double mind(double a, double b) { return b < a ? b : a; }", nullptr, nullptr},
    {"maxd", "{T} double maxd(double a, double b) { return a < b ? b : a; }", nullptr, nullptr},
    {"expf", "float expf(float);", nullptr, nullptr},
    {"logf", "float logf(float);", nullptr, nullptr},
    {"tanhf", "float tanhf(float);", nullptr, nullptr},
    {"erff", "float erff(float);", nullptr, nullptr},
    {"powf", "float powf(float, float);", nullptr, nullptr},
    {"exp", "double exp(double);", nullptr, nullptr},
    {"log", "double log(double);", nullptr, nullptr},
    {"tanh", "double tanh(double);", nullptr, nullptr},
    {"erf", "double erf(double);", nullptr, nullptr},
    {"pow", "double pow(double, double);", nullptr, nullptr},
    {"sinf", "float sinf(float);", nullptr, nullptr},
    {"sin", "double sin(double);", nullptr, nullptr},
    {"cosf", "float cosf(float);", nullptr, nullptr},
    {"cos", "double cos(double);", nullptr, nullptr},
    {"tanf", "float tanf(float);", nullptr, nullptr},
    {"tan", "double tan(double);", nullptr, nullptr},
    {"asinf", "float asinf(float);", nullptr, nullptr},
    {"asin", "double asin(double);", nullptr, nullptr},
    {"acosf", "float acosf(float);", nullptr, nullptr},
    {"acos", "double acos(double);", nullptr, nullptr},
    {"atanf", "float atanf(float);", nullptr, nullptr},
    {"atan", "double atan(double);", nullptr, nullptr},
    {"sinhf", "float sinhf(float);", nullptr, nullptr},
    {"sinh", "double sinh(double);", nullptr, nullptr},
    {"coshf", "float coshf(float);", nullptr, nullptr},
    {"cosh", "double cosh(double);", nullptr, nullptr},
    {"asinhf", "float asinhf(float);", nullptr, nullptr},
    {"asinh", "double asinh(double);", nullptr, nullptr},
    {"acoshf", "float acoshf(float);", nullptr, nullptr},
    {"acosh", "double acosh(double);", nullptr, nullptr},
    {"atanhf", "float atanhf(float);", nullptr, nullptr},
    {"atanh", "double atanh(double);", nullptr, nullptr},
    {"bfloat16f",
     "{T} float bfloat16f(float x) {\n  union { float f; unsigned u; } v = {x};\n"
     "  v.u = x != x ? v.u : (v.u + 0x7fffu + ((v.u >> 16) & 1u)) & 0xffff0000u;\n  return v.f;\n}",
     "{T} float bfloat16f(float x) {\n  const uint u = as_uint(x);\n"
     "  return x != x ? x : as_float((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);\n}",
     "{T} float bfloat16f(float x) {\n  const unsigned u = __float_as_uint(x);\n"
     "  return x != x ? x : __uint_as_float((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);\n}"},
    // To 10 bits of fraction, half away from zero.
    {"tf32f",
     "{T} float tf32f(float x) {\n  union { float f; unsigned u; } v = {x};\n"
     "  v.u = x != x ? v.u : (v.u + 0x1000u) & 0xffffe000u;\n  return v.f;\n}",
     "{T} float tf32f(float x) {\n  const uint u = as_uint(x);\n"
     "  return x != x ? x : as_float((u + 0x1000u) & 0xffffe000u);\n}",
     "{T} float tf32f(float x) {\n  const unsigned u = __float_as_uint(x);\n"
     "  return x != x ? x : __uint_as_float((u + 0x1000u) & 0xffffe000u);\n}"},
    {"rsqrtf", "{T} float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }", nullptr, nullptr},
    {"rsqrt", "{T} double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }", nullptr, nullptr},
    {"sigmoidf", "float expf(float);\n{T} float sigmoidf(float x) { return 1.0f / (1.0f + expf(-x)); }",
     "{T} float sigmoidf(float x) { return 1.0f / (1.0f + exp(-x)); }",
     "{T} float sigmoidf(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }"},
    {"sigmoid", "double exp(double);\n{T} double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }",
     "{T} double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }",
     "{T} double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }"},
    {"bfloat16_to_float",
     "{T} float bfloat16_to_float(unsigned short h) {\n"
     "  union { unsigned u; float f; } v = {(unsigned)h << 16};\n  return v.f;\n}",
     "{T} float bfloat16_to_float(ushort h) { return as_float((uint)h << 16); }",
     "{T} float bfloat16_to_float(unsigned short h) { return __uint_as_float((unsigned)h << 16); }"},
    {"half_to_float",
     "#ifdef __F16C__\n"
     "typedef short half8 __attribute__((vector_size(16)));\n"
     "typedef float half8_float4 __attribute__((vector_size(16)));\n"
     "{T} float half_to_float(unsigned short h) { return __builtin_ia32_vcvtph2ps((half8){(short)h})[0]; }\n"
     "#else\n"
     "{T} float half_to_float(unsigned short h) {\n"
     "  union { unsigned u; float f; } v, magic = {113u << 23};\n"
     "  v.u = (h & 0x7fffu) << 13;\n"
     "  const unsigned exponent = v.u & 0x0f800000u;\n"
     "  v.u += 112u << 23;\n"
     "  if (exponent == 0x0f800000u) v.u += 112u << 23;\n"
     "  else if (exponent == 0) { v.u += 1u << 23; v.f -= magic.f; }\n"
     "  v.u |= (h & 0x8000u) << 16;\n"
     "  return v.f;\n"
     "}\n"
     "#endif",
     nullptr,
     "{T} float half_to_float(unsigned short h) {\n"
     "  float f;\n"
     "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(h));\n"
     "  return f;\n"
     "}"},
    // Copies of 4, 8 or 16 bytes that finish at a wait; `valid` bytes are read, the others become zero.
    {"async_copy", nullptr, nullptr,
     "template <int bytes> {T} void async_copy(void* to, const void* from, int valid) {\n"
     "#if __CUDA_ARCH__ >= 800\n"
     "  const unsigned address = (unsigned)__cvta_generic_to_shared(to);\n"
     "  if (bytes == 16)\n"
     "    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" :: \"r\"(address), \"l\"(from), \"r\"(valid) "
     ": \"memory\");\n"
     "  else\n"
     "    asm volatile(\"cp.async.ca.shared.global [%0], [%1], %3, %2;\" :: \"r\"(address), \"l\"(from), \"r\"(valid), "
     "\"n\"(bytes) : \"memory\");\n"
     "#else\n"
     "  for (int i = 0; i < bytes / 4; ++i) ((unsigned*)to)[i] = valid ? ((const unsigned*)from)[i] : 0u;\n"
     "#endif\n"
     "}"},
    // Copies of whole tiles by the hardware, each of which arrives at a barrier. Their first waiters see the barriers
    // behind one of the block.
    {"mbarrier_init", nullptr, nullptr,
     "{T} void mbarrier_init(int64* arrivals, int count, int threads) {\n"
     "  const unsigned at = (unsigned)__cvta_generic_to_shared(arrivals);\n"
     "  for (int i = 0; i < count; ++i)\n"
     "    asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" :: \"r\"(at + 8 * i), \"r\"(threads) : "
     "\"memory\");\n"
     "  asm volatile(\"fence.mbarrier_init.release.cluster;\\nfence.proxy.async.shared::cta;\" ::: \"memory\");\n"
     "}"},
    {"bulk_copy", nullptr, nullptr,
     "{T} void bulk_copy(void* to, const void* from, unsigned bytes, const int64* arrival) {\n"
     "  const unsigned at = (unsigned)__cvta_generic_to_shared(arrival);\n"
     "  asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\" :: \"r\"(at), \"r\"(bytes) : "
     "\"memory\");\n"
     "  asm volatile(\"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\"\n"
     "               :: \"r\"((unsigned)__cvta_generic_to_shared(to)), \"l\"(from), \"r\"(bytes), \"r\"(at) : "
     "\"memory\");\n"
     "}"},
    {"mbarrier_arrive", nullptr, nullptr,
     "{T} void mbarrier_arrive(const int64* arrival) {\n"
     "  asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" :: "
     "\"r\"((unsigned)__cvta_generic_to_shared(arrival))\n"
     "               : \"memory\");\n"
     "}"},
    {"mbarrier_wait", nullptr, nullptr,
     "{T} void mbarrier_wait(const int64* arrival, int parity) {\n"
     "  asm volatile(\"{\\n.reg .pred done;\\nagain:\\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n\"\n"
     "               \"@!done bra again;\\n}\" :: \"r\"((unsigned)__cvta_generic_to_shared(arrival)), \"r\"(parity) : "
     "\"memory\");\n"
     "}"},
    {"barrier_of", nullptr, nullptr,
     "template <int threads> {T} void barrier_of() { asm volatile(\"bar.sync 1, %0;\" :: \"n\"(threads) : "
     "\"memory\"); }"},
    {"mbarrier_arrive_if", nullptr, nullptr,
     "{T} void mbarrier_arrive_if(int arrives, const int64* arrival) {\n"
     "  asm volatile(\"{\\n.reg .pred arrives;\\nsetp.ne.b32 arrives, %0, 0;\\n\"\n"
     "               \"@arrives mbarrier.arrive.shared::cta.b64 _, [%1];\\n}\"\n"
     "               :: \"r\"(arrives), \"r\"((unsigned)__cvta_generic_to_shared(arrival)) : \"memory\");\n"
     "}"},
    {"more_registers", nullptr, nullptr,
     "template <int count> {T} void more_registers() { asm volatile(\"setmaxnreg.inc.sync.aligned.u32 %0;\" :: "
     "\"n\"(count)); }"},
    {"fewer_registers", nullptr, nullptr,
     "template <int count> {T} void fewer_registers() { asm volatile(\"setmaxnreg.dec.sync.aligned.u32 %0;\" :: "
     "\"n\"(count)); }"},
    // Lets the next kernel start.
    {"launch_dependents", nullptr, nullptr,
     "{T} void launch_dependents() {\n"
     "#if __CUDA_ARCH__ >= 900\n"
     "  asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n"
     "#endif\n"
     "}"},
    // Waits until the kernel in front, and so all that it waited for, has ended and its writes are seen.
    {"wait_for_previous", nullptr, nullptr,
     "{T} void wait_for_previous() {\n"
     "#if __CUDA_ARCH__ >= 900\n"
     "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
     "#endif\n"
     "}"},
    {"async_commit", nullptr, nullptr,
     "{T} void async_commit() {\n"
     "#if __CUDA_ARCH__ >= 800\n"
     "  asm volatile(\"cp.async.commit_group;\" ::: \"memory\");\n"
     "#endif\n"
     "}"},
    {"async_wait", nullptr, nullptr,
     "template <int unfinished> {T} void async_wait() {\n"
     "#if __CUDA_ARCH__ >= 800\n"
     "  asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(unfinished) : \"memory\");\n"
     "#endif\n"
     "}"},
    // To within 2^-21, as far as the argument is exact; what float32 has no normal number for is 0.
    {"coarse_exp", nullptr, nullptr,
     "{T} float coarse_exp(float x) {\n"
     "  float y;\n"
     "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x * 1.44269504f));\n"
     "  return y;\n"
     "}"},
    // exp(x - top), with what is rounded the same for all x of one top. Differences of numbers of 1e37 are 0 or exceed
    // all that exp tells apart, so that these need no scale, which would overflow.
    {"coarse_exp_below", nullptr, nullptr,
     "{T} float coarse_exp_below(float top, float x) {\n"
     "  const float scale = fabsf(top) < 1e37f ? 1.44269504f : 1.0f;\n"
     "  float y;\n"
     "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(fmaf(x, scale, -(top * scale))));\n"
     "  return y;\n"
     "}"},
    // exp(factor * (x - top)) of x <= top, in the same way. Where the product would overflow, differences that are not
    // 0 exceed all that exp tells apart without the factor too, or with it alone if it is less than 1.
    {"coarse_exp_scaled", nullptr, nullptr,
     "{T} float coarse_exp_scaled(float factor, float top, float x) {\n"
     "  const float whole = factor * 1.44269504f;\n"
     "  const float least = fminf(whole, 1.0f);\n"
     "  const float scale = fabsf(top * whole) < 1e37f ? whole : least;\n"
     "  float y;\n"
     "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(fmaf(x, scale, -(top * scale))));\n"
     "  return y;\n"
     "}"},
    // To within 2^-18 of itself, and 0 below -87.
    {"coarse_sigmoid", nullptr, nullptr,
     "{T} float coarse_sigmoid(float x) {\n"
     "  float y;\n"
     "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x * -1.44269504f));\n"
     "  return __fdividef(1.0f, y + 1.0f);\n"
     "}"},
    {"coarse_tanh_plus_1", nullptr, nullptr,
     "{T} float coarse_tanh_plus_1(float x) {\n"
     "  float y;\n"
     "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x * -2.88539008f));\n"
     "  return __fdividef(2.0f, y + 1.0f);\n"
     "}"},
    // A polynomial for the logarithm of erfc, fitted to 4e-6 of erfc up to 4.3; behind that it falls faster than erfc,
    // which is below 2e-9 there.
    {"coarse_erf_plus_1", nullptr, nullptr,
     "{T} float coarse_erf_plus_1(float x) {\n"
     "  const float a = fabsf(x);\n"
     "  float y = fmaf(a, -2.03126840e-5f, 4.86031658e-4f);\n"
     "  y = fmaf(a, y, -5.22335932e-3f);\n"
     "  y = fmaf(a, y, 3.39096928e-2f);\n"
     "  y = fmaf(a, y, -1.52429121e-1f);\n"
     "  y = fmaf(a, y, -9.17081935e-1f);\n"
     "  y = fmaf(a, y, -1.62806317f);\n"
     "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(a * y));\n"
     "  return x < 0.0f ? y : 2.0f - y;\n"
     "}"},
    // GeluByErf(x) = max(x, 0) - |x| * erfc(|x| * sqrt(1/2)) / 2. A polynomial approximates the binary logarithm of the
    // last factor; the factor's relative error is 5e-6 up to 6.5, and 4e-3 at 8. Arguments are limited to 10, where the
    // factor is 1e-23.
    {"coarse_gelu", nullptr, nullptr,
     "{T} float coarse_gelu(float x) {\n"
     "  const float a = fminf(fabsf(x), 10.0f);\n"
     "  float y = fmaf(a, -1.76032331e-6f, 6.00019738e-5f);\n"
     "  y = fmaf(a, y, -9.17044061e-4f);\n"
     "  y = fmaf(a, y, 8.45107250e-3f);\n"
     "  y = fmaf(a, y, -5.38355261e-2f);\n"
     "  y = fmaf(a, y, -4.58597898e-1f);\n"
     "  y = fmaf(a, y, -1.15119410f);\n"
     "  y = fmaf(a, y, -1.0f);\n"
     "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(y));\n"
     "  return fmaf(-a, y, limit_below(x, 0.0f));\n"
     "}"},
    // GeluByTanh(x), as precise as coarse_tanh_plus_1.
    {"coarse_gelu_tanh", nullptr, nullptr,
     "{T} float coarse_gelu_tanh(float x) {\n"
     "  float y;\n"
     "  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x * fmaf(x * x, -0.102943242f, -2.30220819f)));\n"
     "  return __fdividef(x, y + 1.0f);\n"
     "}"},
    // Tensor cores read the upper 19 bits of factors alone, which makes a high part of any float32; the low part,
    // exact in float32, is rounded here: cvt.rna.tf32 would do so at a quarter of the speed.
    {"low_part", nullptr, nullptr,
     "{T} unsigned low_part(float x) {\n"
     "  return __float_as_uint(x - __uint_as_float(__float_as_uint(x) & 0xffffe000u)) + 0x1000u;\n"
     "}"},
    {"low_parts_4", nullptr, nullptr,
     "{T} void low_parts_4(float* to, const float* from) {\n"
     "  const float4 v = *(const float4*)from;\n"
     "  *(uint4*)to = make_uint4(low_part(v.x), low_part(v.y), low_part(v.z), low_part(v.w));\n"
     "}"},
    // The nearest number of TensorFloat-32: half of its last bit is added, by an addition that keeps infinities and
    // NaN.
    {"nearest_tf32", nullptr, nullptr,
     "{T} unsigned nearest_tf32(float x) {\n"
     "  return __float_as_uint(fmaf(__uint_as_float(__float_as_uint(x) & 0xff800000u), 0x1p-11f, x)) & 0xffffe000u;\n"
     "}"},
    {"nearest_tf32_4", nullptr, nullptr,
     "{T} void nearest_tf32_4(float* to, const float* from) {\n"
     "  const float4 v = *(const float4*)from;\n"
     "  *(uint4*)to = make_uint4(nearest_tf32(v.x), nearest_tf32(v.y), nearest_tf32(v.z), nearest_tf32(v.w));\n"
     "}"},
    // A descriptor for wgmma: where the first core matrix lies, `steps` of 16 bytes behind `bytes`, and what is said of
    // the others. In words, with the steps last: the descriptors of a place are then one addition apart. In a cluster
    // an address has the block's rank above the 18 bits that descriptors have for it.
    {"core_matrices", nullptr, nullptr,
     "{T} unsigned long long core_matrices(const void* buffer, unsigned bytes, unsigned steps,\n"
     "    unsigned long long layout) {\n"
     "  const unsigned first = (unsigned)layout + ((((unsigned)__cvta_generic_to_shared(buffer) & 0x3ffffu) + bytes) "
     ">> "
     "4);\n"
     "  return layout >> 32 << 32 | (first + steps);\n"
     "}"},
    {"swizzled", nullptr, nullptr,
     "template <int shift, int mask> {T} int swizzled(int i) { return i ^ (i >> shift & mask); }"},
    {"group_begin", nullptr, nullptr,
     "{T} void group_begin() { asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\"); }"},
    {"group_commit", nullptr, nullptr,
     "{T} void group_commit() { asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\"); }"},
    {"group_wait", nullptr, nullptr,
     "template <int unfinished> {T} void group_wait() {\n"
     "  asm volatile(\"wgmma.wait_group.sync.aligned %0;\" :: \"n\"(unfinished) : \"memory\");\n"
     "}"},
    // Of shared memory alone: a fence of all memory waits for every copy that is under way.
    {"group_publish", nullptr, nullptr,
     "{T} void group_publish() { asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\"); }"},
    // c += a * b, a 16x8 and b 8x8 in the lanes of a warp, to nearly the precision of float32. Tensor cores cut sums
    // off instead of rounding them: sums of a few products start from zero, and float32 adds them to the others.
    {"add_three_tf32", nullptr, nullptr,
     "{T} void add_tf32(float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1, unsigned a2, unsigned "
     "a3,\n"
     "                  unsigned b0, unsigned b1) {\n"
     "  asm(\"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
     "%1, %2, %3};\"\n"
     "      : \"+f\"(c0), \"+f\"(c1), \"+f\"(c2), \"+f\"(c3)\n"
     "      : \"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3), \"r\"(b0), \"r\"(b1));\n"
     "}\n"
     "{T} void add_three_tf32(float& c0, float& c1, float& c2, float& c3, float a0, float a1, float a2, float a3, "
     "float b0,\n"
     "                        float b1) {\n"
     "  const unsigned p0 = __float_as_uint(a0), p1 = __float_as_uint(a1), p2 = __float_as_uint(a2), p3 = "
     "__float_as_uint(a3);\n"
     "  const unsigned q0 = __float_as_uint(b0), q1 = __float_as_uint(b1);\n"
     "  add_tf32(c0, c1, c2, c3, low_part(a0), low_part(a1), low_part(a2), low_part(a3), q0, q1);\n"
     "  add_tf32(c0, c1, c2, c3, p0, p1, p2, p3, low_part(b0), low_part(b1));\n"
     "  add_tf32(c0, c1, c2, c3, p0, p1, p2, p3, q0, q1);\n"
     "}"},
    // c += a * b of factors that are rounded to 10 bits of fraction: tensor cores ignore the other 13 (above).
    {"add_rounded_tf32", nullptr, nullptr,
     "{T} unsigned rounded_tf32(float x) { return __float_as_uint(x) + 0x1000u; }\n"
     "{T} void add_rounded_tf32(float& c0, float& c1, float& c2, float& c3, float a0, float a1, float a2, float a3, "
     "float b0,\n"
     "                          float b1) {\n"
     "  asm(\"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
     "%1, %2, %3};\"\n"
     "      : \"+f\"(c0), \"+f\"(c1), \"+f\"(c2), \"+f\"(c3)\n"
     "      : \"r\"(rounded_tf32(a0)), \"r\"(rounded_tf32(a1)), \"r\"(rounded_tf32(a2)), \"r\"(rounded_tf32(a3)), "
     "\"r\"(rounded_tf32(b0)),\n"
     "        \"r\"(rounded_tf32(b1)));\n"
     "}"},
    {"load_matrix_4", nullptr, nullptr,
     "{T} void load_matrix_4(float& a, float& b, float& c, float& d, const float* row) {\n"
     "  unsigned p, q, r, s;\n"
     "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
     "               : \"=r\"(p), \"=r\"(q), \"=r\"(r), \"=r\"(s) : \"r\"((unsigned)__cvta_generic_to_shared(row)) : "
     "\"memory\");\n"
     "  a = __uint_as_float(p), b = __uint_as_float(q), c = __uint_as_float(r), d = __uint_as_float(s);\n"
     "}"},
    {"load_matrix_2", nullptr, nullptr,
     "{T} void load_matrix_2(float& a, float& b, const float* row) {\n"
     "  unsigned p, q;\n"
     "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\"\n"
     "               : \"=r\"(p), \"=r\"(q) : \"r\"((unsigned)__cvta_generic_to_shared(row)) : \"memory\");\n"
     "  a = __uint_as_float(p), b = __uint_as_float(q);\n"
     "}"},
    {"load_matrix_4_pairs", nullptr, nullptr,
     "{T} void load_matrix_4_pairs(int& a, int& b, int& c, int& d, const void* row) {\n"
     "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
     "               : \"=r\"(a), \"=r\"(b), \"=r\"(c), \"=r\"(d) : \"r\"((unsigned)__cvta_generic_to_shared(row)) : "
     "\"memory\");\n"
     "}"},
    {"load_matrix_2_pairs", nullptr, nullptr,
     "{T} void load_matrix_2_pairs(int& a, int& b, const void* row) {\n"
     "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\"\n"
     "               : \"=r\"(a), \"=r\"(b) : \"r\"((unsigned)__cvta_generic_to_shared(row)) : \"memory\");\n"
     "}"},
    {"load_matrix_4_transposed", nullptr, nullptr,
     "{T} void load_matrix_4_transposed(int& a, int& b, int& c, int& d, const void* row) {\n"
     "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
     "               : \"=r\"(a), \"=r\"(b), \"=r\"(c), \"=r\"(d) : \"r\"((unsigned)__cvta_generic_to_shared(row)) : "
     "\"memory\");\n"
     "}"},
    {"load_matrix_2_transposed", nullptr, nullptr,
     "{T} void load_matrix_2_transposed(int& a, int& b, const void* row) {\n"
     "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\"\n"
     "               : \"=r\"(a), \"=r\"(b) : \"r\"((unsigned)__cvta_generic_to_shared(row)) : \"memory\");\n"
     "}"},
    // Words of two columns each of 4 or 2 times 8, of which each of the four lanes of a row has one: they exchange
    // them, and each stores those that lie side by side.
    {"quad_store_4", nullptr, nullptr,
     "template <int lanes> {T} void quad_store_4(void* to, int w0, int w1, int w2, int w3) {\n"
     "  const unsigned q = threadIdx.x & 3, mask = lanes == 32 ? 0xffffffffu : 15u << (threadIdx.x & 28);\n"
     "  const int a = __shfl_xor_sync(mask, q & 1 ? w0 : w1, 1), b = __shfl_xor_sync(mask, q & 1 ? w2 : w3, 1);\n"
     "  const int x0 = q & 1 ? a : w0, x1 = q & 1 ? w1 : a, y0 = q & 1 ? b : w2, y1 = q & 1 ? w3 : b;\n"
     "  const int c = __shfl_xor_sync(mask, q & 2 ? x0 : y0, 2), d = __shfl_xor_sync(mask, q & 2 ? x1 : y1, 2);\n"
     "  ((int4*)to)[q] = q & 2 ? make_int4(c, d, y0, y1) : make_int4(x0, x1, c, d);\n"
     "}"},
    {"quad_store_2", nullptr, nullptr,
     "template <int lanes> {T} void quad_store_2(void* to, int w0, int w1) {\n"
     "  const unsigned q = threadIdx.x & 3, mask = lanes == 32 ? 0xffffffffu : 15u << (threadIdx.x & 28);\n"
     "  const int a = __shfl_xor_sync(mask, q & 1 ? w0 : w1, 1);\n"
     "  ((int2*)to)[(q & 1) * 2 + (q >> 1)] = q & 1 ? make_int2(a, w1) : make_int2(w0, a);\n"
     "}"},
    // Words of two rows each of 8 columns, and of 8 more: transposed, each of the four lanes of a row has two columns
    // of both.
    {"transposed_store", nullptr, nullptr,
     "{T} void transposed_store(bool stores, void* to, int w0, int w1) {\n"
     "  const unsigned q = threadIdx.x & 3;\n"
     "  int a, b;\n"
     "  asm volatile(\"movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\" : \"=r\"(a) : \"r\"(w0));\n"
     "  asm volatile(\"movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\" : \"=r\"(b) : \"r\"(w1));\n"
     "  const int c = __shfl_xor_sync(0xffffffffu, q & 1 ? a : b, 1);\n"
     "  if (stores) ((int2*)to)[(q & 1) * 2 + (q >> 1)] = q & 1 ? make_int2(c, b) : make_int2(a, c);\n"
     "}"},
    {"pack_bytes", nullptr, nullptr,
     "{T} int pack_bytes(int a, int b, int c, int d) {\n"
     "  return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | d << 24;\n"
     "}"},
    // The same address in the shared memory of the block of that rank.
    {"in_cluster", nullptr, nullptr,
     "template <typename T> {T} T* in_cluster(T* address, unsigned rank) {\n"
     "  T* there;\n"
     "  asm(\"mapa.u64 %0, %1, %2;\" : \"=l\"(there) : \"l\"(address), \"r\"(rank));\n"
     "  return there;\n"
     "}"},
    // Behind it each block sees what all threads of the cluster have stored before.
    {"cluster_arrive", nullptr, nullptr,
     "{T} void cluster_arrive() {\n"
     "  asm volatile(\"barrier.cluster.arrive.release.aligned;\" ::: \"memory\");\n"
     "}"},
    // The same, where each block stores to its own shared memory only: the release above waits for all memory of the
    // GPU.
    {"cluster_arrive_of_own", nullptr, nullptr,
     "{T} void cluster_arrive_of_own() {\n"
     "#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1208\n"
     "  asm volatile(\"fence.release.sync_restrict::shared::cta.cluster;\\n\"\n"
     "               \"barrier.cluster.arrive.relaxed.aligned;\" ::: \"memory\");\n"
     "#else\n"
     "  asm volatile(\"barrier.cluster.arrive.release.aligned;\" ::: \"memory\");\n"
     "#endif\n"
     "}"},
    {"cluster_wait", nullptr, nullptr,
     "{T} void cluster_wait() {\n"
     "  asm volatile(\"barrier.cluster.wait.acquire.aligned;\" ::: \"memory\");\n"
     "}"},
    // Behind it no block reads the memory of another one. A release would wait for what each thread has stored; values
    // that were read have been used in front of it.
    {"cluster_end", nullptr, nullptr,
     "{T} void cluster_end() {\n"
     "  asm volatile(\"barrier.cluster.arrive.relaxed.aligned;\\n\"\n"
     "               \"barrier.cluster.wait.acquire.aligned;\" ::: \"memory\");\n"
     "}"},
    {"float_to_bfloat16",
     "{T} unsigned short float_to_bfloat16(float f) {\n"
     "  union { float f; unsigned u; } v = {f};\n"
     "  const unsigned nan = v.u >> 16 | 0x40u, rounded = (v.u + 0x7fffu + (v.u >> 16 & 1u)) >> 16;\n"
     "  return (unsigned short)((v.u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);\n}",
     "{T} ushort float_to_bfloat16(float f) {\n"
     "  const uint u = as_uint(f);\n"
     "  return (ushort)(isnan(f) ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);\n}",
     "{T} unsigned short float_to_bfloat16(float f) {\n"
     "#if __CUDA_ARCH__ >= 800\n"
     "  unsigned short h;\n"
     "  asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(f));\n"
     "  return h;\n"
     "#else\n"
     "  const unsigned u = __float_as_uint(f);\n"
     "  return (unsigned short)(f != f ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);\n"
     "#endif\n}"},
    {"float_to_half",
     "#ifdef __F16C__\n"
     "typedef float half_float4 __attribute__((vector_size(16)));\n"
     "{T} unsigned short float_to_half(float f) {\n"
     "  return (unsigned short)__builtin_ia32_vcvtps2ph((half_float4){f}, 0)[0];\n"
     "}\n"
     "#else\n"
     "{T} unsigned short float_to_half(float f) {\n"
     "  union { float f; unsigned u; } v = {f}, magic = {0.5f};\n"
     "  const unsigned sign = v.u & 0x80000000u;\n"
     "  v.u ^= sign;\n"
     "  unsigned half;\n"
     "  if (v.u >= 0x47800000u) half = v.u > 0x7f800000u ? 0x7e00u : 0x7c00u;\n"
     "  else if (v.u < 0x38800000u) { v.f += magic.f; half = v.u - magic.u; }\n"
     "  else half = (v.u + 0xc8000fffu + ((v.u >> 13) & 1)) >> 13;\n"
     "  return (unsigned short)(half | sign >> 16);\n"
     "}\n"
     "#endif",
     nullptr,
     "{T} unsigned short float_to_half(float f) {\n"
     "  unsigned short h;\n"
     "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(f));\n"
     "  return h;\n"
     "}"},
};

const char* TextOf(const Helper& helper, Dialect dialect) {
  switch (dialect) {
    case Dialect::kC: return helper.c;
    case Dialect::kOpenCl: return helper.opencl;
    case Dialect::kCuda: return helper.cuda;
  }
  return nullptr;
}

const char* QualifierOf(Dialect dialect) {
  return dialect == Dialect::kCuda ? "static __device__ __forceinline__" : "static inline";
}

// Words that a variable may not be called: those of the languages that a name of a stage or a loop could really be, and
// the names that printed text uses.
bool IsReserved(const std::string& name, Dialect dialect) {
  static const auto& kWords = *new std::set<std::string>{
      "args",      "asm",      "auto",     "begin",    "bool",     "break",   "case",     "char",      "class",
      "const",     "default",  "delete",   "do",       "double",   "else",    "end",      "enum",      "extern",
      "float",     "for",      "goto",     "half",     "if",       "inline",  "int",      "int64",     "kernel",
      "local",     "long",     "main",     "global",   "constant", "private", "new",      "not",       "and",
      "or",        "xor",      "operator", "register", "restrict", "return",  "short",    "signed",    "sizeof",
      "static",    "struct",   "switch",   "template", "this",     "true",    "false",    "typedef",   "uint",
      "union",     "unsigned", "using",    "void",     "volatile", "while",   "blockIdx", "threadIdx", "shared_memory",
      "abs",       "fabs",     "floor",    "ceil",     "rint",     "sqrt",    "fabsf",    "floorf",    "ceilf",
      "rintf",     "sqrtf",    "fmin",     "fmax",     "fminf",    "fmaxf",   "NAN",      "INFINITY",  "image1d_t",
      "sampler_t", "event_t",  "float2",   "float4",   "int2",     "int4",    "uint2",    "uint4",     "barrier",
      "rsqrt",     "rsqrtf",   "exp",      "log",      "tanh",     "erf",     "pow",      "round",     "select",
      "step",      "mix",      "dot",      "length",   "clamp",    "min",     "max",      "sign",      "cross",
      "distance",  "normalize"};
  if (kWords.count(name) != 0) return true;
  for (const Helper& helper : kHelpers)
    if (name == helper.name) return true;
  // "chunk3", "lanes": variables of the printed text's own.
  if (name.rfind("chunk", 0) == 0 || name == "lanes") return true;
  return name.rfind("__", 0) == 0 || name.rfind("vload", 0) == 0 || name.rfind("vstore", 0) == 0;
}

// The x of an expression that is `gelu` of it. Null for any other expression.
Expr ArgumentOf(const Expr& e, Expr (*gelu)(const Expr&)) {
  if (e->kind != ExprKind::kMul || e->args[0]->kind != ExprKind::kMul) return nullptr;
  const Expr& x = e->args[0]->args[0];
  return Equal(e, gelu(x)) ? x : nullptr;
}

}  // namespace

void Helpers::Add(const Helpers& other) {
  used_.insert(other.used_.begin(), other.used_.end());
  types_.insert(other.types_.begin(), other.types_.end());
  functions_.insert(other.functions_.begin(), other.functions_.end());
}

std::string Helpers::Text() const {
  std::string out;
  for (const auto& [name, text] : types_) out += text + "\n";
  for (const Helper& helper : kHelpers) {
    if (used_.count(helper.name) == 0) continue;
    const char* text = TextOf(helper, dialect_);
    if (text == nullptr) continue;
    std::string body = text;
    for (size_t at; (at = body.find("{T}")) != std::string::npos;) body.replace(at, 3, QualifierOf(dialect_));
    out += body + "\n";
  }
  for (const auto& [name, text] : functions_) out += text + "\n";
  return out;
}

std::string Names::Unique(const std::string& wanted) {
  std::string base = Identifier(wanted);
  if (base.empty() || std::isdigit(static_cast<unsigned char>(base[0])) != 0) base = "v" + base;
  if (IsReserved(base, dialect_)) base += "_";
  std::string name = base;
  for (int i = 1; !taken_.insert(name).second; ++i) name = base + "_" + std::to_string(i);
  return name;
}

void ExprPrinter::BindVars(const Stmt& stmt) {
  if (stmt == nullptr) return;
  if (stmt->kind == StmtKind::kFor) BindVar(stmt->var, Interval{0, stmt->extent - 1});
  if (stmt->kind == StmtKind::kLet) BindVar(stmt->var, analyzer_.Bounds(stmt->value));
  for (const Stmt& child : stmt->body) BindVars(child);
}

void ExprPrinter::BindVar(const Expr& var, std::optional<Interval> range) {
  const auto [it, first] = bound_.emplace(var.get(), range);
  std::optional<Interval>& all = it->second;
  if (!first) {
    if (all && range)
      all = Interval{std::min(all->min, range->min), std::max(all->max, range->max)};
    else
      all.reset();
  }
  if (all)
    analyzer_.Bind(var, *all);
  else
    analyzer_.Forget(var);
}

bool ExprPrinter::FitsInt32(const Expr& e) {
  const bool index = e->dtype == DType::kInt64;
  if (index && e->kind == ExprKind::kLoad) return FitsInt32(e->args[0]);
  if (index && !HasLoad(e)) {
    const std::optional<Interval> bounds = analyzer_.Bounds(e);
    if (!bounds || bounds->min < std::numeric_limits<int32_t>::min() ||
        bounds->max > std::numeric_limits<int32_t>::max())
      return false;
  }
  for (const Expr& arg : e->args)
    if (!FitsInt32(arg)) return false;
  return true;
}

void ExprPrinter::ChooseIndexType(const KernelFunc& kernel) {
  index64_ = dialect_ == Dialect::kC;
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  for (const BufferDecl& param : kernel.params) index64_ |= param.elements > kLimit;
  const std::function<void(const Stmt&)> check = [&](const Stmt& stmt) {
    if (stmt == nullptr || index64_) return;
    index64_ |= stmt->kind == StmtKind::kAlloc && stmt->decl.elements > kLimit;
    index64_ |= stmt->kind == StmtKind::kFor && stmt->extent > kLimit;
    for (const Expr* e : {&stmt->index, &stmt->value, &stmt->condition})
      if (*e != nullptr && !FitsInt32(*e)) index64_ = true;
    for (const Expr& e : stmt->operands) index64_ |= !FitsInt32(e);
    for (const Stmt& child : stmt->body) check(child);
  };
  check(kernel.body);
}

const std::string& ExprPrinter::VarName(const Expr& var) {
  auto it = vars_.find(var.get());
  if (it == vars_.end()) it = vars_.emplace(var.get(), names_.Unique(var->name)).first;
  return it->second;
}

bool ExprPrinter::is_wide(const Expr& e) const {
  if (e->dtype != DType::kInt64) return false;
  if (index64_) return true;
  bool wide = false;
  Visit(e, [&](const ExprNode& node) {
    if (node.dtype != DType::kInt64) return;
    wide |= node.kind == ExprKind::kLoad || node.kind == ExprKind::kCast;
    wide |= node.kind == ExprKind::kIntImm && node.value != static_cast<int32_t>(node.value);
  });
  return wide;
}

std::string ExprPrinter::IndexType() const { return index64_ ? "int64" : "int"; }

std::string ExprPrinter::StorageType(DType dtype) const {
  switch (dtype) {
    case DType::kFloat32: return "float";
    case DType::kFloat16: return dialect_ == Dialect::kOpenCl ? "half" : "unsigned short";
    case DType::kBfloat16: return dialect_ == Dialect::kOpenCl ? "ushort" : "unsigned short";
    case DType::kFloat64: return "double";
    case DType::kInt32: return "int";
    case DType::kInt64: return "int64";
    case DType::kInt8: return dialect_ == Dialect::kOpenCl ? "char" : "signed char";
    case DType::kBool:
    case DType::kUint8: return "unsigned char";
  }
  return "?";
}

std::string ExprPrinter::ValueType(DType dtype) const { return IsNarrowFloat(dtype) ? "float" : StorageType(dtype); }

const char* ExprPrinter::ConversionHelper(DType dtype, bool widens) {
  DIAPASON_CHECK_MSG(IsNarrowFloat(dtype), NameOf(dtype));
  if (dtype == DType::kBfloat16) return widens ? "bfloat16_to_float" : "float_to_bfloat16";
  return widens ? "half_to_float" : "float_to_half";
}

std::string ExprPrinter::Narrowed(DType dtype, const std::string& value) {
  return helpers_.Use(ConversionHelper(dtype, false)) + "(" + value + ")";
}

std::string ExprPrinter::Widened(DType dtype, const std::string& bits) {
  return helpers_.Use(ConversionHelper(dtype, true)) + "(" + bits + ")";
}

std::string ExprPrinter::IntLiteral(int64_t value, Dialect dialect) {
  const std::string suffix = dialect == Dialect::kOpenCl ? "L" : "LL";
  if (value == std::numeric_limits<int64_t>::min()) return "(-9223372036854775807" + suffix + " - 1)";
  if (value == std::numeric_limits<int32_t>::min()) return "(-2147483647 - 1)";
  return std::to_string(value) + (value == static_cast<int32_t>(value) ? "" : suffix);
}

std::string ExprPrinter::FloatLiteral(double value, DType dtype) {
  const bool is_double = dtype == DType::kFloat64;
  const std::string sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value) || std::isnan(value)) {
    const bool inf = std::isinf(value);
    switch (dialect_) {
      case Dialect::kC:
        return sign + (inf ? "__builtin_inf" : "__builtin_nan") + (is_double ? "(" : "f(") + (inf ? ")" : "\"\")");
      case Dialect::kOpenCl: return sign + (inf ? "INFINITY" : "NAN");
      case Dialect::kCuda:
        if (!is_double) return sign + "__int_as_float(" + (inf ? "0x7f800000)" : "0x7fffffff)");
        return sign + "__longlong_as_double(" + (inf ? "0x7ff0000000000000LL)" : "0x7fffffffffffffffLL)");
    }
  }
  char text[64];  // the shortest text that reads back as the same number
  const auto end = is_double ? std::to_chars(text, text + sizeof text, value)
                             : std::to_chars(text, text + sizeof text, static_cast<float>(value));
  std::string out(text, end.ptr);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return is_double ? out : out + "f";
}

std::string ExprPrinter::InfixText(const ExprNode& e, const char* op, int level, int precedence,
                                   bool right_associates) {
  const int right = right_associates ? level : level + 1;
  return Parenthesized(Text(e.args[0], level) + op + Text(e.args[1], right), level, precedence);
}

// Division by a power of two is a shift and a mask, also of negative numbers; by others a plain division where the
// dividend cannot be negative, else a helper.
std::string ExprPrinter::DivisionText(const ExprNode& e, int precedence) {
  const bool division = e.kind == ExprKind::kFloorDiv;
  const int64_t divisor = IntValue(e.args[1]);
  if (IsPowerOfTwo(divisor)) {
    if (!division) return "(" + Text(e.args[0], kSumLevel) + " & " + IntLiteral(divisor - 1, dialect_) + ")";
    const int shift = std::countr_zero(static_cast<uint64_t>(divisor));
    return Parenthesized(Text(e.args[0], kSumLevel) + " >> " + std::to_string(shift), kShiftLevel, precedence);
  }
  const std::optional<Interval> bounds = analyzer_.Bounds(e.args[0]);
  const bool wide = is_wide(e.args[0]) || dialect_ == Dialect::kC;
  if (bounds && bounds->min >= 0) {
    const std::string text = IntLiteral(divisor, dialect_);
    if (wide)
      return Parenthesized(Text(e.args[0], kProductLevel) + (division ? " / " : " % ") + text, kProductLevel,
                           precedence);
    // Unsigned: a multiplication and a shift, without the correction for negative dividends.
    return helpers_.Use(division ? "udiv32" : "umod32") + "(" + Text(e.args[0]) + ", " + text + ")";
  }
  return helpers_.Use(std::string(division ? "floordiv" : "floormod") + (wide ? "64" : "32")) + "(" + Text(e.args[0]) +
         ", " + IntLiteral(divisor, dialect_) + ")";
}

std::string ExprPrinter::CastText(const ExprNode& e, int precedence) {
  const Expr& from = e.args[0];
  if (e.dtype == DType::kBool) {
    const std::string zero = IsFloat(from->dtype) ? FloatLiteral(0, from->dtype) : "0";
    return Parenthesized(Text(from, kEqualityLevel + 1) + " != " + zero, kEqualityLevel, precedence);
  }
  // Its relative error, 2^-21 and 2^-24 for each unit of the argument, is far below half a spacing of 16 bits.
  const bool coarse = dialect_ == Dialect::kCuda && IsNarrowFloat(e.dtype) && from->dtype == DType::kFloat32;
  if (coarse && from->kind == ExprKind::kCall && from->name == "exp") {
    const Expr& x = from->args[0];
    if (x->kind == ExprKind::kSub)
      return helpers_.Use("coarse_exp_below") + "(" + Text(x->args[1]) + ", " + Text(x->args[0]) + ")";
    if (x->kind == ExprKind::kMul && x->args[1]->kind == ExprKind::kSub)
      return helpers_.Use("coarse_exp_scaled") + "(" + Text(x->args[0]) + ", " + Text(x->args[1]->args[1]) + ", " +
             Text(x->args[1]->args[0]) + ")";
    return helpers_.Use("coarse_exp") + "(" + Text(x) + ")";
  }
  // Elements of a row have one divisor, whose reciprocal is taken once. Where it overflows the divisor is below 2^-128.
  if (coarse && from->kind == ExprKind::kDiv && from->args[1]->kind == ExprKind::kLoad)
    return Parenthesized(
        Text(from->args[0], kProductLevel) + " * (1.0f / " + Text(from->args[1], kProductLevel + 1) + ")",
        kProductLevel, precedence);
  if (coarse) return CoarseText(from, precedence);
  if (ValueType(e.dtype) == ValueType(from->dtype)) return Text(from, precedence);
  // A number outside of a byte's range wraps, as in the interpreter; converted directly, it saturates on some devices.
  const bool wraps = (e.dtype == DType::kInt8 || e.dtype == DType::kUint8) && IsFloat(from->dtype);
  return Parenthesized("(" + ValueType(e.dtype) + ")" + (wraps ? "(int)" : "") + Atom(from), kUnaryLevel, precedence);
}

// Functions of which a product is rounded to 16 bits: their errors stay as small a part of it.
std::string ExprPrinter::CoarseText(const Expr& expr, int precedence) {
  const ExprNode& e = *expr;
  if (const Expr x = ArgumentOf(expr, &GeluByErf)) {
    helpers_.Use("limit_below");  // which it calls
    return helpers_.Use("coarse_gelu") + "(" + Text(x) + ")";
  }
  if (const Expr x = ArgumentOf(expr, &GeluByTanh)) return helpers_.Use("coarse_gelu_tanh") + "(" + Text(x) + ")";
  if (e.kind == ExprKind::kMul)
    return Parenthesized(CoarseText(e.args[0], kProductLevel) + " * " + CoarseText(e.args[1], kProductLevel + 1),
                         kProductLevel, precedence);
  if (e.kind == ExprKind::kCall && e.name == "sigmoid")
    return helpers_.Use("coarse_sigmoid") + "(" + Text(e.args[0]) + ")";
  if (e.kind == ExprKind::kAdd && e.args[0]->kind == ExprKind::kCall && e.args[1]->kind == ExprKind::kFloatImm &&
      e.args[1]->fvalue == 1) {
    const std::string& function = e.args[0]->name;
    if (function == "tanh" || function == "erf")
      return helpers_.Use("coarse_" + function + "_plus_1") + "(" + Text(e.args[0]->args[0]) + ")";
  }
  return Text(expr, precedence);
}

std::string ExprPrinter::ExtremumText(const ExprNode& e) {
  const bool is_min = e.kind == ExprKind::kMin;
  std::string name;
  if (!IsFloat(e.dtype)) {
    const bool wide = is_wide(e.args[0]) || is_wide(e.args[1]) || (e.dtype == DType::kInt64 && dialect_ == Dialect::kC);
    name = std::string(is_min ? "min" : "max") + (wide ? "64" : "32");
  } else if (dialect_ == Dialect::kC) {
    name = std::string(is_min ? "min" : "max") + (e.dtype == DType::kFloat64 ? "d" : "f");
  } else if (e.args[1]->kind == ExprKind::kFloatImm && e.dtype != DType::kFloat64) {
    name = is_min ? "limit_above" : "limit_below";
  } else {
    const bool f = dialect_ == Dialect::kCuda && e.dtype != DType::kFloat64;
    name = std::string(is_min ? "fmin" : "fmax") + (f ? "f" : "");
  }
  return helpers_.Use(name) + "(" + Text(e.args[0]) + ", " + Text(e.args[1]) + ")";
}

std::string ExprPrinter::CallName(const std::string& function, DType dtype) {
  std::string name = function == "abs" ? "fabs" : function == "round" ? "rint" : function;
  static const auto& kBuiltin = *new std::set<std::string>{"sqrt", "fabs", "floor", "ceil", "rint"};
  const bool builtin = dialect_ == Dialect::kC && kBuiltin.count(name) != 0;
  // OpenCL's own functions are overloaded; these are ours.
  const bool ours = name == "sigmoid" || name == "bfloat16" || name == "tf32";
  if (dtype != DType::kFloat64 && (dialect_ != Dialect::kOpenCl || ours)) name += "f";
  return builtin ? "__builtin_" + name : helpers_.Use(name);
}

std::string ExprPrinter::CallText(const ExprNode& e) {
  std::string args;
  for (const Expr& arg : e.args) args += (args.empty() ? "" : ", ") + Text(arg);
  if (IsFloat(e.dtype)) return CallName(e.name, e.dtype) + "(" + args + ")";
  DIAPASON_CHECK_MSG(e.name == "abs", e.name + " of integers");
  return helpers_.Use("abs64") + "(" + args + ")";
}

std::string ExprPrinter::Atom(const Expr& e) { return Text(e, kPostfixLevel); }

std::string ExprPrinter::Text(const Expr& expr, int precedence) {
  const ExprNode& e = *expr;
  switch (e.kind) {
    case ExprKind::kIntImm:
      return Parenthesized(IntLiteral(e.value, dialect_), e.value < 0 ? kUnaryLevel : kPostfixLevel, precedence);
    case ExprKind::kFloatImm:
      return Parenthesized(FloatLiteral(e.fvalue, e.dtype), std::signbit(e.fvalue) ? kUnaryLevel : kPostfixLevel,
                           precedence);
    case ExprKind::kVar: return VarName(expr);
    case ExprKind::kAdd:
      if (!IsFloat(e.dtype) && e.args[1]->kind == ExprKind::kIntImm && e.args[1]->value < 0 &&
          e.args[1]->value > std::numeric_limits<int32_t>::min())
        return Parenthesized(Text(e.args[0], kSumLevel) + " - " + IntLiteral(-e.args[1]->value, dialect_), kSumLevel,
                             precedence);
      return InfixText(e, " + ", kSumLevel, precedence, false);
    case ExprKind::kSub: return InfixText(e, " - ", kSumLevel, precedence, false);
    case ExprKind::kMul: return InfixText(e, " * ", kProductLevel, precedence, false);
    case ExprKind::kDiv: return InfixText(e, " / ", kProductLevel, precedence, false);
    case ExprKind::kFloorDiv:
    case ExprKind::kFloorMod: return DivisionText(e, precedence);
    case ExprKind::kMin:
    case ExprKind::kMax: return ExtremumText(e);
    case ExprKind::kLt: return InfixText(e, " < ", kRelationalLevel, precedence, false);
    case ExprKind::kLe: return InfixText(e, " <= ", kRelationalLevel, precedence, false);
    case ExprKind::kEq: return InfixText(e, " == ", kEqualityLevel, precedence, false);
    case ExprKind::kNe: return InfixText(e, " != ", kEqualityLevel, precedence, false);
    case ExprKind::kAnd: return InfixText(e, " && ", kAndLevel, precedence, true);
    case ExprKind::kOr: return InfixText(e, " || ", kOrLevel, precedence, true);
    case ExprKind::kNot: return Parenthesized("!" + Text(e.args[0], kUnaryLevel), kUnaryLevel, precedence);
    case ExprKind::kSelect:
      return Parenthesized(Text(e.args[0], kOrLevel) + " ? " + Text(e.args[1], kConditionalLevel + 1) + " : " +
                               Text(e.args[2], kConditionalLevel),
                           kConditionalLevel, precedence);
    case ExprKind::kCast: return CastText(e, precedence);
    case ExprKind::kCall: return CallText(e);
    case ExprKind::kLoad: return LoadText(e);
  }
  return "?";
}

}  // namespace diapason
