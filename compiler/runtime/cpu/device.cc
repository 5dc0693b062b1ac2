#include "compiler/runtime/cpu/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/argument_table.h"
#include "compiler/runtime/cpu/thread_pool.h"
#include "compiler/tensor/processor.h"

namespace diapason {
namespace {

constexpr int64_t kAlignment = 256;
// From this size on a buffer asks for 2 MiB pages: weights of tens of MiB read once a run would miss the TLB at each 4
// KiB.
constexpr int64_t kHugePage = 2 << 20;

class CpuBuffer : public DeviceBuffer {
 public:
  CpuBuffer(uint8_t* data, int64_t bytes, bool owned) : data_(data), bytes_(bytes), owned_(owned) {}
  ~CpuBuffer() override {
    if (owned_) std::free(data_);
  }
  int64_t bytes() const override { return bytes_; }
  uint8_t* data() const { return data_; }

 private:
  uint8_t* const data_;
  const int64_t bytes_;
  const bool owned_;
};

uint8_t* DataOf(const DeviceBuffer& buffer) { return static_cast<const CpuBuffer&>(buffer).data(); }

class CpuModule : public Module {
 public:
  static absl::StatusOr<std::unique_ptr<Module>> Load(const std::string& binary);
  CpuModule(void* handle, int fd) : handle_(handle), fd_(fd) {}
  ~CpuModule() override {
    dlclose(handle_);
    if (fd_ >= 0) close(fd_);
  }
  ThreadPool::Body Find(const std::string& name) const {
    return reinterpret_cast<ThreadPool::Body>(dlsym(handle_, name.c_str()));
  }
  // A constant of the object; null: it has none of that name.
  const char* Text(const char* name) const { return static_cast<const char*>(dlsym(handle_, name)); }

 private:
  void* const handle_;
  const int fd_;  // kept open: the loader knows objects by path, so the number must not serve another object meanwhile
};

bool WriteAll(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += n;
  }
  return true;
}

std::string LoaderError() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown reason";
}

absl::StatusOr<std::unique_ptr<CpuModule>> LoadFromFile(const std::string& binary) {
  const char* dir = std::getenv("TMPDIR");
  std::string path = absl::StrCat(dir != nullptr && *dir != 0 ? dir : "/tmp", "/diapason-XXXXXX");
  const int fd = mkstemp(path.data());
  if (fd < 0 || !WriteAll(fd, binary)) {
    const std::string why = std::strerror(errno);
    if (fd >= 0) {
      close(fd);
      unlink(path.c_str());
    }
    return absl::UnavailableError(absl::StrCat("a kernel cannot be written to ", path, " to be loaded: ", why,
                                               "; set TMPDIR to a folder with space"));
  }
  close(fd);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string why = handle == nullptr ? LoaderError() : "";
  unlink(path.c_str());
  if (handle == nullptr) return absl::InvalidArgumentError(absl::StrCat("the kernel binary does not load: ", why));
  return std::make_unique<CpuModule>(handle, -1);
}

absl::StatusOr<std::unique_ptr<CpuModule>> LoadFromMemory(const std::string& binary) {
  const int fd = memfd_create("diapason-kernel", MFD_CLOEXEC);
  if (fd < 0) return LoadFromFile(binary);
  void* handle = nullptr;
  if (WriteAll(fd, binary)) handle = dlopen(absl::StrCat("/proc/self/fd/", fd).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return std::make_unique<CpuModule>(handle, fd);
  close(fd);
  // Systems without /proc, or that forbid executable memory files.
  return LoadFromFile(binary);
}

// Nothing of an object runs before it is known that this processor can: instructions that it lacks would kill the
// process. Objects of older versions do not say what they need.
absl::StatusOr<std::unique_ptr<Module>> CpuModule::Load(const std::string& binary) {
  const auto refused = [](const absl::Status& why) {
    return absl::Status(why.code(), absl::StrCat("the kernel binary does not load: ", why.message()));
  };
  if (const absl::Status here = CheckObjectRunsHere(binary); !here.ok()) return refused(here);
  ASSIGN_OR_RETURN(std::unique_ptr<CpuModule> module, LoadFromMemory(binary));
  if (const char* const features = module->Text(kFeaturesSymbol); features != nullptr)
    if (const absl::Status here = CheckFeatures(features, HostFeatures()); !here.ok())
      return refused(absl::FailedPreconditionError(
          absl::StrCat(here.message(), "; build it for this machine, or with -mcpu= of an older processor")));
  return module;
}

struct BoundCall {
  ThreadPool::Body body;
  std::vector<void*> args;
  int64_t count;
  std::shared_ptr<PreparedCall> library;  // not null: it is called in place of the body
  std::vector<uint8_t> workspace;
};

absl::Status MakeCall(ThreadPool& pool, BoundCall& call) {
  if (call.library != nullptr) return call.library->Enqueue(call.args, call.workspace.data());
  pool.Run(call.body, call.args.data(), call.count);
  return absl::OkStatus();
}

class CpuPlan : public Plan {
 public:
  CpuPlan(ThreadPool& pool, std::vector<BoundCall> calls, ArgumentTable arguments)
      : pool_(pool), calls_(std::move(calls)), arguments_(std::move(arguments)) {}

  absl::Status Run() override {
    if (pool_.CallerIsInPlace()) return RunOnce();
    ThreadPool::CallerPin pin(pool_);
    return RunOnce();
  }

  absl::StatusOr<double> Time(int64_t times) override {
    ThreadPool::CallerPin pin(pool_);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < times; ++i) RETURN_IF_ERROR(RunOnce());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  bool CanRedirect(const DeviceBuffer& buffer) const override { return !arguments_.PlacesOf(buffer).empty(); }
  absl::Status Redirect(absl::Span<const Redirection> redirections) override {
    for (const Redirection& redirection : redirections)
      for (const ArgumentPlace& place : arguments_.PlacesOf(*redirection.buffer))
        calls_[place.launch].args[place.argument] = redirection.address;
    return absl::OkStatus();
  }

 private:
  absl::Status RunOnce() {
    for (BoundCall& call : calls_) RETURN_IF_ERROR(MakeCall(pool_, call));
    return absl::OkStatus();
  }

  ThreadPool& pool_;
  std::vector<BoundCall> calls_;
  const ArgumentTable arguments_;
};

// Reads the clock between calls, which takes some 30 ns: nothing is subtracted.
class CpuLaunchTimer : public LaunchTimer {
 public:
  CpuLaunchTimer(ThreadPool& pool, std::vector<BoundCall> calls) : pool_(pool), calls_(std::move(calls)) {}

  absl::StatusOr<std::vector<double>> Run() override {
    ThreadPool::CallerPin pin(pool_);
    std::vector<std::chrono::steady_clock::time_point> times(calls_.size() + 1);
    times[0] = std::chrono::steady_clock::now();
    for (size_t i = 0; i < calls_.size(); ++i) {
      RETURN_IF_ERROR(MakeCall(pool_, calls_[i]));
      times[i + 1] = std::chrono::steady_clock::now();
    }
    std::vector<double> seconds(calls_.size());
    for (size_t i = 0; i < calls_.size(); ++i)
      seconds[i] = std::chrono::duration<double>(times[i + 1] - times[i]).count();
    return seconds;
  }

 private:
  ThreadPool& pool_;
  std::vector<BoundCall> calls_;
};

// One word a cache line is enough to bring the line in as modified.
void TouchLines(void* const* args, int64_t begin, int64_t end) {
  auto* bytes = static_cast<volatile uint8_t*>(args[0]);
  for (int64_t line = begin; line < end; ++line) bytes[line * 64] = bytes[line * 64] + 1;
}

class CpuDevice : public Device {
 public:
  CpuDevice(DeviceFacts facts, std::unique_ptr<LibraryCalls> libraries)
      : facts_(std::move(facts)), pool_(facts_.num_cores), libraries_(std::move(libraries)) {}

  const DeviceFacts& facts() const override { return facts_; }
  TargetKind kind() const override { return TargetKind::kCpu; }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateZeros(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer& of, int64_t offset, int64_t bytes) override;
  absl::Status CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) override;
  absl::Status CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) override;
  absl::Status Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) override;
  void* AddressOf(const DeviceBuffer& buffer) const override { return DataOf(buffer); }
  std::unique_ptr<DeviceBuffer> Wrap(void* address, int64_t bytes) override {
    return std::make_unique<CpuBuffer>(static_cast<uint8_t*>(address), bytes, /*owned=*/false);
  }
  absl::Status Fill(DeviceBuffer& to, uint8_t value) override;
  absl::StatusOr<std::unique_ptr<Module>> Load(const Program& program) override;
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) override;
  absl::StatusOr<std::unique_ptr<LaunchTimer>> MakeLaunchTimer(std::vector<Launch> launches) override;
  absl::Status FlushCache() override;
  Clocks clocks() const override;

 private:
  absl::StatusOr<std::vector<BoundCall>> BindAll(const std::vector<Launch>& launches);
  absl::Status BindLibrary(const LibraryCall& library, BoundCall* call);

  const DeviceFacts facts_;
  ThreadPool pool_;
  const std::unique_ptr<LibraryCalls> libraries_;  // null: none
  std::unique_ptr<DeviceBuffer> flush_scratch_;    // made at the first FlushCache
};

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CpuDevice::Allocate(int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes cannot be"));
  const int64_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  void* data = nullptr;
  // More than there is would be granted (the system overcommits) and kill the process when it is touched.
  const bool fits = bytes < static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const int64_t size = fits ? (bytes + kPadding + alignment - 1) / alignment * alignment : 0;
  if (!fits || posix_memalign(&data, alignment, size) != 0)
    return absl::ResourceExhaustedError(absl::StrCat("out of memory for a buffer of ", bytes, " bytes"));
  if (alignment == kHugePage) madvise(data, size, MADV_HUGEPAGE);
  return std::make_unique<CpuBuffer>(static_cast<uint8_t*>(data), bytes, /*owned=*/true);
}

// Whole pages are given back: they are 0 when they are next touched.
absl::StatusOr<std::unique_ptr<DeviceBuffer>> CpuDevice::AllocateZeros(int64_t bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer, Allocate(bytes));
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(DataOf(*buffer)), end = begin + static_cast<uintptr_t>(bytes);
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first >= last || madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
    RETURN_IF_ERROR(Fill(*buffer, 0));
    return buffer;
  }
  std::memset(DataOf(*buffer), 0, first - begin);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
  return buffer;
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CpuDevice::View(DeviceBuffer& of, int64_t offset, int64_t bytes) {
  DIAPASON_CHECK(offset >= 0 && bytes >= 0 && offset % 512 == 0 && offset + bytes <= of.bytes());
  return std::make_unique<CpuBuffer>(DataOf(of) + offset, bytes, /*owned=*/false);
}

absl::Status CpuDevice::CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= to.bytes());
  if (bytes > 0) std::memcpy(DataOf(to), from, bytes);  // `from` may be null where there is nothing
  return absl::OkStatus();
}

absl::Status CpuDevice::CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= from.bytes());
  if (bytes > 0) std::memcpy(to, DataOf(from), bytes);
  return absl::OkStatus();
}

absl::Status CpuDevice::Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) {
  DIAPASON_CHECK(bytes <= from.bytes());
  return CopyIn(to, DataOf(from), bytes);
}

absl::Status CpuDevice::Fill(DeviceBuffer& to, uint8_t value) {
  std::memset(DataOf(to), value, to.bytes());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Module>> CpuDevice::Load(const Program& program) {
  if (program.target.kind != TargetKind::kCpu)
    return absl::InvalidArgumentError(
        absl::StrCat("a program for target '", program.target.ToString(), "' cannot be loaded on a cpu device"));
  return CpuModule::Load(program.binary);
}

absl::Status CpuDevice::BindLibrary(const LibraryCall& library, BoundCall* call) {
  if (libraries_ == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("a cpu device makes no calls of ", TitleOf(library.library()), "; build for target 'cuda'"));
  ASSIGN_OR_RETURN(call->library, libraries_->Prepare(library));
  call->workspace.resize(call->library->workspace_bytes());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BoundCall>> CpuDevice::BindAll(const std::vector<Launch>& launches) {
  std::vector<BoundCall> calls;
  calls.reserve(launches.size());
  for (const Launch& launch : launches) {
    BoundCall call{};
    for (const DeviceBuffer* arg : launch.args) call.args.push_back(DataOf(*arg));
    if (launch.kernel.library != nullptr) {
      RETURN_IF_ERROR(BindLibrary(*launch.kernel.library, &call));
      calls.push_back(std::move(call));
      continue;
    }
    call.body = static_cast<const CpuModule*>(launch.module)->Find(launch.kernel.name);
    if (call.body == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("the kernel binary has no function '", launch.kernel.name, "'"));
    call.count = launch.kernel.grid[0];
    calls.push_back(std::move(call));
  }
  return calls;
}

absl::StatusOr<std::unique_ptr<Plan>> CpuDevice::MakePlan(std::vector<Launch> launches) {
  ASSIGN_OR_RETURN(std::vector<BoundCall> calls, BindAll(launches));
  return std::make_unique<CpuPlan>(pool_, std::move(calls), ArgumentTable(launches));
}

absl::StatusOr<std::unique_ptr<LaunchTimer>> CpuDevice::MakeLaunchTimer(std::vector<Launch> launches) {
  ASSIGN_OR_RETURN(std::vector<BoundCall> calls, BindAll(launches));
  return std::make_unique<CpuLaunchTimer>(pool_, std::move(calls));
}

absl::Status CpuDevice::FlushCache() {
  const int64_t caches = facts_.l3_bytes + facts_.num_cores * (facts_.l1_bytes + facts_.l2_bytes);
  if (flush_scratch_ == nullptr) {
    ASSIGN_OR_RETURN(flush_scratch_, Allocate(std::clamp<int64_t>(2 * caches, 32 << 20, 1 << 30)));
    RETURN_IF_ERROR(Fill(*flush_scratch_, 0));
  }
  void* args[] = {DataOf(*flush_scratch_)};
  pool_.Run(TouchLines, args, flush_scratch_->bytes() / 64);
  return absl::OkStatus();
}

Device::Clocks CpuDevice::clocks() const {
  Clocks clocks;
  double khz = 0;
  if (std::ifstream("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq") >> khz) {
    clocks.core_mhz = khz / 1000;
    return clocks;
  }
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(':');
    if (line.rfind("cpu MHz", 0) != 0 || colon == std::string::npos) continue;
    clocks.core_mhz = std::strtod(line.c_str() + colon + 1, nullptr);
    break;
  }
  return clocks;
}

}  // namespace

DeviceFacts CpuFacts(const Target& target) {
  DeviceFacts facts = DefaultFacts(target);
  if (target.is_foreign()) return facts;
  const int before = std::max(facts.num_cores, 1);
  facts.num_cores = target.num_cores > 0 ? target.num_cores : UsableCores();
  facts.flops *= static_cast<double>(facts.num_cores) / before;
  return facts;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCpuDevice(const Target& target, std::unique_ptr<LibraryCalls> libraries) {
  DIAPASON_CHECK(target.kind == TargetKind::kCpu);
  if (target.num_cores < 0)
    return absl::InvalidArgumentError(absl::StrCat("-num-cores=", target.num_cores, ": give a number above 0"));
  if (target.is_foreign())
    return absl::UnavailableError(absl::StrCat("target '", target.ToString(), "' is for ", target.triple,
                                               " and this machine is ", ArchOfTriple(HostTriple()),
                                               ": run and measure it on such a machine"));
  return std::make_unique<CpuDevice>(CpuFacts(target), std::move(libraries));
}

}  // namespace diapason
