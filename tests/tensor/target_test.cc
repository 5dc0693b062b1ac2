#include "compiler/tensor/target.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "absl/strings/str_replace.h"
#include "compiler/tensor/device_facts.h"
#include "compiler/tensor/processor.h"

namespace diapason {
namespace {

TEST(Target, ParsesAndPrintsTheCanonicalText) {
  const std::pair<const char*, const char*> cases[] = {
      {"cpu", "cpu"},
      {"  cpu   -num-cores=2 -mcpu=native ", "cpu -num-cores=2"},
      {"cpu -mcpu=znver4", "cpu -mcpu=znver4"},
      {"cpu -mcpu=native -mtriple=HOST", "cpu"},
      {"cpu -mtriple=HOST -mcpu=haswell", "cpu -mcpu=haswell"},
      {"cuda -libs=cudnn,cublas -arch=sm_90a", "cuda -arch=sm_90 -libs=cublas,cudnn"},
      {"cuda -device=1 -strict-fp32 -libs=cudnn", "cuda -libs=cudnn -strict-fp32 -device=1"},
      {"cuda -device=1", "cuda -device=1"},
      {"cuda -tf32 -arch=sm_90", "cuda -arch=sm_90 -tf32"},
      {"cuda -tf32=0.0010", "cuda -tf32=0.001"},
      {"cuda -tf32=2.5e-7", "cuda -tf32=2.5e-07"},
      {"opencl -device=0", "opencl"},
      {"cuda -norms=deferred -caches=warm -arch=sm_90", "cuda -arch=sm_90 -caches=warm -norms=deferred"},
      {"cuda -norms=apart", "cuda -norms=apart"},
      {"cuda -caches=warm -arch=sm_90 -device=1", "cuda -arch=sm_90 -device=1 -caches=warm"},
      {"cpu -caches=network -num-cores=2", "cpu -num-cores=2"},
      {"opencl -caches=flushed", "opencl -caches=flushed"},
  };
  for (const auto& [text, canonical] : cases) {
    const auto target = Target::Parse(absl::StrReplaceAll(text, {{"HOST", HostTriple()}}));
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(target->ToString(), canonical);
    EXPECT_EQ(Target::Parse(canonical)->ToString(), canonical);
  }
}

TEST(Target, RefusesWithTheWayOut) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "the target is empty: use cpu, opencl or cuda"},
      {"llvm -mcpu=native",
       "target \"llvm -mcpu=native\": unknown kind 'llvm': did you mean 'cpu'? use cpu, opencl or cuda"},
      {"cdua", "target \"cdua\": unknown kind 'cdua': did you mean 'cuda'? use cpu, opencl or cuda"},
      {"rocm", "target \"rocm\": unknown kind 'rocm': use cpu, opencl or cuda"},
      {"cpu -num-core=2",
       "target \"cpu -num-core=2\": unknown attribute '-num-core': did you mean '-num-cores'? cpu takes -mcpu=native, "
       "-num-cores=2, -mtriple=aarch64-linux-gnu and -caches=warm"},
      {"cpu -arch=sm_90",
       "target \"cpu -arch=sm_90\": unknown attribute '-arch': cpu takes -mcpu=native, -num-cores=2, "
       "-mtriple=aarch64-linux-gnu and -caches=warm"},
      {"cpu -mtriple=arch64-linux-gnu",
       "target \"cpu -mtriple=arch64-linux-gnu\": unknown triple 'arch64-linux-gnu': did you mean "
       "'aarch64-linux-gnu'? use aarch64-linux-gnu or x86_64-linux-gnu"},
      {"opencl -mtriple=aarch64-linux-gnu",
       "target \"opencl -mtriple=aarch64-linux-gnu\": unknown attribute '-mtriple': opencl takes -device=0 and "
       "-caches=warm"},
      {"opencl -x=1", "target \"opencl -x=1\": unknown attribute '-x': opencl takes -device=0 and -caches=warm"},
      {"cuda -arch",
       "target \"cuda -arch\": the attribute '-arch' has no value: write it as in -arch=sm_90, -libs=cudnn,cublas, "
       "-strict-fp32, -tf32, -norms=deferred, -device=0 and -caches=warm"},
      {"cuda -strict-fp32=1",
       "target \"cuda -strict-fp32=1\": the attribute '-strict-fp32' takes no value: write it alone"},
      {"cuda -tf32=2",
       "target \"cuda -tf32=2\": the attribute '-tf32' is '2': write it alone, or with a relative error above 0 and "
       "below 1, as in -tf32=1e-3"},
      {"cuda -tf32 -strict-fp32",
       "target \"cuda -tf32 -strict-fp32\": -strict-fp32 excludes what -tf32 allows: give one of the two"},
      {"cpu -tf32",
       "target \"cpu -tf32\": unknown attribute '-tf32': cpu takes -mcpu=native, -num-cores=2, "
       "-mtriple=aarch64-linux-gnu and -caches=warm"},
      {"opencl -strict-fp32",
       "target \"opencl -strict-fp32\": unknown attribute '-strict-fp32': opencl takes -device=0 and -caches=warm"},
      {"cuda -caches=warn",
       "target \"cuda -caches=warn\": the attribute '-caches' is 'warn': did you mean 'warm'? use warm, flushed or "
       "network, the default"},
      {"cuda -norms=late",
       "target \"cuda -norms=late\": the attribute '-norms' is 'late': use deferred or apart, or leave it out"},
      {"cpu -norms=deferred",
       "target \"cpu -norms=deferred\": unknown attribute '-norms': cpu takes -mcpu=native, -num-cores=2, "
       "-mtriple=aarch64-linux-gnu and -caches=warm"},
      {"cuda -arch=90", "target \"cuda -arch=90\": '90' is no architecture: write it as in -arch=sm_90"},
      {"cpu -libs=cudnn", "target \"cpu -libs=cudnn\": only cuda has libraries to call: leave -libs out, or use cuda"},
      {"opencl -libs=cublas",
       "target \"opencl -libs=cublas\": only cuda has libraries to call: leave -libs out, or use cuda"},
      {"cuda -libs=mkl", "target \"cuda -libs=mkl\": unknown library 'mkl': use cudnn, cublas or both"},
      {"cpu -num-cores=0",
       "target \"cpu -num-cores=0\": the attribute '-num-cores' is '0': give a number from 1 to 4096"},
      {"cpu -num-cores=2 -num-cores=3",
       "target \"cpu -num-cores=2 -num-cores=3\": the attribute '-num-cores' is given twice: give it once"},
      {"cpu -mcpu=a;rm", "target \"cpu -mcpu=a;rm\": 'a;rm' is no processor: write it as in -mcpu=native"},
  };
  for (const auto& [text, message] : cases) {
    const auto target = Target::Parse(text);
    EXPECT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(std::string(target.status().message()), message);
  }
}

#if defined(__x86_64__)
TEST(Target, OfAnotherArchitectureIsKeptAndNeverNative) {
  const std::pair<const char*, const char*> cases[] = {
      {"cpu -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu", "cpu -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"},
      {"cpu -mtriple=arm64-unknown-linux-gnu -num-cores=8",
       "cpu -mtriple=aarch64-linux-gnu -mcpu=generic -num-cores=8"},
  };
  for (const auto& [text, canonical] : cases) {
    const auto target = Target::Parse(text);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_TRUE(target->is_foreign());
    EXPECT_EQ(target->ToString(), canonical);
    EXPECT_EQ(Target::Parse(canonical)->ToString(), canonical);
  }
  EXPECT_EQ(Target::Parse("cpu -mtriple=aarch64-linux-gnu -mcpu=native").status(),
            absl::InvalidArgumentError(
                "target \"cpu -mtriple=aarch64-linux-gnu -mcpu=native\": this machine is no aarch64-linux-gnu: leave "
                "-mcpu=native out, or name a processor, as in -mcpu=neoverse-n1"));
}

TEST(DeviceFacts, OfAnotherArchitectureAreNotThoseOfThisMachine) {
  const DeviceFacts facts =
      DefaultFacts(Target::Parse("cpu -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=64").value());
  EXPECT_EQ(facts.model, "neoverse-n1 (aarch64-linux-gnu)");
  EXPECT_EQ(facts.arch, "aarch64");
  EXPECT_EQ(facts.num_cores, 64);
  EXPECT_EQ(facts.vector_bytes, 16);
  EXPECT_EQ(facts.num_vector_registers, 32);
  EXPECT_EQ(CheckFacts(facts, TargetKind::kCpu), absl::OkStatus());
}
#endif

TEST(DeviceFacts, OfThisMachineForCpu) {
  const DeviceFacts facts = DefaultFacts(Target::Parse("cpu").value());
  EXPECT_FALSE(facts.model.empty());
  EXPECT_GE(facts.num_cores, 1);
  EXPECT_GE(facts.l1_bytes, 8 << 10);
  EXPECT_GE(facts.vector_bytes, 16);
  EXPECT_GT(facts.flops, 1e9);
  EXPECT_EQ(DefaultFacts(Target::Parse("cpu -num-cores=7").value()).num_cores, 7);
  EXPECT_EQ(DefaultFacts(Target::Parse("cpu -mcpu=haswell").value()).vector_bytes, 32);
}

TEST(DeviceFacts, OfTheArchitectureForCuda) {
  const DeviceFacts h200 = DefaultFacts(Target::Parse("cuda").value());
  EXPECT_EQ(h200.model, "NVIDIA H200");
  EXPECT_EQ(h200.arch, "sm_90");
  EXPECT_EQ(h200.num_cores, 132);
  EXPECT_EQ(h200.max_shared_bytes, 232448);
  EXPECT_EQ(h200.max_cluster, 16);
  EXPECT_EQ(DefaultFacts(Target::Parse("cuda -arch=sm_80").value()).max_cluster, 1);
  EXPECT_EQ(DefaultFacts(Target::Parse("cuda -arch=sm_120").value()).max_cluster, 8);
  EXPECT_EQ(DefaultFacts(Target::Parse("cuda -arch=sm_75").value()).max_threads_per_core, 1024);
  EXPECT_EQ(DefaultFacts(Target::Parse("cuda -arch=sm_90a").value()).num_cores, 132);
  EXPECT_EQ(DefaultFacts(Target::Parse("cuda -arch=sm_90a").value()).arch, "sm_90");
  EXPECT_EQ(DefaultFacts(Target::Parse("cuda -arch=sm_121").value()).model, "NVIDIA GeForce RTX 5090");
  EXPECT_EQ(DefaultFacts(Target::Parse("opencl").value()).max_shared_bytes, 48 << 10);
}

TEST(DeviceFacts, ThoseOfEveryTargetPassTheCheck) {
  for (const char* text :
       {"cpu", "cpu -mcpu=x86-64-v4", "opencl", "cuda -arch=sm_70", "cuda -arch=sm_90", "cuda -arch=sm_120"}) {
    const Target target = Target::Parse(text).value();
    EXPECT_EQ(CheckFacts(DefaultFacts(target), target.kind), absl::OkStatus()) << text;
  }
}

TEST(DeviceFacts, ThoseOfNoDeviceAreNamed) {
  struct Case {
    std::function<void(DeviceFacts&)> change;
    const char* message;
  };
  const double nan = std::nan("");
  const Case cases[] = {
      {[](auto& f) { f.vector_bytes = 0; }, "vector_bytes is 0 and must be a power of two from 4 to 1024"},
      {[](auto& f) { f.vector_bytes = 3; }, "vector_bytes is 3 and must be a power of two from 4 to 1024"},
      {[](auto& f) { f.vector_bytes = 24; }, "vector_bytes is 24 and must be a power of two from 4 to 1024"},
      {[](auto& f) { f.vector_bytes = -64; }, "vector_bytes is -64 and must be a power of two from 4 to 1024"},
      {[](auto& f) { f.max_threads_per_block = 0; }, "max_threads_per_block is 0 and must be from 32 to 65536"},
      {[](auto& f) { f.num_cores = 0; }, "num_cores is 0 and must be from 1 to 65536"},
      {[](auto& f) { f.max_shared_bytes = -1; }, "max_shared_bytes is -1 and must be from 0 to 1073741824"},
      {[&](auto& f) { f.bandwidth = nan; }, "bandwidth is nan and must be from 1000 to 1e+18"},
      {[](auto& f) { f.flops = 0; }, "flops is 0 and must be from 1000 to 1e+21"},
      {[](auto& f) { f.model.assign(257, 'x'); },
       "model must be a text of at most 256 characters without control characters"},
      {[](auto& f) { f.driver = "12\n"; },
       "driver must be a text of at most 256 characters without control characters"},
      {[](auto& f) { f.arch = "sm_90 -libs=cudnn"; },
       "arch is 'sm_90 -libs=cudnn', which is no architecture of this kind of device"},
      {[](auto& f) { f.arch = "x86-64"; }, "arch is 'x86-64', which is no architecture of this kind of device"},
  };
  for (const Case& c : cases) {
    DeviceFacts facts = DefaultFacts(Target::Parse("cuda").value());
    c.change(facts);
    EXPECT_EQ(CheckFacts(facts, TargetKind::kCuda), absl::InvalidArgumentError(c.message));
  }
}

TEST(DeviceFacts, BandwidthGrowsWithTheCoresUpToThatOfASocket) {
  EXPECT_DOUBLE_EQ(BandwidthOfCores(1), 2.5e10);
  EXPECT_DOUBLE_EQ(BandwidthOfCores(2), 3e10);
  EXPECT_DOUBLE_EQ(BandwidthOfCores(500), 2e11);
  const DeviceFacts foreign = DefaultFacts(Target::Parse("cpu -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1").value());
  EXPECT_DOUBLE_EQ(foreign.bandwidth, BandwidthOfCores(foreign.num_cores));
}

}  // namespace
}  // namespace diapason
