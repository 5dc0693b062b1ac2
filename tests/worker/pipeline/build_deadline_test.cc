// The real builders with compilers that do not come back: the agent's deadline is the one that counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "diapason/v1/tracker.pb.h"
#include "tests/sanitizers.h"
#include "tests/worker/testing.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;

// The program is lowered before the compiler gets it, which takes a sanitizer longer.
constexpr int kDeadlineSeconds = 3 * kTimesSlower;

PipelineOptions RealBuilders(const TemporaryFolder& folder) {
  PipelineOptions options;
  options.builder_args[0] = options.runner_args[0] = "worker_tests";
  options.devices = {"cpu"};
  options.builders = 1;
  options.scratch_base = folder.path();
  options.build_timeout_seconds = kDeadlineSeconds;
  return options;
}

void ExpectBuildTimeout(const v1::MeasureResult& result) {
  ASSERT_TRUE(result.has_error()) << result.DebugString();
  EXPECT_EQ(result.error().kind(), "build_timeout");
  EXPECT_EQ(result.error().stage(), "compile");
  EXPECT_EQ(result.error().text(), absl::StrCat("not built within ", kDeadlineSeconds, " s"));
}

TEST(BuildDeadline, EndsACCompilerThatHangs) {
  TemporaryFolder folder, compiler;
  const std::string script = compiler.path() + "/cc.sh", flag = compiler.path() + "/hang";
  std::ofstream(script) << "#!/bin/sh\ncase \"$*\" in *--version*) ;; *) if [ -e " << flag
                        << " ]; then sleep 1000; fi ;; esac\nexec cc \"$@\"\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  std::ofstream(flag) << "";
  setenv("CC", script.c_str(), 1);
  auto pipeline = Pipeline::Start(RealBuilders(folder));
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  ResultBox box;
  const auto began = std::chrono::steady_clock::now();
  v1::MeasureRequest request = FakeRequest(1, "");
  (*pipeline)->Submit(0, request, box.Taker());
  ExpectBuildTimeout(box.Wait(1, kDeadlineSeconds + 7));
  EXPECT_LT(SecondsSince(began), kDeadlineSeconds + 7);
  // The builder went with its compiler: by the time that its successor has built, nothing of it is left.
  std::filesystem::remove(flag);
  request.set_id(2);
  request.set_build_timeout_seconds(60);
  (*pipeline)->Submit(0, request, box.Taker());
  EXPECT_TRUE(box.Wait(2, 60).has_timing()) << box.Wait(2).DebugString();
  for (const std::string& child : Children()) EXPECT_THAT(child, ::testing::Not(HasSubstr("sleep")));
  EXPECT_EQ((*pipeline)->Statistics().builder_restarts(), 1u);
  (*pipeline)->Stop();
  unsetenv("CC");
}

// A kernel of one expression with so many terms that NVRTC, which works inside the builder, is busy for minutes.
ComputeDag EndlessForNvrtc() {
  constexpr int64_t kTerms = 30000;
  DagBuilder b;
  const int x = b.Placeholder("x", {kTerms + 32});
  const int y = b.Compute("y", {32}, [&](const DagBuilder::Vars& i) {
    const std::function<Expr(int64_t, int64_t)> sum = [&](int64_t first, int64_t count) -> Expr {
      if (count == 1) return Call("exp", {b.At(x, {Add(i[0], IntImm(first))})});
      return Div(sum(first, count / 2), sum(first + count / 2, count - count / 2));
    };
    return sum(0, kTerms);
  });
  return b.Build({y}).value();
}

TEST(BuildDeadline, EndsNvrtcInsideABuilder) {
  TemporaryFolder folder;
  PipelineOptions options = RealBuilders(folder);
  options.devices = {"cuda -arch=sm_90"};
  options.runner_args = {"worker_tests", "fake-runner"};
  auto pipeline = Pipeline::Start(options);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  ResultBox box;
  v1::MeasureRequest simple = FakeRequest(1, "");
  simple.set_target("cuda -arch=sm_90");
  simple.set_build_timeout_seconds(60);
  (*pipeline)->Submit(0, simple, box.Taker());
  const v1::MeasureResult first = box.Wait(1, 60);
  if (first.error().text().find("no CUDA compiler") == 0) GTEST_SKIP() << first.error().text();
  ASSERT_TRUE(first.has_timing()) << first.DebugString();

  v1::MeasureRequest endless = FakeRequest(2, "", EndlessForNvrtc());
  endless.set_target("cuda -arch=sm_90");
  const auto began = std::chrono::steady_clock::now();
  (*pipeline)->Submit(0, endless, box.Taker());
  ExpectBuildTimeout(box.Wait(2, kDeadlineSeconds + 7));
  EXPECT_LT(SecondsSince(began), kDeadlineSeconds + 7);
  simple.set_id(3);
  (*pipeline)->Submit(0, simple, box.Taker());
  EXPECT_TRUE(box.Wait(3, 60).has_timing()) << box.Wait(3).DebugString();
  // That was built before, and needs no builder; there is one again all the same.
  for (int i = 0; i < 200 && (*pipeline)->Statistics().builder_restarts() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ((*pipeline)->Statistics().builder_restarts(), 1u);
  (*pipeline)->Stop();
}

}  // namespace
}  // namespace diapason
