// The check of the whole network that ends `tune`, a job and `build`, with a compiler that makes a wrong program of the
// source of one record.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "db/history.h"
#include "tests/cli/fleet_fixture.h"

namespace diapason {
namespace {

const std::vector<std::string> kGemm = {"gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1"};

std::vector<std::string> Args(const std::string& command, std::vector<std::string> rest) {
  std::vector<std::string> args = {command};
  args.insert(args.end(), kGemm.begin(), kGemm.end());
  args.insert(args.end(), rest.begin(), rest.end());
  return args;
}

class NetworkCheckCli : public FleetCli {
 protected:
  void TearDown() override {
    unsetenv("CC");
    FleetCli::TearDown();
  }

  CliResult Tune(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--history", Path("h.db"), "--trials", "10", "--min-repeat-ms", "1", "--sandbox", "off"});
    return Cli(Args("tune", more));
  }
  CliResult Build(const std::string& package, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--history", Path("h.db"), "--out", Path(package)});
    return Cli(Args("build", more));
  }

  // The text of a package's last kernel.
  std::string KernelOf(const std::string& package) const {
    for (const auto& file : std::filesystem::directory_iterator(Path(package + "/kernels"))) {
      if (file.path().extension() != ".c") continue;
      std::stringstream source;
      source << std::ifstream(file.path()).rdbuf();
      return source.str().substr(source.str().rfind("\nvoid ") + 1);
    }
    return "";
  }
  // The text of the kernel that one record makes.
  std::string KernelOf(int64_t record) {
    std::filesystem::copy_file(Path("h.db"), Path("alone.db"), std::filesystem::copy_options::overwrite_existing);
    {
      const std::unique_ptr<History> alone = History::Open(Path("alone.db"), HistoryMode::kReadWrite).value();
      const std::vector<TuningRecord> records = alone->TopK({}, 100).value();
      for (const TuningRecord& other : records)
        EXPECT_TRUE(alone->SetVerified(other.id, other.id == record, other.id == record ? 0 : 1, "").ok());
    }
    const std::string package = absl::StrCat("alone", record);
    const CliResult built = Cli(
        Args("build", {"--history", Path("alone.db"), "--out", Path(package), "--no-check", "--no-measure", "--json"}));
    EXPECT_EQ(built.code, 0) << built.err;
    EXPECT_EQ(built.json()["tasks"][0]["record"], record);
    return KernelOf(package);
  }

  // A history of ten trials of which two may be used: the best one, which is verified, and a second one, whose kernels
  // differ from each other and from that of the fallback schedule. From here on the compiler breaks the best one's
  // program: its loop leaves out what it should do first.
  void PrepareWrongRecord(Verified second) {
    const CliResult tuned = Tune({"--no-check"});
    ASSERT_EQ(tuned.code, 0) << tuned.err;
    ASSERT_EQ(Cli(Args("build", {"--out", Path("default")})).code, 0);
    std::set<std::string> kernels{KernelOf("default")};
    std::vector<int64_t> usable, others;
    const std::vector<TuningRecord> records =
        History::Open(Path("h.db"), HistoryMode::kReadOnly).value()->TopK({}, 100).value();
    for (const TuningRecord& record : records) {
      const bool use = usable.size() < 2 && kernels.insert(KernelOf(record.id)).second;
      (use ? usable : others).push_back(record.id);
    }
    ASSERT_EQ(usable.size(), 2u);
    best_ = usable[0];
    second_ = usable[1];
    const std::unique_ptr<History> history = History::Open(Path("h.db"), HistoryMode::kReadWrite).value();
    for (int64_t record : others) ASSERT_TRUE(history->SetVerified(record, false, 1, "left out by the test").ok());
    ASSERT_TRUE(history->SetVerified(best_, true, 0, "").ok());
    if (second == Verified::kOk) {
      ASSERT_TRUE(history->SetVerified(second_, true, 0, "").ok());
    }
    const CliResult built = Build("good", {"--json"});
    ASSERT_EQ(built.code, 0) << built.err;
    ASSERT_EQ(built.json()["tasks"][0]["record"], best_);
    ASSERT_EQ(built.json()["check"]["ok"], true);
    Break("good");
    std::ofstream(Path("cc"))
        << "#!/bin/bash\n"
           "bad=$1; shift; args=(\"$@\")\n"
           "for arg in \"${args[@]}\"; do\n"
           "  [[ $arg == *.c ]] || continue\n"
           "  kernel=$(awk '/^void /{p=1} p' \"$arg\")\n"
           "  for f in \"$bad\"/*.c; do\n"
           "    [[ $kernel == \"$(< \"$f\")\" ]] && sed -i 's/= begin;/= begin + 1;/' \"$arg\" && break\n"
           "  done\n"
           "done\n"
           "exec cc \"${args[@]}\"\n";
    std::filesystem::permissions(Path("cc"), std::filesystem::perms::owner_all);
    setenv("CC", (Path("cc") + " " + Path("bad")).c_str(), 1);
  }
  // The compiler breaks the last kernel of the one program in this package: kernels are compiled one by one.
  void Break(const std::string& package) {
    std::filesystem::create_directories(Path("bad"));
    std::ofstream(Path("bad/" + package + ".c")) << KernelOf(package);
  }
  // How the sentence about the wrong record begins.
  std::string Sentence() const {
    return "record " + std::to_string(best_) +
           " of gemm_32x48x64 is right alone but makes the network compute a wrong result, and is not used: output '";
  }
  void ExpectMarked(Verified second) {
    const std::unique_ptr<History> history = History::Open(Path("h.db"), HistoryMode::kReadOnly).value();
    const TuningRecord marked = history->Get(best_).value();
    EXPECT_EQ(marked.verified, Verified::kWrongInNetwork);
    EXPECT_EQ(marked.verify_text.rfind("network gemm: output '", 0), 0u) << marked.verify_text;
    EXPECT_NE(marked.verify_text.find("inputs of seed 1, run 1"), std::string::npos) << marked.verify_text;
    EXPECT_EQ(history->Get(second_).value().verified, second);
  }
  void ExpectReplaced(const nlohmann::json& check) {
    EXPECT_EQ(check["ok"], true);
    ASSERT_EQ(check["wrong_records"].size(), 1u);
    EXPECT_EQ(check["wrong_records"][0]["record"], best_);
    EXPECT_EQ(check["wrong_records"][0]["task"], "gemm_32x48x64");
    EXPECT_EQ(check["wrong_records"][0]["replacement"], second_);
  }

  int64_t best_ = 0, second_ = 0;
};

TEST_F(NetworkCheckCli, TuneEndsWithTheCheckUnlessToldOtherwise) {
  const CliResult tuned = Tune();
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_NE(tuned.out.find("\nnetwork check ok: largest relative error "), std::string::npos) << tuned.out;
  const auto checked = Tune({"--json"}).json();
  EXPECT_EQ(checked["measured"], 0);
  EXPECT_EQ(checked["check"]["ok"], true);
  EXPECT_LT(checked["check"]["max_rel_error"], 1e-4);
  EXPECT_EQ(checked["check"]["wrong_records"], nlohmann::json::array());
  // What the network took is kept, and builds that do not measure say it.
  const double latency = checked["check"]["latency_us"];
  EXPECT_GT(latency, 0);
  EXPECT_NE(tuned.out.find("\nmeasured latency "), std::string::npos) << tuned.out;
  const auto built = Build("estimated", {"--json", "--no-check", "--no-measure"}).json();
  const double ratio = std::clamp(latency / built["tasks_us"].get<double>(), 0.5, 2.0);
  EXPECT_NEAR(built["estimated_us"].get<double>(), ratio * built["tasks_us"].get<double>(), 1e-3);
  EXPECT_FALSE(Tune({"--json", "--no-check"}).json().contains("check"));
  EXPECT_FALSE(Build("p", {"--json", "--no-check"}).json().contains("check"));
}

TEST_F(NetworkCheckCli, ABuildMarksTheRecordThatMakesTheNetworkWrongAndTakesTheNext) {
  ASSERT_NO_FATAL_FAILURE(PrepareWrongRecord(Verified::kOk));
  const CliResult built = Build("p", {"--json"});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_EQ(built.err.rfind("warning: " + Sentence(), 0), 0u) << built.err;
  EXPECT_NE(built.err.find("; record " + std::to_string(second_) + " takes its place\n"), std::string::npos)
      << built.err;
  ExpectReplaced(built.json()["check"]);
  EXPECT_EQ(built.json()["tasks"][0]["record"], second_);
  ExpectMarked(Verified::kOk);
  EXPECT_EQ(Cli({"run", Path("p"), "--check"}).code, 0);
  // It is not taken again, and needs no more words.
  const CliResult again = Build("p");
  EXPECT_EQ(again.err, "");
  EXPECT_NE(again.out.find("\nnetwork check ok: largest relative error "), std::string::npos) << again.out;
  // Lines that are exported say it too.
  EXPECT_NE(Cli({"history", "export", Path("h.db")}).out.find("\"verified\":\"wrong_in_network\""), std::string::npos);
}

TEST_F(NetworkCheckCli, ABuildThatIsWrongWithDefaultSchedulesMakesNoPackageAndBlamesNobody) {
  ASSERT_NO_FATAL_FAILURE(PrepareWrongRecord(Verified::kOk));
  Break("default");
  const CliResult built = Build("p");
  EXPECT_EQ(built.code, 1);
  EXPECT_EQ(built.err.rfind("error: the network computes a wrong result with fallback schedules alone, so that no "
                            "record is to blame (output '",
                            0),
            0u)
      << built.err;
  EXPECT_NE(built.err.find("; report a bug; no package was made, --no-check makes one all the same\n"),
            std::string::npos)
      << built.err;
  EXPECT_FALSE(std::filesystem::exists(Path("p")));
  EXPECT_EQ(History::Open(Path("h.db"), HistoryMode::kReadOnly).value()->Get(best_).value().verified, Verified::kOk);
  EXPECT_EQ(Build("p", {"--no-check"}).code, 0);
  EXPECT_EQ(Cli({"run", Path("p"), "--check"}).code, 1);
}

// Which records are taken depends on the machine; the network is right with any of them.
TEST_F(NetworkCheckCli, ABuildMayChooseRecordsByWhatTheNetworkTakes) {
  ASSERT_NO_FATAL_FAILURE(PrepareWrongRecord(Verified::kOk));
  const CliResult built = Build("p", {"--refine", "2", "--json"});
  ASSERT_EQ(built.code, 0) << built.err;
  const auto refined = built.json()["refined"];
  EXPECT_GE(refined["compared"], refined["replaced"]);
  EXPECT_LE(refined["ratio"], 1);
  EXPECT_GT(refined["ratio"], 0);
  EXPECT_TRUE(refined["ended_early"].is_boolean());
  EXPECT_EQ(built.json()["check"]["ok"], true);
  EXPECT_EQ(Cli({"run", Path("p"), "--check"}).code, 0);
  EXPECT_EQ(Build("q", {"--json"}).json()["refined"]["compared"], 0);
}

// The workers of this process compile and run it; the next best is verified by them before it is taken.
TEST_F(NetworkCheckCli, TuneMarksTheRecordAndVerifiesTheNext) {
  ASSERT_NO_FATAL_FAILURE(PrepareWrongRecord(Verified::kUnknown));
  const CliResult tuned = Tune({"--json"});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_EQ(tuned.json()["measured"], 0);
  EXPECT_NE(tuned.err.find("warning: " + Sentence()), std::string::npos) << tuned.err;
  ExpectReplaced(tuned.json()["check"]);
  ExpectMarked(Verified::kOk);
}

TEST_F(NetworkCheckCli, AJobOfAServiceIsCheckedByTheWorkersOfTheFleet) {
  ASSERT_NO_FATAL_FAILURE(PrepareWrongRecord(Verified::kUnknown));
  Process service({"serve", "--listen", OwnLoopback(), "--history", Path("h.db")}, Path("serve"));
  const std::string address = service.Address();
  ASSERT_NE(address, "") << service.err();
  const auto worker = Worker(address, "worker", {"--sandbox", "off"});
  const auto submit = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--trials", "10", "--min-repeat-ms", "1", "--service", address, "--wait", "--json"});
    return Cli(Args("submit", more));
  };
  const CliResult done = submit({});
  ASSERT_EQ(done.code, 0) << done.err << service.err();
  EXPECT_EQ(done.json()["state"], "done");
  const auto check = done.json()["check"];
  EXPECT_EQ(check["ok"], true);
  EXPECT_GT(check["latency_us"], 0);
  ASSERT_EQ(check["problems"].size(), 1u);
  const std::string sentence = check["problems"][0];
  EXPECT_EQ(sentence.rfind(Sentence(), 0), 0u) << sentence;
  EXPECT_NE(done.err.find("warning: " + sentence + "\n"), std::string::npos) << done.err;
  ExpectMarked(Verified::kOk);
  const auto listed = Cli({"jobs", "list", "--service", address, "--json"}).json()["jobs"][0];
  EXPECT_EQ(listed["check"]["text"], check["text"]);
}

}  // namespace
}  // namespace diapason
