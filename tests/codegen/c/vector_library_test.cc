#include "compiler/codegen/c/vector_library.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(CVectorLibrary, NarrowFloatsAreHeldAsFloatsAndBytesNotAsTheyAreStored) {
  EXPECT_TRUE(CVectorLibrary::HoldsAlike(DType::kFloat16, DType::kFloat32));
  EXPECT_FALSE(CVectorLibrary::HoldsAlike(DType::kInt32, DType::kFloat32));
  EXPECT_FALSE(CVectorLibrary::Holds(DType::kInt8));
  EXPECT_FALSE(CVectorLibrary::HoldsAlike(DType::kInt8, DType::kInt8));
  EXPECT_EQ(CVectorLibrary::ElementBytes(DType::kFloat64), 8);
  EXPECT_EQ(CVectorLibrary::ElementBytes(DType::kBfloat16), 4);
  EXPECT_EQ(CVectorLibrary::ElementBytes(DType::kUint8), 4) << "lanes of int";
}

TEST(CVectorLibrary, DefinesWhatItNamesAndWhatThatNeeds) {
  Helpers helpers(Dialect::kC);
  CVectorLibrary library(helpers);
  EXPECT_EQ(library.Type(DType::kFloat32, 8), "f32x8");
  EXPECT_EQ(library.Select(DType::kFloat32, 8), "f32x8_select");
  EXPECT_EQ(library.Select(DType::kFloat32, 8), "f32x8_select");
  EXPECT_EQ(helpers.Text(),
            "typedef float f32x8 __attribute__((vector_size(32)));\n"
            "typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));\n"
            "typedef int i32x8 __attribute__((vector_size(32)));\n"
            "typedef int i32x8u __attribute__((vector_size(32), aligned(4), may_alias));\n"
            "static inline f32x8 f32x8_select(i32x8 m, f32x8 a, f32x8 b) { return (f32x8)((m & (i32x8)a) | (~m & "
            "(i32x8)b)); }\n");
}

// Dot products of 4 lanes have vectors of 8 int16 of their own, with which the loads of 8 narrow floats have to get on.
TEST(CVectorLibrary, BytesAndNarrowFloatsHaveTheirTypes) {
  std::string texts[2];
  for (int first : {0, 1}) {
    Helpers helpers(Dialect::kC);
    CVectorLibrary library(helpers);
    for (int turn : {first, 1 - first}) {
      if (turn == 0)
        library.ByteDots(false, true, 4);
      else
        library.NarrowAccess(DType::kFloat16, 4, /*load=*/false);
    }
    texts[first] = helpers.Text();
  }
  EXPECT_EQ(texts[0], texts[1]);
  for (const char* type : {"s16x8u __attribute__", "s16x8 __attribute__"})
    EXPECT_NE(texts[0].find(type), std::string::npos) << type << texts[0];
}

TEST(CVectorLibrary, MasksAreAsWideAsElements) {
  Helpers helpers(Dialect::kC);
  CVectorLibrary library(helpers);
  EXPECT_EQ(library.MaskType(4, 4), "i32x4");
  EXPECT_EQ(library.MaskType(8, 4), "m64x4");
}

TEST(CVectorLibrary, OtherFunctionsCallTheScalarOneForEachLane) {
  Helpers helpers(Dialect::kC);
  CVectorLibrary library(helpers);
  EXPECT_EQ(library.MathFunction("exp", DType::kFloat32, 8), "f32x8_exp");
  EXPECT_EQ(library.MathFunction("exp", DType::kFloat64, 4), "");
  EXPECT_EQ(library.MathFunction("pow", DType::kFloat32, 8), "");
  EXPECT_EQ(library.CallEachLane("pow", "powf", 2, DType::kFloat32, 8), "f32x8_pow");
  EXPECT_NE(helpers.Text().find("static inline f32x8 f32x8_pow(f32x8 x, f32x8 y) {\n  f32x8 r;\n"
                                "  for (int i = 0; i < 8; ++i) r[i] = powf(x[i], y[i]);\n  return r;\n}"),
            std::string::npos)
      << helpers.Text();
}

TEST(CVectorLibrary, ErfIsDefinedBehindExp) {
  Helpers helpers(Dialect::kC);
  CVectorLibrary library(helpers);
  EXPECT_EQ(library.MathFunction("erf", DType::kFloat32, 8), "f32x8_erf");
  const std::string text = helpers.Text();
  const size_t exp = text.find("f32x8 f32x8_exp("), erf = text.find("f32x8 f32x8_erf(");
  EXPECT_NE(erf, std::string::npos) << text;
  EXPECT_LT(exp, erf) << text;
}

TEST(CVectorLibrary, RoundingIsAnInstructionOfTheProcessor) {
  Helpers helpers(Dialect::kC);
  CVectorLibrary library(helpers);
  EXPECT_EQ(library.InstructionFunction("round", "rintf", DType::kFloat32, 8), "f32x8_round");
  EXPECT_EQ(library.InstructionFunction("round", "rint", DType::kFloat64, 4), "");
  EXPECT_EQ(library.InstructionFunction("pow", "powf", DType::kFloat32, 8), "");
  const std::string text = helpers.Text();
  EXPECT_NE(text.find("#if defined(__AVX__)\n  return __builtin_ia32_roundps256(x, 4);\n#else"), std::string::npos)
      << text;
  EXPECT_NE(text.find("r[i] = rintf(x[i])"), std::string::npos) << "elsewhere: " << text;
}

TEST(CVectorLibrary, BytesAreStoredFromLanesOfInt) {
  Helpers helpers(Dialect::kC);
  CVectorLibrary library(helpers);
  EXPECT_EQ(library.Type(DType::kInt8, 8), "i32x8");
  EXPECT_EQ(library.Extremum(true, DType::kUint8, 8), "i32x8_min");
  EXPECT_EQ(library.ByteStore(8), "bytes8_store");
  EXPECT_NE(helpers.Text().find("static inline void bytes8_store(unsigned char* p, i32x8 x) {"), std::string::npos);
}

TEST(CVectorLibrary, SixteenHalvesAreTwoTimesEight) {
  Helpers helpers(Dialect::kC);
  CVectorLibrary library(helpers);
  EXPECT_EQ(library.NarrowAccess(DType::kFloat16, 16, true), "f16x16_load");
  const std::string text = helpers.Text();
  const size_t half = text.find("f16x8_load(const"), whole = text.find("f16x16_load(const");
  EXPECT_NE(half, std::string::npos) << text;
  EXPECT_LT(half, whole) << text;
}

}  // namespace
}  // namespace diapason
