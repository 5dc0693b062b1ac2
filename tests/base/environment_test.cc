#include "base/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace diapason {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Environment, WhatCompilersAndDriversNeedPasses) {
  for (const char* name : {"PATH", "HOME", "CC", "LD_LIBRARY_PATH", "LC_ALL", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
                           "POCL_CACHE_DIR", "OMP_NUM_THREADS", "VIRTUAL_ENV", "ASAN_OPTIONS"})
    EXPECT_TRUE(IsHarmlessVariable(name)) << name;
}

TEST(Environment, SecretsAndCodeOfOthersDoNot) {
  for (const char* name : {"LD_PRELOAD", "LD_AUDIT", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK",
                           "DIAPASON_TOKEN", "KUBECONFIG", "BASH_ENV", "PYTHONPATH", "GCONV_PATH", "PATHS", "LC", ""})
    EXPECT_FALSE(IsHarmlessVariable(name)) << name;
}

TEST(Environment, KeepsWhatIsNamedAndChangesWhatIsGiven) {
  setenv("SOME_TOKEN", "secret", 1);
  setenv("SOME_SWITCH", "on", 1);
  setenv("TZ", "UTC", 1);
  const std::vector<std::string> clean = CleanEnvironment({{"TZ", "CET"}, {"NEW", ""}}, {"SOME_SWITCH"});
  EXPECT_THAT(clean, Contains("SOME_SWITCH=on"));
  EXPECT_THAT(clean, Contains("TZ=CET"));
  EXPECT_THAT(clean, Contains("NEW="));
  EXPECT_THAT(clean, Contains(StartsWith("PATH=")));
  EXPECT_THAT(clean, Not(Contains("TZ=UTC")));
  EXPECT_THAT(clean, Not(Contains(StartsWith("SOME_TOKEN"))));
  EXPECT_THAT(WholeEnvironment(), Contains("SOME_TOKEN=secret"));
}

TEST(Environment, FindsPrograms) {
  EXPECT_EQ(FindOnPath("no-such-program"), "");
  EXPECT_THAT(FindOnPath("sh"), ::testing::EndsWith("/sh"));
}

}  // namespace
}  // namespace diapason
