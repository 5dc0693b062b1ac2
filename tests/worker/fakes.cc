#include "tests/worker/fakes.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/process.h"
#include "compiler/codegen/reference.h"

namespace diapason {
namespace {

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

[[noreturn]] void Hang() {
  while (true) Sleep(60);
}

[[noreturn]] void EatMemory() {
  std::vector<std::unique_ptr<char[]>> eaten;
  while (true) {
    eaten.push_back(std::make_unique<char[]>(16 << 20));
    std::memset(eaten.back().get(), 1, 16 << 20);
  }
}

// SIGSEGV that no sanitizer turns into an exit.
[[noreturn]] void Crash() {
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
  _exit(99);
}

void MisbehaveAs(const std::string& word) {
  if (word == "crash") Crash();
  if (word == "hang") Hang();
  if (word == "oom") EatMemory();
  if (word == "exit") {
    std::fprintf(stderr, "giving up on purpose\n");
    _exit(3);
  }
  if (word == "abort") {
    std::fprintf(stderr, "assertion failed on purpose\n");
    std::abort();
  }
  if (word == "throw") throw std::runtime_error("thrown on purpose");
  if (word == "suicide") {
    raise(SIGKILL);
    Hang();
  }
  if (word == "slow") Sleep(0.2);
  if (word == "grandchild") {
    if (fork() == 0) {
      std::ofstream(std::string(getenv("TMPDIR")) + "/litter") << "litter";
      execl("/bin/sleep", "sleep", "61", nullptr);
      _exit(1);
    }
    Hang();
  }
}

std::string Setting(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

bool CanWriteTo(const std::string& folder) {
  const std::string path = folder + "/written-" + std::to_string(getpid());
  std::ofstream(path) << "x";
  return access(path.c_str(), F_OK) == 0;
}

bool CanConnect() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(Setting("DIAPASON_FAKE_PORT").c_str())));
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  close(fd);
  return connected;
}

std::string LookAround() {
  std::string found;
  if (CanWriteTo(Setting("TMPDIR"))) found += " scratch";
  if (CanWriteTo(Setting("DIAPASON_FAKE_OUTSIDE"))) found += " files";
  if (CanConnect()) found += " network";
  if (kill(std::atoi(Setting("DIAPASON_FAKE_PID").c_str()), 0) == 0) found += " processes";
  return "can reach:" + found;
}

class FakeToolchain : public Toolchain {
 public:
  std::variant<Program, MeasureError> Build(const Candidate& candidate, const StageBegins& stage_begins) override {
    stage_begins(MeasureStage::kCompile);
    std::istringstream words(candidate.schedule.sketch);
    std::string kernel = "double";
    for (std::string word; words >> word;) {
      if (word == "refuse") return MeasureError{ErrorKind::kCompile, MeasureStage::kCompile, "line 7: no such thing"};
      if (word == "niceness")
        return MeasureError{ErrorKind::kCompile, MeasureStage::kCompile, std::to_string(getpriority(PRIO_PROCESS, 0))};
      if (word == "look_around") return MeasureError{ErrorKind::kCompile, MeasureStage::kCompile, LookAround()};
      if (word.rfind("kernel=", 0) == 0) kernel = word.substr(7);
      MisbehaveAs(word);
    }
    return MakeProgram(candidate.task, candidate.target, kernel);
  }

  absl::StatusOr<Program> BuildReference(const ComputeDag& task, const Target& target) override {
    return MakeProgram(task, target, "double");
  }

 private:
  static Program MakeProgram(const ComputeDag& task, const Target& target, const std::string& kernel) {
    Program program;
    program.target = target;
    program.compiler = "fake 1.0";
    for (int id = 0; id < task.size(); ++id) {
      ProgramBuffer buffer;
      buffer.name = task.stage(id).name;
      buffer.dtype = task.stage(id).dtype;
      buffer.elements = task.stage(id).elements();
      buffer.role = task.stage(id).placeholder ? BufferRole::kInput : BufferRole::kOutput;
      buffer.stage = id;
      program.buffers.push_back(buffer);
    }
    Kernel k;
    k.name = kernel;
    k.args = {0, 1};
    program.kernels = {k};
    program.registers = {32};
    program.spill_bytes = {0};
    return program;
  }
};

// A dag like it that reads where no buffer is.
absl::StatusOr<ComputeDag> Straying(const ComputeDag& dag) {
  std::vector<Stage> stages = dag.stages();
  for (Stage& stage : stages) {
    if (stage.body == nullptr) continue;
    stage.body = Rewrite(stage.body, [](const Expr& e) {
      if (e->kind != ExprKind::kLoad) return e;
      std::vector<Expr> indices = e->args;
      indices.back() = Add(indices.back(), IntImm(int64_t{1} << 36));
      return Load(e->buffer, e->dtype, std::move(indices));
    });
  }
  return ComputeDag::Create(std::move(stages), dag.outputs());
}

class StrayingToolchain : public Toolchain {
 public:
  std::variant<Program, MeasureError> Build(const Candidate& candidate, const StageBegins& stage_begins) override {
    const absl::StatusOr<ComputeDag> dag =
        candidate.schedule.sketch == "stray" ? Straying(candidate.task) : candidate.task;
    const absl::StatusOr<Program> program = dag.ok() ? CompileReference(*dag, candidate.target) : dag.status();
    if (!program.ok())
      return MeasureError{ErrorKind::kCompile, MeasureStage::kCompile, std::string(program.status().message())};
    return *program;
  }
  absl::StatusOr<Program> BuildReference(const ComputeDag& task, const Target& target) override {
    return CompileReference(task, target);
  }
};

// Of this process's device: number 6 is sick while there is a file of the name that the environment gives.
bool g_may_be_sick = false;
bool IsSick() {
  const char* path = getenv("DIAPASON_FAKE_SICK");
  return path != nullptr && access(path, F_OK) == 0;
}

class FakeBuffer : public DeviceBuffer {
 public:
  explicit FakeBuffer(int64_t bytes) : own(static_cast<size_t>(bytes)), data(own.data(), own.size()) {}
  FakeBuffer(FakeBuffer& of, int64_t offset, int64_t bytes) : data(of.data.subspan(offset, bytes)) {}
  int64_t bytes() const override { return static_cast<int64_t>(data.size()); }
  std::vector<uint8_t> own;  // empty for a view
  std::span<uint8_t> data;
};

class FakeModule : public Module {};

class FakePlan : public Plan {
 public:
  explicit FakePlan(std::vector<Launch> launches) : launches_(std::move(launches)) {}

  absl::Status Run() override {
    for (const Launch& launch : launches_) {
      if (absl::Status status = RunKernel(launch); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Time(int64_t times) override {
    if (absl::Status status = Run(); !status.ok()) return status;
    double total = 0;
    for (const Launch& launch : launches_) {
      if (launch.kernel.name == "late") Crash();
      double seconds = launch.kernel.name == "fast" ? 1e-12 : launch.kernel.name == "slow" ? 1e-3 : 1e-4;
      total += seconds * static_cast<double>(times);
    }
    Sleep(std::min(total, 0.01));
    return total;
  }

 private:
  static absl::Status RunKernel(const Launch& launch) {
    const std::string& name = launch.kernel.name;
    if (g_may_be_sick && IsSick() && name == "double") return absl::AbortedError("uncorrectable error of its memory");
    if (name == "reset" || (name == "reset_once" && mkdir(Setting("DIAPASON_FAKE_RESET").c_str(), 0700) == 0))
      return absl::UnknownError("the driver was reset");
    if (name == "lose") return absl::AbortedError("illegal memory access at 0x10");
    if (name == "skip") return absl::OkStatus();
    if (name == "look_around") return absl::InvalidArgumentError(LookAround());
    if (name != "slow") MisbehaveAs(name);
    const std::span<uint8_t> in = static_cast<FakeBuffer&>(*launch.args[0]).data;
    const std::span<uint8_t> out = static_cast<FakeBuffer&>(*launch.args[1]).data;
    for (size_t i = 0; i + sizeof(float) <= out.size(); i += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, in.data() + i, sizeof(value));
      value += value;
      if (name == "wrong" && i == 8) value += 1;
      if (name == "nan" && i == 8) value = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(out.data() + i, &value, sizeof(value));
    }
    return absl::OkStatus();
  }

  const std::vector<Launch> launches_;
};

class FakeDevice : public Device {
 public:
  FakeDevice() {
    facts_.model = "Fake 3000";
    facts_.uuid = "fake-uuid";
    facts_.driver = "fake driver 1";
    facts_.flops = 1e9;
    facts_.max_threads_per_block = 1024;
  }
  const DeviceFacts& facts() const override { return facts_; }
  TargetKind kind() const override { return TargetKind::kCpu; }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override {
    if (bytes > (int64_t{1} << 32))
      return absl::ResourceExhaustedError("the device has no room for " + std::to_string(bytes));
    return std::make_unique<FakeBuffer>(bytes);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer& of, int64_t offset, int64_t bytes) override {
    return std::make_unique<FakeBuffer>(static_cast<FakeBuffer&>(of), offset, bytes);
  }
  absl::Status CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) override {
    std::memcpy(static_cast<FakeBuffer&>(to).data.data(), from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) override {
    std::memcpy(to, static_cast<const FakeBuffer&>(from).data.data(), static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Fill(DeviceBuffer& to, uint8_t value) override {
    const std::span<uint8_t> data = static_cast<FakeBuffer&>(to).data;
    std::fill(data.begin(), data.end(), value);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Module>> Load(const Program& program) override {
    ++loads_;
    if (program.kernels[0].name == "load_crash") Crash();
    // A fault that the program before left behind.
    if (program.kernels[0].name == "load_crash_unless_first" && loads_ > 1) Crash();
    if (program.kernels[0].name == "refuse_load") return absl::InvalidArgumentError("too many registers");
    return std::make_unique<FakeModule>();
  }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) override {
    return std::make_unique<FakePlan>(std::move(launches));
  }
  absl::Status FlushCache() override { return absl::OkStatus(); }
  Clocks clocks() const override { return {1500, 2600}; }

 private:
  DeviceFacts facts_;
  int loads_ = 0;
};

}  // namespace

ComputeDag DoublingDag(int64_t elements) {
  DagBuilder b;
  int x = b.Placeholder("x", {elements});
  int y = b.Compute("y", {elements}, [&](const DagBuilder::Vars& i) { return Add(b.At(x, {i[0]}), b.At(x, {i[0]})); });
  return b.Build({y}).value();
}

std::unique_ptr<Toolchain> MakeStrayingToolchain() { return std::make_unique<StrayingToolchain>(); }

std::unique_ptr<Toolchain> MakeFakeToolchain() { return std::make_unique<FakeToolchain>(); }

absl::StatusOr<std::unique_ptr<Device>> OpenFakeDevice(const Target& target) {
  if (target.device == 9) return absl::UnavailableError("there is no device 9");
  if (target.device == 8) Crash();
  if (target.device == 7) Hang();
  if (target.device == 5 && !CanWriteTo(Setting("DIAPASON_FAKE_OUTSIDE")))
    return absl::UnavailableError("the device opens only outside");
  g_may_be_sick = target.device == 6;
  return std::make_unique<FakeDevice>();
}

int StartSlowly(const char* fifo) {
  DieWithParentAndGroups();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, fifo, O_WRONLY, 0);
  char name[] = "sleep", seconds[] = "60";
  char* argv[] = {name, seconds, nullptr};
  pid_t pid = 0;
  if (posix_spawn(&pid, "/bin/sleep", &actions, nullptr, argv, environ) != 0) return 1;
  while (true) pause();
}

}  // namespace diapason
