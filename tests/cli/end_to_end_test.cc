// The whole way of a small network through the commands: tasks, tune, query, explain, build, run.
#include <csignal>
#include <fstream>
#include <thread>

#include "cli/npy.h"
#include "cli/tensor_file.h"
#include "compiler/tensor/array.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

// A product small enough to be tuned in a few seconds on a busy machine.
const std::vector<std::string> kGemm = {"gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1"};

std::vector<std::string> Args(const std::string& command, std::vector<std::string> rest) {
  std::vector<std::string> args = {command};
  args.insert(args.end(), kGemm.begin(), kGemm.end());
  args.insert(args.end(), rest.begin(), rest.end());
  return args;
}

class EndToEnd : public CliTest {
 protected:
  CliResult Tune(const std::string& trials) {
    return Cli(Args("tune", {"--history", Path("h.db"), "--trials", trials, "--min-repeat-ms", "1", "--json"}));
  }
};

TEST_F(EndToEnd, TuneBuildRunAndExplain) {
  const auto tasks = Cli(Args("tasks", {"--json"})).json();
  EXPECT_EQ(tasks["target"], "cpu -num-cores=1");
  ASSERT_EQ(tasks["tasks"].size(), 1u);
  const auto& task = tasks["tasks"][0];
  EXPECT_EQ(task["id"], 1);
  EXPECT_EQ(task["weight"], 1);
  EXPECT_NEAR(task["gflop"], 2 * 32 * 48 * 64 / 1e9, 1e-9);
  EXPECT_GE(task["sketches"], 1);

  const CliResult tuned = Tune("6");
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  const auto report = tuned.json();
  EXPECT_EQ(report["trials"], 6);
  EXPECT_EQ(report["measured"], 6);
  EXPECT_GT(report["trials_per_s"], 0);
  EXPECT_GT(report["estimated_us"], 0);
  ASSERT_EQ(report["tasks"].size(), 1u);
  EXPECT_LE(report["tasks"][0]["best_us"], report["tasks"][0]["default_us"]);
  EXPECT_EQ(report["tasks"][0]["trials"], 6);
  EXPECT_EQ(report["tasks"][0]["verified"], true);
  EXPECT_NE(tuned.err.find("6/6 trials"), std::string::npos) << tuned.err;

  // Going on counts what is there.
  const auto resumed = Tune("9").json();
  EXPECT_EQ(resumed["trials"], 9);
  EXPECT_EQ(resumed["measured"], 3);
  EXPECT_EQ(Tune("9").json()["measured"], 0);

  const auto best = Cli({"query", "--history", Path("h.db"), "--model", "gemm", "--json"}).json()["records"];
  ASSERT_EQ(best.size(), 1u);
  EXPECT_EQ(best[0]["workload"], task["workload"]);
  EXPECT_EQ(best[0]["verified"], true);
  EXPECT_EQ(Cli({"history", "check", Path("h.db"), "--json"}).json()["ok"], true);

  const std::string id = std::to_string(static_cast<int64_t>(best[0]["id"]));
  const auto told = Cli({"explain", "--history", Path("h.db"), "--record", id, "--json"}).json();
  EXPECT_EQ(told["workload"], task["workload"]);
  EXPECT_NE(std::string(told["loops"]).find("kernel "), std::string::npos);
  EXPECT_NE(std::string(told["source"]).find("void "), std::string::npos);
  EXPECT_FALSE(told["decisions"].empty());
  EXPECT_EQ(told["features"].size(), 96u);
  EXPECT_NEAR(told["measured"]["median_us"], best[0]["median_us"], 1e-9);

  const CliResult built = Cli(Args("build", {"--history", Path("h.db"), "--out", Path("package"), "--json"}));
  EXPECT_EQ(built.err, "");
  EXPECT_EQ(built.json()["tasks"][0]["record"], best[0]["id"]);
  const CliResult run = Cli({"run", Path("package"), "--check", "--bench", "--repeat", "3", "--min-repeat-ms", "1", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto ran = run.json();
  EXPECT_EQ(ran["outputs"][0]["shape"], (nlohmann::json{32, 48}));
  EXPECT_EQ(ran["outputs"][0]["dtype"], "float32");
  EXPECT_EQ(ran["latency_us"]["samples"].size(), 3u);
  EXPECT_EQ(ran["check"]["ok"], true);
  EXPECT_LT(ran["check"]["max_rel_error"], 1e-4);
}

TEST_F(EndToEnd, BuildWithoutRecordsWarnsOnceForEachTask) {
  const std::string workload = Cli(Args("tasks", {"--json"})).json()["tasks"][0]["workload"];
  const std::string name = Cli(Args("tasks", {"--json"})).json()["tasks"][0]["name"];
  const CliResult built = Cli(Args("build", {"--out", Path("package")}));
  EXPECT_EQ(built.code, 0);
  EXPECT_EQ(built.err, "warning: there is no record of workload " + workload + " (" + name +
                           ") on target cpu -num-cores=1; the default schedule is used, which may be slow\n");
  EXPECT_EQ(built.out, "built " + Path("package") + ": 1 task, 0 with the best record, 1 with the default schedule\n");
  EXPECT_EQ(Cli({"run", Path("package"), "--check"}).code, 0);
}

TEST_F(EndToEnd, RunReadsAndWritesArrays) {
  ASSERT_EQ(Cli(Args("build", {"--set", "constant=0", "--out", Path("package")})).code, 0);
  const auto manifest = nlohmann::json::parse(std::ifstream(Path("package/manifest.json")));
  const std::string first = manifest["inputs"][0]["name"], second = manifest["inputs"][1]["name"];
  const std::string output = manifest["outputs"][0]["name"];
  Array a(DType::kFloat32, {32, 64}), b(DType::kFloat32, {64, 48});
  for (int64_t i = 0; i < a.elements(); ++i) a.set(i, static_cast<double>(i % 5));
  for (int64_t i = 0; i < b.elements(); ++i) b.set(i, static_cast<double>(i % 3) - 1);
  ASSERT_TRUE(WriteNpyFile(Path("a.npy"), a).ok());
  ASSERT_TRUE(WriteNpyFile(Path("b.npy"), b).ok());
  const CliResult run = Cli({"run", Path("package"), "--input", first + "=" + Path("a.npy"), "--input",
                             second + "=" + Path("b.npy"), "--output-dir", Path("out"), "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto c = ReadTensorFile(Path("out/" + output + ".npy"));
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->shape, (std::vector<int64_t>{32, 48}));
  double expected = 0;  // of row 3, column 5
  for (int64_t k = 0; k < 64; ++k) expected += a.at(3 * 64 + k) * b.at(k * 48 + 5);
  EXPECT_NEAR(c->at(3 * 48 + 5), expected, 1e-3);

  ExpectError(Cli({"run", Path("package"), "--input", first}), "--input " + first + " is not understood; write it as NAME=FILE");
  ExpectError(Cli({"run", Path("package"), "--input", first + "=" + Path("none.npy")}),
              Path("none.npy") + " cannot be read (No such file or directory); name a .npy or .pb file");
  for (const std::string& wrong : {first + "=" + Path("b.npy"), "nothing=" + Path("a.npy")}) {
    const CliResult result = Cli({"run", Path("package"), "--input", wrong});
    EXPECT_EQ(result.code, 1);
    EXPECT_NE(result.err.find("'" + wrong.substr(0, wrong.find('=')) + "'"), std::string::npos) << result.err;
  }
}

TEST_F(EndToEnd, CtrlCKeepsWhatWasMeasured) {
  std::thread interrupter([&] {
    // Not before a trial is stored: the guard is then in place.
    for (int i = 0; i < 600; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (!std::filesystem::exists(Path("h.db"))) continue;
      const CliResult info = Cli({"history", "info", Path("h.db"), "--json"});
      if (info.code == 0 && info.json()["records"] > 0) break;
    }
    kill(getpid(), SIGINT);
  });
  const CliResult tuned = Tune("100000");
  interrupter.join();
  EXPECT_EQ(tuned.code, 130);
  const int64_t measured = tuned.json()["measured"];
  EXPECT_GE(measured, 1);
  EXPECT_NE(tuned.err.find("error: stopped by Ctrl-C after " + std::to_string(measured) + " trial"), std::string::npos)
      << tuned.err;
  const auto check = Cli({"history", "check", Path("h.db"), "--json"}).json();
  EXPECT_EQ(check["ok"], true);
  EXPECT_GE(check["records"], measured);
}

}  // namespace
}  // namespace diapason
