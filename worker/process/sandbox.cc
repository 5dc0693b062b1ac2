#include "worker/process/sandbox.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/environment.h"
#include "worker/process/child_process.h"
#include "worker/process/scratch.h"

namespace diapason {
namespace {

namespace fs = std::filesystem;

constexpr char kProgram[] = "bwrap";
constexpr std::chrono::seconds kTrialTimeout{10};
constexpr char kMend[] = ", or say --sandbox off to go without";

// Of NVIDIA (with those of its capabilities), of Mesa and AMD, of Windows' Linux.
std::vector<std::string> DeviceNodes() {
  std::vector<std::string> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("nvidia", 0) == 0 || name == "dri" || name == "kfd" || name == "dxg") nodes.push_back(entry.path());
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

std::vector<std::string> Folders(const char* variable) {
  const char* text = std::getenv(variable);
  std::vector<std::string> folders;
  std::istringstream all(text == nullptr ? "" : text);
  for (std::string folder; std::getline(all, folder, ':');)
    if (!folder.empty() && folder[0] == '/') folders.push_back(fs::path(folder).lexically_normal());
  return folders;
}

// Whether `path` is below `folder`, or the folder itself.
bool IsIn(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

// Where users and services of the host leave files and sockets for each other: empty inside. The scratch folders of
// other processes are among them.
std::vector<std::string> HiddenFolders(const std::string& scratch) {
  const std::string all = fs::path(scratch).parent_path(), base = fs::path(all).parent_path();
  std::vector<std::string> hidden;
  for (const char* folder : {"/tmp", "/var/tmp", "/run"}) {
    std::error_code missing;
    const std::string there = fs::canonical(folder, missing);
    if (!missing && IsFolder(there) && std::find(hidden.begin(), hidden.end(), there) == hidden.end())
      hidden.push_back(there);
  }
  const char* home = std::getenv("HOME");
  const bool has_homes = base == "/" || (home != nullptr && IsIn(home, base));
  const std::string own = has_homes ? all : base;
  if (std::none_of(hidden.begin(), hidden.end(), [&](const std::string& h) { return IsIn(own, h); }))
    hidden.push_back(own);
  return hidden;
}

// What the program, its compilers and its drivers were told to be read from, even there.
std::vector<std::string> NeededFolders(const std::string& program) {
  std::error_code error;
  const fs::path file = fs::canonical(program, error);
  std::vector<std::string> needed;
  if (!error) needed = {file.parent_path(), file.parent_path().parent_path() / "lib"};
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"})
    for (std::string& folder : Folders(name)) needed.push_back(std::move(folder));
  for (const std::string& compiler : Folders("CC"))
    needed.push_back(fs::path(compiler.substr(0, compiler.find(' '))).parent_path());
  return needed;
}

// A shell that writes to its scratch folder, inside. OK when it could.
absl::Status Try(const Sandbox& sandbox, ScratchFolder& scratch) {
  ChildOptions options;
  options.program = "/bin/sh";
  options.args = {"sh", "-c", ": > \"$TMPDIR/written\""};
  ASSIGN_OR_RETURN(options.scratch, scratch.Fresh("sandbox"));
  sandbox.Wrap(/*devices=*/true, options);
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> child, ChildProcess::Spawn(options));
  const auto until = std::chrono::steady_clock::now() + kTrialTimeout;
  std::optional<int> status;
  while (!(status = child->Reap()).has_value()) {
    if (std::chrono::steady_clock::now() > until) return absl::DeadlineExceededError("it does not answer");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (*status == 0 && fs::exists(options.scratch + "/written")) return absl::OkStatus();
  const std::string output = child->OutputTail();
  return absl::UnavailableError(output.empty() ? "it " + DescribeWaitStatus(*status) : output);
}

}  // namespace

std::optional<SandboxMode> ParseSandboxMode(const std::string& text) {
  if (text == "off") return SandboxMode::kOff;
  if (text == "auto") return SandboxMode::kAuto;
  if (text == "on") return SandboxMode::kOn;
  return std::nullopt;
}

Sandbox Sandbox::None(std::string why) {
  Sandbox none;
  none.why_not_ = std::move(why);
  return none;
}

absl::StatusOr<Sandbox> Sandbox::Find(SandboxMode mode, ScratchFolder& scratch) {
  if (mode == SandboxMode::kOff) return None();
  Sandbox sandbox;
  sandbox.program_ = FindOnPath(kProgram);
  std::string why;
  if (sandbox.program_.empty()) {
    why = "there is no program bwrap on the PATH: install it (Debian's package is bubblewrap)";
  } else if (absl::Status tried = Try(sandbox, scratch); !tried.ok()) {
    why = sandbox.program_ + " fails here (" + std::string(tried.message()) +
          "): allow unprivileged user namespaces on this host";
  }
  if (why.empty()) return sandbox;
  if (mode == SandboxMode::kAuto) return None(std::move(why));
  return absl::UnavailableError("the sandbox is not to be had: " + why + kMend);
}

std::string Sandbox::Describe() const {
  return in_force() ? "no network, files read-only but for scratch folders, by " + program_ : "nothing";
}

void Sandbox::Wrap(bool devices, ChildOptions& child) const {
  if (!in_force()) return;
  std::vector<std::string>& args = child.wrapper;
  args = {program_,
          "--unshare-user-try",
          "--unshare-pid",
          "--unshare-net",
          "--unshare-ipc",
          "--die-with-parent",
          "--cap-drop",
          "ALL",
          "--ro-bind",
          "/",
          "/"};
  auto add = [&args](std::initializer_list<std::string> more) { args.insert(args.end(), more); };
  const std::vector<std::string> hidden = HiddenFolders(child.scratch);
  for (const std::string& folder : hidden) add({"--tmpfs", folder});
  for (const std::string& needed : NeededFolders(child.program)) {
    const bool gone =
        std::any_of(hidden.begin(), hidden.end(), [&](const auto& h) { return needed != h && IsIn(needed, h); });
    if (gone && fs::is_directory(needed)) add({"--ro-bind", needed, needed});
  }
  // The drivers of some distributions lie there.
  if (IsFolder("/run")) add({"--ro-bind-try", "/run/opengl-driver", "/run/opengl-driver"});
  add({"--dev", "/dev", "--proc", "/proc"});
  if (devices) {
    for (const std::string& node : DeviceNodes()) add({"--dev-bind-try", node, node});
  }
  add({"--bind", child.scratch, child.scratch, "--"});
  for (const char* cache : {"POCL_CACHE_DIR", "CUDA_CACHE_PATH", "XDG_CACHE_HOME"}) {
    child.environment.emplace_back(cache, child.scratch + "/cache");
  }
}

}  // namespace diapason
