// Running commands with captured streams, in a folder of their own.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/cli.h"

namespace diapason {

struct CliResult {
  int code = 0;
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

inline CliResult Cli(const std::vector<std::string>& args, const std::string& input = "",
                     const std::map<std::string, std::string>& variables = {}) {
  std::istringstream in(input);
  std::ostringstream out, err;
  CliEnvironment environment;
  environment.in = &in;
  environment.variable = [&](const std::string& name) { return variables.contains(name) ? variables.at(name) : ""; };
  CliResult result;
  result.code = RunCli(args, out, err, environment);
  result.out = out.str();
  result.err = err.str();
  return result;
}

// The arguments of a command on a small product, for one core, and `more` behind them.
inline std::vector<std::string> OnSmallProduct(const std::string& command, const std::vector<std::string>& more) {
  std::vector<std::string> args{command, "gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// Gives each test an empty folder, removed behind it.
class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/diapason_cli_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    // Compilers of killed workers may still be removing their files.
    std::error_code vanished;
    for (int i = 0; i < 50 && std::filesystem::exists(folder_); ++i) std::filesystem::remove_all(folder_, vanished);
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

// The command fails with exactly this sentence and prints no report.
inline void ExpectError(const CliResult& result, const std::string& sentence, int code = 1) {
  EXPECT_EQ(result.code, code);
  EXPECT_EQ(result.err, "error: " + sentence + "\n");
  if (result.out.empty()) return;  // else --json was given
  nlohmann::json document = result.json();
  EXPECT_TRUE(document.contains("code"));
  document.erase("code");
  EXPECT_EQ(document, (nlohmann::json{{"schema", "diapason.error/1"}, {"error", sentence}}));
}

}  // namespace diapason
