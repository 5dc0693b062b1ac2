// The whole way of a small network through the commands: tasks, tune, query, explain, build, run.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "api/npy.h"
#include "api/tensor_file.h"
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
  CliResult Tune(const std::string& trials, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--history", Path("h.db"), "--trials", trials, "--min-repeat-ms", "1", "--json"});
    return Cli(Args("tune", more));
  }
};

TEST_F(EndToEnd, TuneBuildRunAndExplain) {
  const auto tasks = Cli(Args("tasks", {"--json"})).json();
  EXPECT_EQ(tasks["target"], "cpu -num-cores=1");
  ASSERT_EQ(tasks["tasks"].size(), 1u);
  const auto& task = tasks["tasks"][0];
  EXPECT_EQ(task["task_id"], 1);
  EXPECT_EQ(task["count"], 1);
  EXPECT_NEAR(task["gflop"], 2 * 32 * 48 * 64 / 1e9, 1e-9);
  EXPECT_GE(task["sketch_count"], 1);

  const CliResult tuned = Tune("6");
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  const auto report = tuned.json();
  EXPECT_EQ(report["trials"], 6);
  EXPECT_EQ(report["measured"], 6);
  EXPECT_GT(report["trials_per_s"], 0);
  EXPECT_GT(report["estimated_us"], 0);
  ASSERT_EQ(report["tasks"].size(), 1u);
  EXPECT_LE(report["tasks"][0]["best_us"], report["tasks"][0]["fallback_us"]);
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

  const std::string id = std::to_string(static_cast<int64_t>(best[0]["record"]));
  const auto told = Cli({"explain", "--history", Path("h.db"), "--record", id, "--json"}).json();
  EXPECT_EQ(told["workload"], task["workload"]);
  EXPECT_NE(std::string(told["loops"]).find("kernel "), std::string::npos);
  EXPECT_NE(std::string(told["source"]).find("void "), std::string::npos);
  EXPECT_FALSE(told["configuration"].empty());
  std::set<std::string> names;
  for (const auto& feature : told["features"]) {
    names.insert(std::string(feature["name"]));
    EXPECT_TRUE(feature["value"].is_number());
  }
  EXPECT_EQ(names.size(), told["features"].size());
  EXPECT_TRUE(names.count("slowest: accumulators"));
  EXPECT_TRUE(names.count("parameter " + std::string(told["configuration"][0]["name"])));
  const std::string text = Cli({"explain", "--history", Path("h.db"), "--record", id}).out;
  EXPECT_NE(text.find("\nshare      100.0% of gemm, which has the task 1 times\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  slowest: nanoseconds    "), std::string::npos) << text;
  EXPECT_LT(text.find("\n  all: nanoseconds "), text.find("\n  slowest: nanoseconds ")) << text;
  EXPECT_EQ(text.find("over slowest"), std::string::npos) << "there is one kernel\n" << text;
  EXPECT_EQ(told["shares"], (nlohmann::json{{{"network", "gemm"}, {"count", 1}, {"share", 1}}}));
  EXPECT_NEAR(told["measurement"]["median_us"], best[0]["median_us"], 1e-9);

  const CliResult built = Cli(Args("build", {"--history", Path("h.db"), "--out", Path("package"), "--json"}));
  EXPECT_EQ(built.err, "");
  EXPECT_EQ(built.json()["tasks"][0]["record"], best[0]["record"]);
  const CliResult run = Cli({"run", Path("package"), "--check", "--duration", "0.01", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto ran = run.json();
  EXPECT_EQ(ran["outputs"][0]["shape"], (nlohmann::json{32, 48}));
  EXPECT_EQ(ran["outputs"][0]["dtype"], "float32");
  EXPECT_GT(ran["latency"]["p50_us"], 0);
  EXPECT_EQ(ran["check"]["ok"], true);
  EXPECT_LT(ran["check"]["max_rel_error"], 1e-4);
}

// What the package took when it was built corrects what later builds and runs of the tuner expect. (That the check at
// the end of tuning does so as well: NetworkCheckCli.TuneEndsWithTheCheckUnlessToldOtherwise.)
TEST_F(EndToEnd, EstimatesLearnFromTheMeasuredLatency) {
  ASSERT_EQ(Tune("4", {"--no-check"}).code, 0);
  const auto build = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--history", Path("h.db"), "--out", Path("package"), "--json"});
    const CliResult built = Cli(Args("build", flags));
    EXPECT_EQ(built.code, 0) << built.err;
    EXPECT_EQ(built.err, "");
    return built.json();
  };
  const auto unmeasured = build({"--no-measure"});
  EXPECT_TRUE(unmeasured["latency_us"].is_null());
  EXPECT_EQ(unmeasured["estimated_us"], unmeasured["tasks_us"]);
  const auto first = build({});
  const double tasks = first["tasks_us"], measured = first["latency_us"];
  EXPECT_GT(measured, 0);
  EXPECT_EQ(first["estimated_us"], first["tasks_us"]) << "nothing was known yet";

  const double ratio = std::clamp(measured / tasks, 0.5, 2.0);
  EXPECT_NEAR(build({"--no-measure"})["estimated_us"], ratio * tasks, 1e-6 * tasks);
  const auto resumed = Tune("4", {"--no-check"}).json();
  EXPECT_NEAR(resumed["estimated_us"], ratio * static_cast<double>(resumed["tasks_us"]), 1e-6 * tasks);
  const auto ran = Cli({"run", Path("package"), "--json"}).json();
  EXPECT_NEAR(ran["estimated_us"], ratio * tasks, 1e-6 * tasks);
  EXPECT_NEAR(ran["tasks_us"], tasks, 1e-6 * tasks);

  // What was measured at the end of the run is known better than that.
  const auto checked = Tune("4").json();
  EXPECT_NEAR(checked["estimated_us"], checked["check"]["latency_us"], 1e-6 * tasks);

  // The same network with other options is another one.
  const auto other = Cli({"tune", "gemm", "--m", "16", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1",
                          "--history", Path("h.db"), "--trials", "3", "--min-repeat-ms", "1", "--no-check", "--json"})
                         .json();
  EXPECT_EQ(other["estimated_us"], other["tasks_us"]);
}

TEST_F(EndToEnd, BuildWithoutRecordsWarnsOnceForEachTask) {
  const std::string workload = Cli(Args("tasks", {"--json"})).json()["tasks"][0]["workload"];
  const std::string name = Cli(Args("tasks", {"--json"})).json()["tasks"][0]["task"];
  const CliResult built = Cli(Args("build", {"--out", Path("package")}));
  EXPECT_EQ(built.code, 0);
  EXPECT_EQ(built.err, "warning: there is no record of workload " + workload + " (" + name +
                           ") on target cpu -num-cores=1; the fallback schedule is used, which may be slow\n");
  const std::string said =
      "built " + Path("package") + ": 1 task, 0 with the best record, 1 with the fallback schedule\n";
  EXPECT_EQ(built.out.rfind(said + "network check ok: largest relative error ", 0), 0u) << built.out;
  EXPECT_EQ(Cli(Args("build", {"--no-check", "--out", Path("package")})).out, said);
  EXPECT_EQ(Cli({"run", Path("package"), "--check"}).code, 0);
}

TEST_F(EndToEnd, BuildWithoutRecordsSaysHowManyTasksLackOne) {
  const std::vector<std::string> build = {
      "build", "resnet-18", "--set", "image=32", "--target", "cpu -num-cores=2", "--no-check", "--out", Path("p")};
  const CliResult built = Cli(build);
  EXPECT_EQ(built.code, 0);
  const size_t of = built.err.find(" of ");
  const std::string tasks = built.err.substr(9, of == std::string::npos ? 0 : of - 9);
  EXPECT_EQ(built.err,
            "warning: " + tasks + " of " + tasks +
                " tasks have no verified record on target cpu -num-cores=2; their fallback schedules are used, "
                "which may be slow (--verbose lists them)\n");
  std::vector<std::string> verbose = build;
  verbose.push_back("--verbose");
  const CliResult listed = Cli(verbose);
  EXPECT_EQ(std::count(listed.err.begin(), listed.err.end(), '\n'), std::stoi(tasks)) << listed.err;
  EXPECT_EQ(listed.err.rfind("warning: there is no record of workload ", 0), 0u) << listed.err;
}

TEST_F(EndToEnd, RunReadsAndWritesArrays) {
  ASSERT_EQ(Cli(Args("build", {"--set", "constant=0", "--out", Path("package")})).code, 0);
  const auto manifest = nlohmann::json::parse(std::ifstream(Path("package/manifest.json")));
  const std::string first = manifest["inputs"][0]["name"], second = manifest["inputs"][1]["name"];
  const std::string output = manifest["outputs"][0]["name"];
  Array a(DType::kFloat32, {32, 64}), b(DType::kFloat32, {64, 48});
  for (int64_t i = 0; i < a.elements(); ++i) a.set(i, static_cast<double>(i % 5));
  for (int64_t i = 0; i < b.elements(); ++i) b.set(i, static_cast<double>(i % 3) - 1);
  ASSERT_TRUE(api::WriteNpyFile(Path("a.npy"), a).ok());
  ASSERT_TRUE(api::WriteNpyFile(Path("b.npy"), b).ok());
  const CliResult run = Cli({"run", Path("package"), "--input", first + "=" + Path("a.npy"), "--input",
                             second + "=" + Path("b.npy"), "--output-dir", Path("out"), "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto c = api::ReadTensorFile(Path("out/" + output + ".npy"));
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->shape, (std::vector<int64_t>{32, 48}));
  double expected = 0;  // of row 3, column 5
  for (int64_t k = 0; k < 64; ++k) expected += a.at(3 * 64 + k) * b.at(k * 48 + 5);
  EXPECT_NEAR(c->at(3 * 48 + 5), expected, 1e-3);

  ExpectError(Cli({"run", Path("package"), "--input", first}),
              "--input " + first + " is not understood; write it as NAME=FILE");
  ExpectError(Cli({"run", Path("package"), "--input", first + "=" + Path("none.npy")}),
              Path("none.npy") + " cannot be read (No such file or directory); name a .npy or .pb file");
  ExpectError(Cli({"run", Path("package"), "--input", first + "=" + Path("b.npy")}),
              "input '" + first + "' is float32 64x48; the package wants float32 32x64");
  ExpectError(Cli({"run", Path("package"), "--input", "nothing=" + Path("a.npy")}),
              "the package has no input 'nothing'; its inputs are: '" + first + "', '" + second + "'");
  std::ofstream(Path("cut.npy"), std::ios::binary) << api::SerializeNpy(a).substr(0, 1000);
  ExpectError(Cli({"run", Path("package"), "--input", first + "=" + Path("cut.npy")}),
              Path("cut.npy") +
                  " is no whole .npy file (it has 872 bytes of data where its shape needs 8192); write it again with "
                  "numpy.save");
}

// A TensorProto as ONNX's test data has it: dims (field 1), data_type (field 2) float, raw_data (field 9).
TEST_F(EndToEnd, RunReadsOnnxTensors) {
  ASSERT_EQ(Cli({"build", "gemm", "--m", "2", "--n", "2", "--k", "2", "--set", "constant=0", "--target", "cpu", "--out",
                 Path("package")})
                .code,
            0);
  const float values[] = {1, 2, 3, 4};
  std::string bytes("\x08\x02\x08\x02\x10\x01\x4a\x10", 8);
  bytes.append(reinterpret_cast<const char*>(values), sizeof values);
  std::ofstream(Path("a.pb"), std::ios::binary) << bytes;
  const CliResult run = Cli({"run", Path("package"), "--input", "a=" + Path("a.pb"), "--input", "b=" + Path("a.pb"),
                             "--output-dir", Path("out")});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto c = api::ReadTensorFile(Path("out/output.npy"));
  ASSERT_TRUE(c.ok()) << c.status();
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(c->at(i), std::vector<double>({7, 10, 15, 22})[i], 1e-5);

  std::ofstream(Path("bad.pb")) << "not a tensor";
  ExpectError(Cli({"run", Path("package"), "--input", "a=" + Path("bad.pb")}),
              "'" + Path("bad.pb") +
                  "' is no ONNX tensor, or it was cut off; give a file with one TensorProto, or a .npy file");
  ExpectError(Cli({"run", Path("package"), "--input", "a=" + Path("none.pb")}),
              "cannot read '" + Path("none.pb") + "': No such file or directory; name a tensor's file, as .npy or .pb");
}

// Flags that change what a run does, and not only how it is shown.
TEST_F(EndToEnd, TuneObeysItsFlags) {
  const auto tune = [&](const std::string& history, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--history", Path(history), "--min-repeat-ms", "1", "--json"});
    const CliResult result = Cli(Args("tune", flags));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.json();
  };
  const auto reached = tune("a.db", {"--trials", "500", "--objective", "targets:gemm=5s"});
  EXPECT_EQ(reached["stop_reason"], "all targets are reached");
  EXPECT_LT(reached["measured"], 100);

  const auto impatient =
      tune("b.db", {"--trials", "100000", "--early-stop", "3", "--builders", "1", "--trials-per-round", "8"});
  EXPECT_EQ(impatient["stop_reason"], "no gain in 3 trials");
  EXPECT_EQ(impatient["tasks"][0]["verified"], true);
  EXPECT_EQ(impatient["stages"]["workers"]["builders"], 1);

  tune("c.db", {"--trials", "2", "--number", "7", "--repeat", "4", "--no-race", "--seed", "11", "--tasks", "1"});
  const auto records = Cli({"query", "--history", Path("c.db"), "--top", "5", "--json"}).json()["records"];
  ASSERT_EQ(records.size(), 2u);
  std::multiset<size_t> samples;
  for (const auto& record : records) {
    samples.insert(record["samples_us"].size());
    EXPECT_EQ(record["seed"], "11");
    const auto told = Cli({"explain", "--history", Path("c.db"), "--record", record["record"].dump(), "--json"}).json();
    EXPECT_GE(told["measurement"]["runs_per_sample"], 7);
  }
  // The best was measured again at the end; the other one, too, if that made it the best.
  EXPECT_TRUE(samples == (std::multiset<size_t>{4, 9}) || samples == (std::multiset<size_t>{9, 9}));
  const auto timed = tune("d.db", {"--seconds", "8"});
  EXPECT_EQ(timed["stop_reason"], "time limit reached");
  EXPECT_LT(timed["elapsed_s"], 12);
  EXPECT_EQ(timed["tasks"][0]["verified"], true);
}

TEST_F(EndToEnd, CtrlCKeepsWhatWasMeasured) {
  std::thread interrupter([&] {
    // Not before a trial is stored: the guard is then in place.
    for (int i = 0; i < 600; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (!std::filesystem::exists(Path("h.db"))) continue;
      const CliResult info = Cli({"history", "info", Path("h.db"), "--json"});
      if (info.code == 0 && info.json()["record_count"] > 0) break;
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
  EXPECT_GE(check["record_count"], measured);
}

}  // namespace
}  // namespace diapason
