// diapason profile: the report as text, as JSON and as a trace.
#include <fstream>
#include <iterator>

#include "tests/cli/testing.h"

namespace diapason {
namespace {

class ProfileCommand : public CliTest {
 protected:
  void Build(std::vector<std::string> model) {
    model.insert(model.begin(), "build");
    model.insert(model.end(), {"--target", "cpu -num-cores=1", "--no-check", "--out", Path("package")});
    const CliResult built = Cli(model);
    ASSERT_EQ(built.code, 0) << built.err;
  }
  CliResult Profile(std::vector<std::string> more) {
    more.insert(more.begin(), {"profile", Path("package"), "--duration", "0.05", "--warm-up-ms", "1"});
    return Cli(more);
  }
};

TEST_F(ProfileCommand, CountsTheOperationsOfAProduct) {
  Build({"gemm", "--m", "32", "--n", "64", "--k", "128", "--set", "constant=0"});
  const CliResult result = Profile({"--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const auto json = result.json();
  EXPECT_EQ(json["schema"], "diapason.profile/2");
  EXPECT_EQ(json["target"], "cpu -num-cores=1");
  EXPECT_GT(json["peak_gflops_per_s"], 0);
  ASSERT_EQ(json["plans"].size(), 1u);
  const auto& plan = json["plans"][0];
  double flops = 0, us = plan["disturbed_us"].get<double>() + plan["between_us"].get<double>(), shares = 0;
  for (const auto& kernel : plan["kernels"]) {
    flops += kernel["flops"].get<double>();
    us += kernel["time_us"].get<double>();
    shares += kernel["share"].get<double>();
    EXPECT_NEAR(kernel["gflops_per_s"], kernel["flops"].get<double>() / kernel["time_us"].get<double>() * 1e-3,
                1e-6 * kernel["gflops_per_s"].get<double>());
    EXPECT_NEAR(kernel["roofline"]["fraction"],
                kernel["roofline"]["limit_us"].get<double>() / kernel["time_us"].get<double>(), 1e-6);
    EXPECT_EQ(kernel["record"], nullptr);
    EXPECT_EQ(kernel["task"], "gemm_32x64x128");
  }
  // Tiles may go beyond the edges, and a copy of a factor is no arithmetic.
  EXPECT_GE(flops, 2.0 * 32 * 64 * 128);
  EXPECT_LT(flops, 2.5 * 32 * 64 * 128);
  EXPECT_NEAR(us, plan["latency_us"], 1e-6 * us);
  EXPECT_NEAR(shares, plan["kernels_us"].get<double>() / plan["latency_us"].get<double>(), 1e-6);
}

TEST_F(ProfileCommand, PrintsATable) {
  Build({"gemm", "--m", "32", "--n", "64", "--k", "128"});
  const CliResult result = Profile({"--peak-gflops", "1", "--peak-gbs", "1000"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find(", peak 1.000 GFLOP/s (float32) and 1000 GB/s\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("#  "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("compute"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("; medians of "), std::string::npos) << result.out;
}

TEST_F(ProfileCommand, WritesATraceWhoseKernelsFollowEachOther) {
  Build({"gemm", "--m", "32", "--n", "64", "--k", "128"});
  const CliResult result = Profile({"--trace", Path("trace.json"), "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  std::ifstream file(Path("trace.json"));
  const auto trace = nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  double at = 0;
  size_t kernels = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M") continue;
    EXPECT_EQ(event["ph"], "X");
    EXPECT_NEAR(event["ts"], at, 1e-9);
    at += event["dur"].get<double>();
    kernels += event["cat"] == "kernel";
  }
  EXPECT_EQ(kernels, result.json()["plans"][0]["kernels"].size());
  ASSERT_GT(kernels, 0u);

  ExpectError(
      Profile({"--trace", Path("none/trace.json")}),
      "cannot write '" + Path("none/trace.json") +
          "' (No such file or directory); name a file in a folder that exists, with room, that you may write to");
  // An earlier trace is replaced, another file is not.
  EXPECT_EQ(Profile({"--trace", Path("trace.json")}).code, 0);
  EXPECT_EQ(Profile({"--trace", Path("trace.json")}).code, 0);
  std::ofstream(Path("other.json")) << "{\"a\": 1}";
  ExpectError(Profile({"--trace", Path("other.json")}),
              "'" + Path("other.json") + "' is there already and is no trace of this program; name another file");
}

TEST_F(ProfileCommand, ShowsEachPlanOrTheOneThatIsAskedFor) {
  Build({"gemm", "--m", "8", "--n", "8", "--k", "8"});
  ExpectError(Cli({"profile", Path("none")}), "there is no file or folder '" + Path("none") +
                                                  "'; name a folder or a .dpk file made by 'diapason build'");
  ExpectError(Profile({"--dim", "seq=4"}), "the package has no symbolic dimension 'seq': its shapes are fixed");
}

TEST_F(ProfileCommand, PackagesThatDoNotSayTheirWorkAreTimedAllTheSame) {
  Build({"gemm", "--m", "8", "--n", "8", "--k", "8"});
  std::ifstream in(Path("package/manifest.json"));
  auto manifest = nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  for (auto& task : manifest["tasks"]) task.erase("work");
  std::ofstream(Path("package/manifest.json")) << manifest.dump();
  const CliResult result = Profile({"--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "warning: package '" + Path("package") +
                            "' does not say how many operations its kernels execute, so that rates are not known; "
                            "build it again\n");
  EXPECT_EQ(result.json()["plans"][0]["kernels"][0]["gflops_per_s"], nullptr);
  EXPECT_GT(result.json()["plans"][0]["kernels"][0]["time_us"], 0);
}

}  // namespace
}  // namespace diapason
