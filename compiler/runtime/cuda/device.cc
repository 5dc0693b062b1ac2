#include "compiler/runtime/cuda/device.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/argument_table.h"
#include "compiler/runtime/cuda/launches.h"
#include "compiler/runtime/cuda/library.h"
#include "compiler/runtime/cuda/memory.h"
#include "compiler/runtime/cuda/nvml.h"
#include "compiler/runtime/cuda/plan.h"
#include "compiler/runtime/cuda/prefetch.h"
#include "compiler/runtime/launch_paths.h"
#include "compiler/runtime/prefetches.h"

namespace diapason {
namespace {

// fp32 lanes of a multiprocessor, from NVIDIA's tables of compute capabilities.
int LanesPerCore(int major, int minor) {
  if (major == 8) return minor == 0 ? 64 : 128;
  return major < 8 ? 64 : 128;
}

std::string UuidText(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

absl::StatusOr<CUdevice> FindDevice(const CudaLibrary& cuda, const Target& target) {
  int count = 0;
  RETURN_IF_ERROR(cuda.ToStatus(cuda.DeviceGetCount(&count), "target 'cuda': counting the GPUs"));
  if (count == 0)
    return absl::UnavailableError(
        "target 'cuda': the NVIDIA driver lists no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, or choose target "
        "'cpu'");
  if (target.device < 0 || target.device >= count)
    return absl::UnavailableError(absl::StrCat("target '", target.ToString(), "': there ", count == 1 ? "is" : "are",
                                               " ", count, count == 1 ? " GPU" : " GPUs",
                                               " here; give a -device from 0 to ", count - 1));
  CUdevice device = 0;
  RETURN_IF_ERROR(cuda.ToStatus(cuda.DeviceGet(&device, target.device), "target 'cuda': opening the GPU"));
  return device;
}

// 0 for an attribute that the driver does not know.
int Attribute(const CudaLibrary& cuda, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return cuda.DeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

// Replaces `fact` by what the device says, if it says anything.
template <typename Fact>
void Take(Fact& fact, double reported) {
  if (reported > 0) fact = static_cast<Fact>(reported);
}

DeviceFacts ReadFacts(const CudaLibrary& cuda, CUdevice device, const Target& target) {
  const auto ask = [&](CUdevice_attribute what) { return static_cast<double>(Attribute(cuda, device, what)); };
  const int major = Attribute(cuda, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = Attribute(cuda, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  Target resolved = target;
  resolved.arch = absl::StrCat("sm_", major, minor);
  DeviceFacts facts = DefaultFacts(resolved);
  facts.arch = resolved.arch;
  char name[256] = "";
  if (cuda.DeviceGetName(name, sizeof(name), device) == CUDA_SUCCESS) facts.model = name;
  CUuuid uuid{};
  if (cuda.DeviceGetUuid(&uuid, device) == CUDA_SUCCESS) facts.uuid = UuidText(uuid);
  int driver = 0;
  if (cuda.DriverGetVersion(&driver) == CUDA_SUCCESS)
    facts.driver = absl::StrCat("CUDA ", driver / 1000, ".", driver % 1000 / 10);
  Take(facts.num_cores, ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  Take(facts.max_threads_per_block, ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  Take(facts.max_shared_bytes, ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  Take(facts.shared_bytes_per_core, ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
  Take(facts.registers_per_core, ask(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR));
  Take(facts.max_threads_per_core, ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
  Take(facts.warp_size, ask(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
  Take(facts.l2_bytes, ask(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  Take(facts.clock_hz, 1e3 * ask(CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
  // Two transfers a clock (double data rate) of a bus given in bits.
  Take(facts.bandwidth,
       2e3 * ask(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) * ask(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8);
  facts.flops = 2.0 * LanesPerCore(major, minor) * facts.num_cores * facts.clock_hz;
  return facts;
}

absl::Status CheckArch(const Target& target, const DeviceFacts& facts) {
  if (target.arch.empty() || target.arch == facts.arch) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("target '", target.ToString(), "': the GPU here (", facts.model, ") is ",
                                             facts.arch, "; leave -arch out, or give -arch=", facts.arch));
}

class CudaDevice : public Device {
 public:
  CudaDevice(const CudaLibrary& cuda, CUdevice device, DeviceFacts facts)
      : cuda_(cuda), device_(device), facts_(std::move(facts)), nvml_(Nvml::Open(facts_.uuid)) {}
  ~CudaDevice() override;
  absl::Status Open();

  const DeviceFacts& facts() const override { return facts_; }
  TargetKind kind() const override { return TargetKind::kCuda; }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer& of, int64_t offset, int64_t bytes) override;
  absl::Status CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) override;
  absl::Status CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) override;
  absl::Status Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) override;
  absl::Status CopyOn(void* stream, DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) override;
  void* AddressOf(const DeviceBuffer& buffer) const override;
  std::unique_ptr<DeviceBuffer> Wrap(void* address, int64_t bytes) override;
  absl::Status Fill(DeviceBuffer& to, uint8_t value) override;
  absl::StatusOr<std::unique_ptr<Module>> Load(const Program& program) override;
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) override {
    return MakePlanWith(std::move(launches), {});
  }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlanWith(std::vector<Launch> launches, const PlanOptions& options) override;
  absl::StatusOr<std::unique_ptr<LaunchTimer>> MakeLaunchTimer(std::vector<Launch> launches) override;
  absl::Status FlushCache() override;
  Clocks clocks() const override { return nvml_ != nullptr ? nvml_->clocks() : Clocks{}; }

 private:
  absl::Status Select() { return cuda_.ToStatus(cuda_.CtxSetCurrent(context_), "selecting the GPU"); }
  absl::Status Wait(const char* doing) { return cuda_.ToStatus(cuda_.StreamSynchronize(stream_), doing); }
  absl::StatusOr<std::vector<PrefetchLaunch>> PrefetchesOf(const std::vector<Launch>& launches);

  const CudaLibrary& cuda_;
  const CUdevice device_;
  const DeviceFacts facts_;
  const std::unique_ptr<Nvml> nvml_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::unique_ptr<DeviceBuffer> flush_scratch_;
  std::unique_ptr<CudaLaunchPreparer> preparer_;
  std::unique_ptr<CudaPrefetcher> prefetcher_;
};

absl::Status CudaDevice::Open() {
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.PrimaryCtxRetain(&context_, device_),
                                 absl::StrCat("making a context on GPU ", device_, " (", facts_.model, ")")));
  RETURN_IF_ERROR(Select());
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "making a stream"));
  preparer_ = std::make_unique<CudaLaunchPreparer>(cuda_, context_, stream_, facts_);
  prefetcher_ = std::make_unique<CudaPrefetcher>(cuda_, context_);
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  cuda_.CtxSetCurrent(context_);
  prefetcher_.reset();
  preparer_.reset();
  flush_scratch_.reset();
  if (stream_ != nullptr) cuda_.StreamDestroy(stream_);
  cuda_.CtxSetCurrent(nullptr);
  cuda_.PrimaryCtxRelease(device_);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaDevice::Allocate(int64_t bytes) {
  RETURN_IF_ERROR(Select());
  return AllocateOnGpu(cuda_, context_, bytes);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaDevice::View(DeviceBuffer& of, int64_t offset, int64_t bytes) {
  DIAPASON_CHECK(offset >= 0 && bytes >= 0 && offset % 512 == 0 && offset + bytes <= of.bytes());
  return std::make_unique<CudaBuffer>(nullptr, context_, GpuAddressOf(of) + offset, bytes);
}

absl::Status CudaDevice::CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= to.bytes());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Select());
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.MemcpyHtoDAsync(GpuAddressOf(to), from, bytes, stream_), "copying to the GPU"));
  return Wait("copying to the GPU");
}

absl::Status CudaDevice::CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= from.bytes());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Select());
  RETURN_IF_ERROR(
      cuda_.ToStatus(cuda_.MemcpyDtoHAsync(to, GpuAddressOf(from), bytes, stream_), "copying from the GPU"));
  return Wait("copying from the GPU");
}

absl::Status CudaDevice::Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= to.bytes() && bytes <= from.bytes());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Select());
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.MemcpyDtoDAsync(GpuAddressOf(to), GpuAddressOf(from), bytes, stream_),
                                 "copying on the GPU"));
  return Wait("copying on the GPU");
}

absl::Status CudaDevice::CopyOn(void* stream, DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= to.bytes() && bytes <= from.bytes());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Select());
  return cuda_.ToStatus(
      cuda_.MemcpyDtoDAsync(GpuAddressOf(to), GpuAddressOf(from), bytes, static_cast<CUstream>(stream)),
      "copying on the GPU");
}

void* CudaDevice::AddressOf(const DeviceBuffer& buffer) const {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(GpuAddressOf(buffer)));
}

std::unique_ptr<DeviceBuffer> CudaDevice::Wrap(void* address, int64_t bytes) {
  return std::make_unique<CudaBuffer>(nullptr, context_, static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(address)),
                                      bytes);
}

absl::Status CudaDevice::Fill(DeviceBuffer& to, uint8_t value) {
  if (to.bytes() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Select());
  RETURN_IF_ERROR(
      cuda_.ToStatus(cuda_.MemsetD8Async(GpuAddressOf(to), value, to.bytes(), stream_), "filling a buffer"));
  return Wait("filling a buffer");
}

absl::StatusOr<std::unique_ptr<Module>> CudaDevice::Load(const Program& program) {
  if (program.target.kind != TargetKind::kCuda)
    return absl::InvalidArgumentError(
        absl::StrCat("a program for target '", program.target.ToString(), "' cannot be loaded on a cuda device"));
  if (program.binary.empty()) return absl::InvalidArgumentError("loading a kernel binary: it is empty");
  RETURN_IF_ERROR(Select());
  // The driver's own words on what it does not like, cut by it to the size of the buffer.
  std::string log(4096, 0);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(static_cast<uintptr_t>(log.size() - 1))};
  CUmodule module = nullptr;
  const CUresult result = cuda_.ModuleLoadDataEx(&module, program.binary.c_str(), 2, options, values);
  log.resize(log.find('\0'));
  RETURN_IF_ERROR(cuda_.ToStatus(result, absl::StrCat("loading a kernel binary", log.empty() ? "" : ": ", log)));
  return std::make_unique<CudaModule>(cuda_, context_, module);
}

// What a launch uses, by address: views of one buffer may overlap.
std::vector<MemoryRange> MemoryOf(const Launch& launch) {
  std::vector<MemoryRange> memory;
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const CUdeviceptr begin = GpuAddressOf(*launch.args[i]);
    memory.push_back({begin, begin + static_cast<uint64_t>(launch.args[i]->bytes()),
                      launch.writes.empty() || launch.writes[i],
                      launch.parts.empty() ? WrittenPart{} : launch.parts[i]});
  }
  return memory;
}

std::vector<std::vector<MemoryRange>> MemoryOf(const std::vector<Launch>& launches) {
  std::vector<std::vector<MemoryRange>> memory;
  for (const Launch& launch : launches) memory.push_back(MemoryOf(launch));
  return memory;
}

LaunchPaths PathsOf(const std::vector<Launch>& launches, bool parallel) {
  // Calls of libraries have one stream and one workspace.
  const bool calls =
      std::any_of(launches.begin(), launches.end(), [](const Launch& l) { return l.kernel.library != nullptr; });
  if (!parallel || calls) return InOrder(launches.size());
  return PlacePaths(DependenciesOf(MemoryOf(launches)), kMostPaths);
}

absl::StatusOr<std::unique_ptr<LaunchTimer>> CudaDevice::MakeLaunchTimer(std::vector<Launch> launches) {
  RETURN_IF_ERROR(Select());
  ASSIGN_OR_RETURN(std::vector<PreparedLaunch> all, preparer_->PrepareAll(launches));
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> workspace, preparer_->WorkspaceFor(all));
  auto plan = std::make_unique<CudaPlan>(cuda_, context_, stream_);
  RETURN_IF_ERROR(plan->CaptureTimed(std::move(all), std::move(workspace)));
  return std::make_unique<CudaLaunchTimer>(std::move(plan));
}

absl::StatusOr<std::vector<PrefetchLaunch>> CudaDevice::PrefetchesOf(const std::vector<Launch>& launches) {
  if (CudaArchNumber(facts_.arch) < 90) return std::vector<PrefetchLaunch>();
  return prefetcher_->Prepare(launches, PlanPrefetches(MemoryOf(launches), facts_.l2_bytes));
}

absl::StatusOr<std::unique_ptr<Plan>> CudaDevice::MakePlanWith(std::vector<Launch> launches,
                                                               const PlanOptions& options) {
  RETURN_IF_ERROR(Select());
  PlanLaunches all;
  ASSIGN_OR_RETURN(all.launches, preparer_->PrepareAll(launches));
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> workspace, preparer_->WorkspaceFor(all.launches));
  if (options.prefetch) {
    ASSIGN_OR_RETURN(all.prefetches, PrefetchesOf(launches));
  }
  all.arguments = ArgumentTable(launches);
  all.paths = PathsOf(launches, options.parallel);
  auto plan = std::make_unique<CudaPlan>(cuda_, context_, stream_);
  RETURN_IF_ERROR(plan->Capture(std::move(all), std::move(workspace)));
  return plan;
}

absl::Status CudaDevice::FlushCache() {
  if (flush_scratch_ == nullptr) {
    ASSIGN_OR_RETURN(flush_scratch_, Allocate(std::clamp<int64_t>(2 * facts_.l2_bytes, 32 << 20, 1 << 30)));
  }
  return Fill(*flush_scratch_, 1);
}

}  // namespace

absl::StatusOr<DeviceFacts> CudaFacts(const Target& target) {
  ASSIGN_OR_RETURN(const CudaLibrary* cuda, CudaLibrary::Get());
  ASSIGN_OR_RETURN(CUdevice device, FindDevice(*cuda, target));
  DeviceFacts facts = ReadFacts(*cuda, device, target);
  RETURN_IF_ERROR(CheckArch(target, facts));
  return facts;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const Target& target) {
  DIAPASON_CHECK(target.kind == TargetKind::kCuda);
  ASSIGN_OR_RETURN(DeviceFacts facts, CudaFacts(target));
  ASSIGN_OR_RETURN(const CudaLibrary* cuda, CudaLibrary::Get());
  ASSIGN_OR_RETURN(CUdevice id, FindDevice(*cuda, target));
  auto device = std::make_unique<CudaDevice>(*cuda, id, std::move(facts));
  RETURN_IF_ERROR(device->Open());
  return device;
}

int CountCudaDevices() {
  absl::StatusOr<const CudaLibrary*> cuda = CudaLibrary::Get();
  int count = 0;
  return cuda.ok() && (*cuda)->DeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

}  // namespace diapason
