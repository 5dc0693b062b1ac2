#include "compiler/codegen/byte_dots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "base/run_program.h"
#include "compiler/codegen/temporary.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A program that ends with 0 if the function computes what a loop over bytes does, for all values of a byte and for
// those sums that are largest.
std::string ByteDotProgram(bool left_signed, bool right_signed, int lanes) {
  const ByteDotFunctions f = ByteDotFunctionsFor(left_signed, right_signed, lanes);
  const std::string v = absl::StrCat("i32x", lanes);
  std::string ones;
  for (int i = 0; i < lanes; ++i) ones += i == 0 ? "x" : ", x";
  const auto type = [](bool is_signed) { return is_signed ? "signed char" : "unsigned char"; };
  return absl::StrCat("typedef int ", v, " __attribute__((vector_size(", 4 * lanes, ")));\nstatic inline ", v, " ", v,
                      "_set(int x) { return (", v, "){", ones, "}; }\n", f.types, "\n", f.dots, "\n", f.pairs, "\n",
                      f.text, "\n#define LANES ", lanes, "\ntypedef ", type(left_signed), " Left;\ntypedef ",
                      type(right_signed), " Right;\n", v, " Compute(", v,
                      " sum, int left, const void* right) { return ", f.name, "(sum, left, right); }\n",
                      R"(int main(void) {
  unsigned state = 1;
  for (int round = 0; round < 20000; ++round) {
    Left left[4];
    Right right[4 * LANES + 1];
    for (int i = 0; i < 4; ++i) {
      state = state * 1664525u + 1013904223u;
      left[i] = round < 4 ? (Left)(round & 1 ? 0x80 : 0x7f) + (round & 2 ? 0x80 : 0) : (Left)(state >> 24);
    }
    for (int i = 0; i <= 4 * LANES; ++i) {
      state = state * 1664525u + 1013904223u;
      right[i] = round < 4 ? (Right)(round & 2 ? 0x80 : 0x7f) + (round & 1 ? 0x80 : 0) : (Right)(state >> 24);
    }
    int bytes;
    __builtin_memcpy(&bytes, left, 4);
    union { )",
                      v, R"( v; int at[LANES]; } start, sums;
    for (int i = 0; i < LANES; ++i) start.at[i] = (int)(state >> 8) - 1000 * i;
    sums.v = Compute(start.v, bytes, right + 1);  // from an address that is not aligned
    for (int i = 0; i < LANES; ++i) {
      int want = start.at[i];
      for (int q = 0; q < 4; ++q) want += left[q] * right[1 + 4 * i + q];
      if (sums.at[i] != want) return 1;
    }
  }
  return 0;
}
)");
}

class ByteDotsTest : public ::testing::Test {
 protected:
  // The path of what a compiler made.
  std::string Compile(const std::string& compiler, const std::string& source, std::vector<std::string> flags) {
    const std::string in = folder_.File("dots.c"), out = folder_.File("dots.out");
    std::ofstream(in) << source;
    ProgramOptions options;
    options.args = {compiler, "-O2", "-w", "-std=gnu11", "-o", out, in};
    options.args.insert(options.args.end(), flags.begin(), flags.end());
    options.environment = CleanEnvironment();
    options.one_output = true;
    const auto result = RunProgram(options);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return "";
    EXPECT_EQ(result->exit_code, 0) << result->output;
    return out;
  }

  std::string Assembly(const std::string& compiler, const std::string& source, std::vector<std::string> flags) {
    flags.push_back("-S");
    std::ifstream file(Compile(compiler, source, std::move(flags)));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const TemporaryDirectory folder_ = TemporaryDirectory::Create().value();
};

// On this processor, by what it has and by what all have.
TEST_F(ByteDotsTest, SumProductsExactly) {
  for (const bool left : {false, true}) {
    for (const bool right : {false, true}) {
      for (const int lanes : {4, 8, 16}) {
        for (const char* flag : {"-march=native", "-mtune=generic"}) {
          SCOPED_TRACE(absl::StrCat(left, right, " ", lanes, " ", flag));
          ProgramOptions options;
          options.args = {Compile("cc", ByteDotProgram(left, right, lanes), {flag})};
          options.environment = CleanEnvironment();
          const auto result = RunProgram(options);
          ASSERT_TRUE(result.ok()) << result.status();
          EXPECT_EQ(result->exit_code, 0);
        }
      }
    }
  }
}

#ifdef __x86_64__
TEST_F(ByteDotsTest, AreTheProcessorsInstructions) {
  for (const bool left : {false, true}) {
    for (const bool right : {false, true}) {
      for (const int lanes : {4, 8, 16}) {
        SCOPED_TRACE(absl::StrCat(left, right, " ", lanes));
        const std::string source = ByteDotProgram(left, right, lanes);
        EXPECT_THAT(Assembly("cc", source, {"-march=icelake-server"}), HasSubstr("vpdpbusd"));
        EXPECT_THAT(Assembly("cc", source, {"-march=skylake-avx512"}), HasSubstr("vpmaddwd"));
        if (lanes == 16) continue;
        EXPECT_THAT(Assembly("cc", source, {"-march=alderlake"}), HasSubstr("{vex} vpdpbusd"));
        EXPECT_THAT(Assembly("cc", source, {"-march=x86-64-v3"}), HasSubstr("vpmaddwd"));
        EXPECT_THAT(Assembly("cc", source, {"-march=x86-64-v3"}), Not(HasSubstr("vpdpbusd")));
      }
    }
  }
  EXPECT_THAT(Assembly("cc", ByteDotProgram(false, true, 4), {"-march=x86-64"}), HasSubstr("pmaddwd"));
}
#endif

}  // namespace
}  // namespace diapason
