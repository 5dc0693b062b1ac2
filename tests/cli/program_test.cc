// The program as its users meet it: a process of its own that is killed, interrupted, or runs out of room.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/serialize.h"
#include "db/history.h"
#include "scheduler/candidate.h"
#include "tests/cli/testing.h"
#include "tests/paths.h"

namespace diapason {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class ProgramTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ASSERT_TRUE(std::filesystem::create_directory(Path("tmp")));
  }

  // Starts the program with its own TMPDIR, its output in files. No file that it writes may grow beyond `room` bytes.
  pid_t Start(const std::vector<std::string>& args, int64_t room = 0, const std::string& out = "") {
    const std::string output = out.empty() ? Path("out") : out, errors = Path("err"), tmp = "TMPDIR=" + Path("tmp");
    std::vector<std::string> words = {TEST_PATH(DIAPASON_PROGRAM)};
    words.insert(words.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    if (freopen("/dev/null", "r", stdin) == nullptr || freopen(output.c_str(), "w", stdout) == nullptr ||
        freopen(errors.c_str(), "w", stderr) == nullptr)
      _exit(99);
    const rlimit limit{static_cast<rlim_t>(room), static_cast<rlim_t>(room)};
    if (room > 0 && setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(98);
    putenv(const_cast<char*>(tmp.c_str()));
    execv(TEST_PATH(DIAPASON_PROGRAM).c_str(), argv.data());
    _exit(97);
  }

  // The exit code; 128 + signal for a process that died of one.
  static int Wait(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  CliResult Run(const std::vector<std::string>& args, int64_t room = 0, const std::string& out = "") {
    CliResult result;
    result.code = Wait(Start(args, room, out));
    result.out = ReadAll(Path("out"));
    result.err = ReadAll(Path("err"));
    return result;
  }

  std::vector<std::string> TuneArgs(int64_t trials) const {
    return OnSmallProduct("tune",
                          {"--history", Path("h.db"), "--min-repeat-ms", "1", "--trials", absl::StrCat(trials)});
  }

  // Waits until the history holds so many records; fails the test after a minute.
  void WaitForRecords(int64_t count) {
    for (int i = 0; i < 600; ++i) {
      if (std::filesystem::exists(Path("h.db"))) {
        const CliResult info = Cli({"history", "info", Path("h.db"), "--json"});
        if (info.code == 0 && info.json()["record_count"] >= count) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    FAIL() << "no " << count << " records within a minute: " << ReadAll(Path("err"));
  }

  int64_t CheckedRecords(const std::string& name = "h.db") {
    const CliResult check = Cli({"history", "check", Path(name), "--json"});
    EXPECT_EQ(check.code, 0) << check.out << check.err;
    return check.code == 0 ? static_cast<int64_t>(check.json()["record_count"]) : -1;
  }

  // Each candidate of a history once.
  void ExpectNoCandidateTwice() {
    auto history = History::Open(Path("h.db"), HistoryMode::kReadOnly);
    ASSERT_TRUE(history.ok());
    std::set<std::pair<std::string, uint64_t>> seen;
    const int64_t records = (*history)->Info()->records;
    for (int64_t id = 1; id <= records; ++id) {
      const auto record = (*history)->Get(id);
      ASSERT_TRUE(record.ok()) << record.status();
      EXPECT_TRUE(seen.insert({record->workload_key, record->configuration_hash}).second) << "record " << id;
    }
  }
};

// Processes, alive, whose environment names this folder.
int ProcessesOf(const std::string& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos || std::atoi(name.c_str()) == getpid()) continue;
    if (ReadAll(entry.path() / "environ").find(folder) != std::string::npos) ++count;
  }
  return count;
}

TEST_F(ProgramTest, AKilledTuneLosesNothingAndGoesOn) {
  const pid_t pid = Start(TuneArgs(1'000'000));
  WaitForRecords(5);
  kill(pid, SIGKILL);
  EXPECT_EQ(Wait(pid), 128 + SIGKILL);
  const int64_t kept = CheckedRecords();
  EXPECT_GE(kept, 5);
  // Builders and runners do not outlive it.
  for (int i = 0; i < 100 && ProcessesOf(Path("tmp")) > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(ProcessesOf(Path("tmp")), 0);

  std::vector<std::string> again = TuneArgs(kept + 6);
  again.push_back("--json");
  const CliResult resumed = Run(again);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(resumed.json()["trials"], kept + 6);
  EXPECT_EQ(resumed.json()["measured"], 6);
  EXPECT_EQ(CheckedRecords(), kept + 6);
  ExpectNoCandidateTwice();
}

// A limit of file sizes stands for a full disk: the same calls fail, with another number.
TEST_F(ProgramTest, ATuneWithoutRoomKeepsWhatItReported) {
  ASSERT_EQ(Run(TuneArgs(4)).code, 0) << ReadAll(Path("err"));
  const auto size = static_cast<int64_t>(std::filesystem::file_size(Path("h.db")));
  std::vector<std::string> endless = TuneArgs(1'000'000);
  // With as many as there are cores the list of proposals may be full before a trial is done.
  endless.insert(endless.end(), {"--builders", "2"});
  const CliResult full = Run(endless, size + (128 << 10));
  EXPECT_EQ(full.code, 1);
  // Whichever of the two files reaches the limit first.
  const auto no_room = [](const std::string& file) {
    return "error: there is no room to write " + file +
           "'; free space on its disk and try again: everything reported before is kept\n";
  };
  EXPECT_TRUE(full.err == no_room("history '" + Path("h.db")) ||
              full.err == no_room("list of proposals '" + Path("h.db.rounds")))
      << full.err;
  // The last line of progress tells all trials, those of before included: "... 37/1000000 trials, ...".
  const size_t at = full.out.rfind("/1000000 trials");
  ASSERT_NE(at, std::string::npos) << full.out;
  const int64_t reported = std::atoll(full.out.c_str() + full.out.rfind(' ', at) + 1);
  EXPECT_GT(reported, 4);
  EXPECT_EQ(CheckedRecords(), reported);

  EXPECT_EQ(Run(TuneArgs(reported + 2)).code, 0) << ReadAll(Path("err"));
  EXPECT_EQ(CheckedRecords(), reported + 2);
  ExpectNoCandidateTwice();
}

TuningRecord Record(int64_t trial) {
  DagBuilder builder;
  const int x = builder.Placeholder("x", {8});
  const int y = builder.Compute("y", {8}, [&](const auto& i) { return Add(builder.At(x, {i[0]}), FloatImm(1)); });
  const ComputeDag dag = builder.Build({y}).value();
  TuningRecord record;
  record.workload_key = dag.workload_key();
  record.workload = SerializeDag(dag);
  record.target = "cpu";
  record.device_model = "a processor";
  record.rewrite = "direct";
  record.sketch = "direct/plain";
  record.schedule = SerializeSchedule(Schedule{});
  record.trial = trial;
  record.configuration = {static_cast<int32_t>(trial)};
  record.configuration_hash = CandidateHash(record.sketch, record.configuration);
  record.outcome = Timing{{1e-6}, 1, false, 0.1, 0.1};
  return record;
}

TEST_F(ProgramTest, AnImportWithoutRoomAddsNothing) {
  {
    auto history = History::Open(Path("many.db"), HistoryMode::kCreate);
    ASSERT_TRUE(history.ok());
    std::vector<TuningRecord> records;
    for (int i = 0; i < 2000; ++i) records.push_back(Record(i));
    ASSERT_TRUE((*history)->Append(records).ok());
    auto few = History::Open(Path("h.db"), HistoryMode::kCreate);
    ASSERT_TRUE(few.ok());
    ASSERT_TRUE((*few)->Append({Record(0), Record(1), Record(2)}).ok());
  }
  ASSERT_EQ(Run({"history", "export", Path("many.db"), "--out", Path("many.jsonl")}).code, 0);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(Path("h.db")));
  const CliResult full = Run({"history", "import", Path("h.db"), Path("many.jsonl")}, size + (64 << 10));
  EXPECT_EQ(full.code, 1);
  EXPECT_EQ(full.err, "error: there is no room to write history '" + Path("h.db") +
                          "'; free space on its disk and try again: everything reported before is kept\n");
  EXPECT_EQ(full.out, "");
  EXPECT_EQ(CheckedRecords(), 3);
  EXPECT_EQ(Run({"history", "import", Path("h.db"), Path("many.jsonl")}).out,
            "imported 2000 records; 0 were there already\n");
  EXPECT_EQ(CheckedRecords(), 2003);
}

TEST_F(ProgramTest, ASecondCtrlCStopsAtOnce) {
  const pid_t pid = Start(TuneArgs(1'000'000));
  WaitForRecords(1);
  // The process stands still between the two, so that the first cannot have ended it.
  kill(pid, SIGSTOP);
  kill(pid, SIGINT);
  kill(pid, SIGTERM);  // counts as the second
  const auto began = std::chrono::steady_clock::now();
  kill(pid, SIGCONT);
  EXPECT_EQ(Wait(pid), 130);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  EXPECT_EQ(ReadAll(Path("err")),
            "\nerror: stopped at once by a second Ctrl-C; what was measured until then is kept\n");
  EXPECT_GE(CheckedRecords(), 1);
}

TEST_F(ProgramTest, AReportThatDoesNotGetThroughIsAFailure) {
  const std::string sentence =
      "error: the report could not be written to its end; write standard output where there is free space\n";
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{{"networks"}, {"--help"}}) {
    const CliResult full = Run(args, 0, "/dev/full");
    EXPECT_EQ(full.code, 1);
    EXPECT_EQ(full.err, sentence);
  }
}

TEST_F(ProgramTest, APipeWhoseReaderWentAwayEndsItSilently) {
  for (const char* args : {"networks", "--help", "networks --json"}) {
    const std::string command = absl::StrCat("{ sleep 0.2; '", TEST_PATH(DIAPASON_PROGRAM), "' ", args,
                                             "; echo code $? >&2; } 2>'", Path("err"), "' | true");
    ASSERT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(ReadAll(Path("err")), "code 141\n") << args;
  }
}

TEST_F(ProgramTest, AnExportWhoseReaderWentAwayEndsSilently) {
  ASSERT_EQ(Run(TuneArgs(2)).code, 0);
  for (const char* format : {"jsonl", "t4"}) {
    const std::string command =
        absl::StrCat("{ sleep 0.2; '", TEST_PATH(DIAPASON_PROGRAM), "' history export '", Path("h.db"), "' --format ",
                     format, "; echo code $? >&2; } 2>'", Path("err"), "' | true");
    ASSERT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(ReadAll(Path("err")), "code 141\n") << format;
  }
  const CliResult full = Run({"history", "export", Path("h.db")}, 0, "/dev/full");
  EXPECT_EQ(full.code, 1);
  EXPECT_EQ(full.err,
            "error: the report could not be written to its end; write standard output where there is free space\n");
}

}  // namespace
}  // namespace diapason
