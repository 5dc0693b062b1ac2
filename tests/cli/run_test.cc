// diapason run: what it measures, and outputs compared with files.
#include <fstream>
#include <limits>

#include "api/npy.h"
#include "api/tensor_file.h"
#include "compiler/tensor/array.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

class RunCommand : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    const CliResult built = Cli({"build", "gemm", "--m", "2", "--n", "2", "--k", "2", "--set", "constant=0", "--target",
                                 "cpu", "--no-check", "--out", Path("package")});
    ASSERT_EQ(built.code, 0) << built.err;
    Write("a.npy", {1, 2, 3, 4});
    Write("ab.npy", {7, 10, 15, 22});
  }
  void Write(const std::string& name, const std::vector<float>& values) {
    ASSERT_TRUE(api::WriteNpyFile(Path(name), Array::FromFloats({2, 2}, values)).ok());
  }
  // a * a, compared.
  CliResult Run(std::vector<std::string> more) {
    more.insert(more.begin(),
                {"run", Path("package"), "--input", "a=" + Path("a.npy"), "--input", "b=" + Path("a.npy")});
    return Cli(more);
  }
};

TEST_F(RunCommand, MeasuresPercentilesAndThroughput) {
  const std::vector<std::string> flags = {"--duration", "0.02", "--warm-up-ms",    "1",
                                          "--repeat",   "3",    "--min-repeat-ms", "2"};
  const CliResult text = Run(flags);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("\nlatency p50 "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(", p90 "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(", p99 "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\nthroughput "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(" runs/s back to back\n"), std::string::npos) << text.out;

  std::vector<std::string> with_json = flags;
  with_json.push_back("--json");
  const auto json = Run(with_json).json();
  const auto& latency = json["latency"];
  EXPECT_GE(latency["runs"], 10);
  EXPECT_GT(latency["min_us"], 0);
  EXPECT_LE(latency["min_us"], latency["p50_us"]);
  EXPECT_LE(latency["p50_us"], latency["p90_us"]);
  EXPECT_LE(latency["p90_us"], latency["p99_us"]);
  EXPECT_LE(latency["p99_us"], latency["max_us"]);
  EXPECT_EQ(latency["median_us"], latency["p50_us"]);
  EXPECT_EQ(json["throughput"]["samples_us"].size(), 3u);
  EXPECT_GT(json["throughput"]["runs_per_sample"], 1);
  EXPECT_GT(json["throughput"]["runs_per_s"], 0);

  EXPECT_FALSE(Run({"--json"}).json().contains("latency")) << "nobody asked";
}

TEST_F(RunCommand, RunsAsOftenAsIterationsSays) {
  const auto json =
      Run({"--duration", "0.000001", "--iterations", "25", "--repeat", "1", "--min-repeat-ms", "0.1", "--json"}).json();
  EXPECT_EQ(json["latency"]["runs"], 25);
}

TEST_F(RunCommand, ComparesAnOutputWithAFile) {
  const CliResult equal = Run({"--compare", "output=" + Path("ab.npy")});
  EXPECT_EQ(equal.code, 0);
  EXPECT_EQ(equal.out,
            "output output: float32 2x2\ncompare output ok: 4 elements are all equal to " + Path("ab.npy") + "\n");

  Write("near.npy", {7, 10, 15, 22.01f});
  const CliResult near = Run({"--compare", "output=" + Path("near.npy")});
  EXPECT_EQ(near.code, 0);
  EXPECT_EQ(near.out, "output output: float32 2x2\ncompare output ok: 4 elements agree with " + Path("near.npy") +
                          ", largest error 0.01, 0.000454 of the magnitude (allowed: 0.001)\n");

  Write("far.npy", {7, 10, 15, 23});
  const CliResult far = Run({"--compare", "output=" + Path("far.npy")});
  EXPECT_EQ(far.code, 1);
  EXPECT_EQ(
      far.out,
      "output output: float32 2x2\ncompare output FAILED: 1 of 4 elements differ from " + Path("far.npy") +
          ", largest error 1, 0.0435 of the magnitude (allowed: 0.001); element [1,1] is 22 where the file has 23\n");
  EXPECT_EQ(far.err, "error: output 'output' differs from " + Path("far.npy") +
                         " in 1 of 4 elements (element [1,1] is 22 where the file has 23); --check compares with the "
                         "network itself, --tolerance "
                         "allows more\n");
  EXPECT_EQ(Run({"--compare", "output=" + Path("far.npy"), "--tolerance", "0.05"}).code, 0);

  const auto json = Run({"--compare", "output=" + Path("far.npy"), "--json"}).json();
  ASSERT_EQ(json["compare"].size(), 1u);
  EXPECT_EQ(json["compare"][0]["ok"], false);
  EXPECT_EQ(json["compare"][0]["differing"], 1);
  EXPECT_NEAR(json["compare"][0]["max_abs_error"], 1, 1e-5);
}

TEST_F(RunCommand, ComparesFloatsOfAnyWidthAndNonFiniteOnes) {
  Array wide(DType::kFloat64, {2, 2});
  for (int i = 0; i < 4; ++i) wide.set(i, std::vector<double>({7, 10, 15, 22})[i]);
  ASSERT_TRUE(api::WriteNpyFile(Path("wide.npy"), wide).ok());
  EXPECT_EQ(Run({"--compare", "output=" + Path("wide.npy")}).code, 0);
  Write("nan.npy", {7, 10, 15, std::numeric_limits<float>::quiet_NaN()});
  const CliResult nan = Run({"--compare", "output=" + Path("nan.npy")});
  EXPECT_EQ(nan.code, 1);
  EXPECT_NE(nan.err.find("in 1 of 4 elements (element [1,1] is 22 where the file has nan)"), std::string::npos)
      << nan.err;
}

TEST_F(RunCommand, SaysWhatIsWrongWithAComparison) {
  ExpectError(Run({"--compare", "output"}), "--compare output is not understood; write it as OUTPUT=FILE");
  ExpectError(Run({"--compare", "output=a.npy", "--compare", "output=b.npy"}),
              "--compare names the output 'output' twice; give it once");
  ExpectError(Run({"--compare", "scores=" + Path("ab.npy")}),
              "--compare scores=" + Path("ab.npy") + ": the package has no output 'scores'; its outputs are: 'output'");
  ASSERT_TRUE(api::WriteNpyFile(Path("flat.npy"), Array(DType::kFloat32, {4})).ok());
  ExpectError(
      Run({"--compare", "output=" + Path("flat.npy")}),
      Path("flat.npy") + " is float32 4, and output 'output' is float32 2x2; give a file of that type and shape");
  ExpectError(Run({"--compare", "output=" + Path("none.npy")}),
              Path("none.npy") + " cannot be read (No such file or directory); name a .npy or .pb file");
  ExpectError(Run({"--compare", "output=" + Path("ab.npy"), "--tolerance", "no"}),
              "--tolerance no: give a number above 0", 2);
}

}  // namespace
}  // namespace diapason
