#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/codegen/compile.h"

namespace diapason {
namespace {

using NvrtcProgram = void*;
constexpr int kSuccess = 0;
constexpr int64_t kRegisters = 65536;        // of a multiprocessor of every GPU since Volta
constexpr int64_t kSharedBytes = 228 << 10;  // of one of sm_90; others have less, and then no block more is won
constexpr int kMostRegisters = 255;          // of a thread
constexpr int kSqueeze = 8;                  // per cent of its registers that a kernel can do without, as a rule
constexpr char kDefaultArch[] = "sm_90";

// The entry points of libnvrtc that we call, as nvrtc.h declares them (results are an enum whose 0 is success).
struct Nvrtc {
  int (*version)(int* major, int* minor);
  int (*create)(NvrtcProgram*, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names);
  int (*destroy)(NvrtcProgram*);
  int (*compile)(NvrtcProgram, int count, const char* const* options);
  int (*log_size)(NvrtcProgram, size_t*);
  int (*log)(NvrtcProgram, char*);
  int (*cubin_size)(NvrtcProgram, size_t*);
  int (*cubin)(NvrtcProgram, char*);
  const char* (*error_text)(int);
  int major = 0, minor = 0;

  std::string compiler() const { return "NVRTC " + std::to_string(major) + "." + std::to_string(minor); }
};

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool FindAll(void* library, Nvrtc& nvrtc) {
  return Find(library, "nvrtcVersion", nvrtc.version) && Find(library, "nvrtcCreateProgram", nvrtc.create) &&
         Find(library, "nvrtcDestroyProgram", nvrtc.destroy) && Find(library, "nvrtcCompileProgram", nvrtc.compile) &&
         Find(library, "nvrtcGetProgramLogSize", nvrtc.log_size) && Find(library, "nvrtcGetProgramLog", nvrtc.log) &&
         Find(library, "nvrtcGetCUBINSize", nvrtc.cubin_size) && Find(library, "nvrtcGetCUBIN", nvrtc.cubin) &&
         Find(library, "nvrtcGetErrorString", nvrtc.error_text);
}

std::vector<std::string> Folders() {
  std::vector<std::string> folders = {""};
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(name); home != nullptr && *home != '\0')
      folders.push_back(std::string(home) + "/lib64/");
  folders.push_back("/usr/local/cuda/lib64/");
  return folders;
}

// The newest libnvrtc that the loader or the usual folders have; null without one. Opened once, never closed.
const Nvrtc* OpenNvrtc() {
  static const Nvrtc* const kNvrtc = []() -> const Nvrtc* {
    for (const std::string& folder : Folders()) {
      for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
        void* library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
        auto* nvrtc = new Nvrtc;
        if (library != nullptr && FindAll(library, *nvrtc) && nvrtc->version(&nvrtc->major, &nvrtc->minor) == kSuccess)
          return nvrtc;
        delete nvrtc;
      }
    }
    return nullptr;
  }();
  return kNvrtc;
}

// One compilation; the handle is freed whatever happens.
class Compilation {
 public:
  Compilation(const Nvrtc& nvrtc, const std::string& source) : nvrtc_(nvrtc) {
    created_ = nvrtc.create(&program_, source.c_str(), "kernels.cu", 0, nullptr, nullptr);
  }
  ~Compilation() {
    if (created_ == kSuccess) nvrtc_.destroy(&program_);
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  int Run(const std::vector<std::string>& options) {
    if (created_ != kSuccess) return created_;
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    return nvrtc_.compile(program_, static_cast<int>(pointers.size()), pointers.data());
  }
  std::string Log() const { return Get(nvrtc_.log_size, nvrtc_.log); }
  std::string Cubin() const { return Get(nvrtc_.cubin_size, nvrtc_.cubin); }

 private:
  std::string Get(int (*size_of)(NvrtcProgram, size_t*), int (*get)(NvrtcProgram, char*)) const {
    size_t size = 0;
    if (created_ != kSuccess || size_of(program_, &size) != kSuccess) return "";
    std::string bytes(size, '\0');
    if (get(program_, bytes.data()) != kSuccess) return "";
    return bytes;
  }
  const Nvrtc& nvrtc_;
  NvrtcProgram program_ = nullptr;
  int created_;
};

std::vector<std::string> Options(const Nvrtc& nvrtc, const std::string& arch) {
  // With what sm_90 alone has, such as wgmma: binaries are for one architecture anyway.
  const std::string whole = arch == "sm_90" ? "sm_90a" : arch;
  std::vector<std::string> options = {"-arch=" + whole, "--std=c++17", "-default-device", "--ptxas-options=-v"};
  if (nvrtc.major >= 13) {
    options.push_back("--no-cache");  // every trial is new: a cache on disk would only grow
    options.push_back("-minimal");    // without declarations that no kernel uses
  }
  return options;
}

struct Usage {
  int registers = 0, spill_bytes = 0;
  bool serialized = false;
};

// What ptxas -v says of each kernel:
//   ptxas info    : Compiling entry function 'gemm' for 'sm_90'
//   ptxas         .     0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
//   ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized ... function 'gemm'
//   ptxas info    : Used 48 registers, used 1 barriers, 4096 bytes smem
std::map<std::string, Usage> ReadUsage(const std::string& log) {
  std::map<std::string, Usage> usage;
  Usage* kernel = nullptr;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    constexpr char kEntry[] = "entry function '", kUsed[] = ": Used ", kFrame[] = "bytes stack frame, ",
                   kFunction[] = "in the function '";
    const auto quoted = [&](size_t at) { return line.substr(at, line.find('\'', at) - at); };
    if (size_t at = line.find(kEntry); at != std::string::npos) {
      kernel = &usage[quoted(at + sizeof kEntry - 1)];
    } else if (at = line.find(kFunction);
               at != std::string::npos && line.find("instructions are serialized") != std::string::npos) {
      usage[quoted(at + sizeof kFunction - 1)].serialized = true;
    } else if (kernel == nullptr) {
      continue;
    } else if (at = line.find(kFrame); at != std::string::npos) {
      kernel->spill_bytes = std::atoi(line.c_str() + at + sizeof kFrame - 1);
    } else if (at = line.find(kUsed); at != std::string::npos) {
      kernel->registers = std::atoi(line.c_str() + at + sizeof kUsed - 1);
    }
  }
  return usage;
}

// One run of the compiler over a program's source.
absl::Status CompileOnce(const Nvrtc& nvrtc, Program& program) {
  const std::string arch = program.target.arch.empty() ? kDefaultArch : program.target.arch;
  Compilation compilation(nvrtc, program.source);
  const int result = compilation.Run(Options(nvrtc, arch));
  if (result != kSuccess)
    return absl::InvalidArgumentError(nvrtc.compiler() + " refused the generated source for " + arch + " (" +
                                      nvrtc.error_text(result) + "):\n" + FirstErrors(compilation.Log()));
  program.binary = compilation.Cubin();
  program.compiler = nvrtc.compiler();
  const std::map<std::string, Usage> usage = ReadUsage(compilation.Log());
  program.registers.clear();
  program.spill_bytes.clear();
  program.serialized.clear();
  for (const Kernel& kernel : program.kernels) {
    auto it = usage.find(kernel.name);
    if (it == usage.end()) continue;
    program.registers.push_back(it->second.registers);
    program.spill_bytes.push_back(it->second.spill_bytes);
    program.serialized.push_back(it->second.serialized);
  }
  return absl::OkStatus();
}

// Blocks of a kernel whose registers one multiprocessor holds.
int64_t BlocksByRegisters(const Kernel& kernel, int64_t registers) {
  const int64_t warps = (kernel.block[0] + 31) / 32, each = (registers + 7) / 8 * 8 * 32 * warps;
  return kRegisters / std::max<int64_t>(1, each);
}

// The resident blocks to ask the compiler for, where its own choice was a bad one; 0 where it was not. It keeps to half
// of the registers so that two blocks fit, even if it has to spill; and it takes a few registers more than would let
// one block more in.
int64_t BetterResidence(const Kernel& kernel, int registers, int spilled, bool is_said) {
  const int64_t blocks = BlocksByRegisters(kernel, registers), most = kSharedBytes / (kernel.shared_bytes + 1024);
  if (spilled > 0)
    return blocks > 1 && registers < kMostRegisters ? std::max<int64_t>(1, std::min(blocks - 1, most)) : 0;
  if (is_said) return 0;  // that no more blocks come
  const bool squeezes = BlocksByRegisters(kernel, registers * (100 - kSqueeze) / 100) > blocks;
  return registers > 64 && blocks > 0 && blocks < most && squeezes ? blocks + 1 : 0;
}

// Where the source says for how many threads, and perhaps resident blocks, a kernel is compiled; size 0: nowhere.
struct LaunchBounds {
  size_t at = 0, size = 0;
  bool says_blocks = false;
};

LaunchBounds LaunchBoundsOf(const std::string& source, const Kernel& kernel) {
  const size_t name = source.find(absl::StrCat(") ", kernel.name, "("));
  const size_t at = name == std::string::npos ? name : source.rfind("__launch_bounds__(", name);
  if (at == std::string::npos) return {};
  return {at, name + 1 - at, source.substr(at, name - at).find(',') != std::string::npos};
}

// The source of a program with the resident blocks of kernel k said.
std::string WithResidence(const Program& program, size_t k, int64_t blocks) {
  std::string source = program.source;
  const Kernel& kernel = program.kernels[k];
  const LaunchBounds found = LaunchBoundsOf(source, kernel);
  if (found.size > 0)
    source.replace(found.at, found.size, absl::StrCat("__launch_bounds__(", kernel.block[0], ", ", blocks, ")"));
  return source;
}

}  // namespace

absl::Status CompileCuda(Program& program) {
  const Nvrtc* nvrtc = OpenNvrtc();
  if (nvrtc == nullptr)
    return absl::UnavailableError(
        "no CUDA compiler: libnvrtc.so was not found; install the CUDA toolkit's NVRTC (12 or later), or add its "
        "folder to "
        "LD_LIBRARY_PATH");
  RETURN_IF_ERROR(CompileOnce(*nvrtc, program));
  if (program.registers.size() != program.kernels.size()) return absl::OkStatus();
  std::vector<int64_t> blocks;
  for (size_t k = 0; k < program.kernels.size(); ++k)
    blocks.push_back(BetterResidence(program.kernels[k], program.registers[k], program.spill_bytes[k],
                                     LaunchBoundsOf(program.source, program.kernels[k]).says_blocks));
  // Once more with those that were better for it, if not all were.
  for (int attempt = 0; attempt < 2; ++attempt) {
    Program other = program;
    for (size_t k = 0; k < blocks.size(); ++k)
      if (blocks[k] > 0) other.source = WithResidence(other, k, blocks[k]);
    if (other.source == program.source) return absl::OkStatus();
    if (!CompileOnce(*nvrtc, other).ok() || other.spill_bytes.size() != blocks.size()) return absl::OkStatus();
    bool all = true;
    for (size_t k = 0; k < blocks.size(); ++k) {
      if (blocks[k] == 0) continue;
      const int before = program.spill_bytes[k], now = other.spill_bytes[k];
      if (before > 0 ? now < before : now == 0) continue;
      blocks[k] = 0;
      all = false;
    }
    if (!all) continue;
    program = std::move(other);
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace diapason
