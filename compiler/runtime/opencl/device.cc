#include "compiler/runtime/opencl/device.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "compiler/runtime/opencl/library.h"

namespace diapason {
namespace {

// Commands between two waits: a queue keeps each until it has run, so an endless queue is endless memory.
constexpr int64_t kCommandsInFlight = 512;

template <typename Value>
Value InfoOf(const OpenClLibrary& cl, cl_device_id device, cl_device_info what) {
  Value value{};
  cl.clGetDeviceInfo(device, what, sizeof(value), &value, nullptr);
  return value;
}

std::string TextOf(const OpenClLibrary& cl, cl_device_id device, cl_device_info what) {
  size_t bytes = 0;
  if (cl.clGetDeviceInfo(device, what, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return "";
  std::string text(bytes, 0);
  cl.clGetDeviceInfo(device, what, bytes, text.data(), nullptr);
  while (!text.empty() && (text.back() == 0 || text.back() == ' ')) text.pop_back();
  return text;
}

absl::StatusOr<cl_device_id> FindDevice(const OpenClLibrary& cl, const Target& target) {
  const std::vector<cl_device_id> devices = cl.Devices();
  if (devices.empty())
    return absl::UnavailableError(
        "target 'opencl': no OpenCL device on this machine; install a driver (Debian: pocl-opencl-icd, or the GPU "
        "vendor's)");
  if (target.device < 0 || target.device >= static_cast<int>(devices.size()))
    return absl::UnavailableError(absl::StrCat(
        "target '", target.ToString(), "': there ",
        devices.size() == 1 ? "is 1 OpenCL device" : absl::StrCat("are ", devices.size(), " OpenCL devices"),
        " here; give a -device from 0 to ", devices.size() - 1));
  return devices[target.device];
}

DeviceFacts ReadFacts(const OpenClLibrary& cl, cl_device_id device, const Target& target) {
  DeviceFacts facts = DefaultFacts(target);
  facts.model = TextOf(cl, device, CL_DEVICE_NAME);
  facts.driver = absl::StrCat(TextOf(cl, device, CL_DEVICE_VERSION), " ", TextOf(cl, device, CL_DRIVER_VERSION));
  facts.num_cores = std::max<int>(1, InfoOf<cl_uint>(cl, device, CL_DEVICE_MAX_COMPUTE_UNITS));
  if (const auto threads = InfoOf<size_t>(cl, device, CL_DEVICE_MAX_WORK_GROUP_SIZE); threads > 0)
    facts.max_threads_per_block = static_cast<int>(std::min<size_t>(threads, 1024));
  if (const auto local = InfoOf<cl_ulong>(cl, device, CL_DEVICE_LOCAL_MEM_SIZE); local > 0)
    facts.max_shared_bytes = facts.shared_bytes_per_core = static_cast<int64_t>(local);
  if (const auto cache = InfoOf<cl_ulong>(cl, device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE); cache > 0)
    facts.l2_bytes = static_cast<int64_t>(cache);
  if (const auto mhz = InfoOf<cl_uint>(cl, device, CL_DEVICE_MAX_CLOCK_FREQUENCY); mhz > 0) facts.clock_hz = mhz * 1e6;
  return facts;
}

class ClBuffer : public DeviceBuffer {
 public:
  ClBuffer(const OpenClLibrary& cl, cl_mem memory, int64_t bytes) : cl_(cl), memory_(memory), bytes_(bytes) {}
  ~ClBuffer() override { cl_.clReleaseMemObject(memory_); }
  int64_t bytes() const override { return bytes_; }
  cl_mem memory() const { return memory_; }

 private:
  const OpenClLibrary& cl_;
  const cl_mem memory_;
  const int64_t bytes_;
};

cl_mem MemoryOf(const DeviceBuffer& buffer) { return static_cast<const ClBuffer&>(buffer).memory(); }

// A built program; shared by modules of the same source.
class ClProgram {
 public:
  ClProgram(const OpenClLibrary& cl, cl_program program) : cl_(cl), program_(program) {}
  ~ClProgram() { cl_.clReleaseProgram(program_); }
  ClProgram(const ClProgram&) = delete;
  ClProgram& operator=(const ClProgram&) = delete;
  cl_program get() const { return program_; }

 private:
  const OpenClLibrary& cl_;
  const cl_program program_;
};

class ClModule : public Module {
 public:
  explicit ClModule(std::shared_ptr<const ClProgram> program) : program_(std::move(program)) {}
  cl_program program() const { return program_->get(); }

 private:
  const std::shared_ptr<const ClProgram> program_;
};

// PoCL makes loops over a group's work items out of a kernel that the compiler has optimized already, and then
// optimizes those. Version 3.1 computes wrong sums from some kernels whose loops were unrolled or cut before: in
// pipelines of shared copies with its default work-group method, in cross-lane conditions with "loops". Without the
// first pass both are right; the second does all that the first would have done.
const char* BuildOptions(const DeviceFacts& facts) {
  const bool pocl = absl::StrContains(absl::AsciiStrToLower(facts.driver), "pocl");
  return pocl ? "-cl-std=CL1.2 -cl-opt-disable" : "-cl-std=CL1.2";
}

// A kernel object holds its arguments, so each launch of a plan has its own.
struct BoundKernel {
  cl_kernel kernel = nullptr;
  size_t global[3], local[3];
  std::string name;
};

class ClPlan : public Plan {
 public:
  ClPlan(const OpenClLibrary& cl, cl_command_queue queue) : cl_(cl), queue_(queue) {}
  ~ClPlan() override {
    for (const BoundKernel& bound : kernels_) cl_.clReleaseKernel(bound.kernel);
  }
  absl::Status Add(const Launch& launch);
  absl::Status Run() override { return RunTimes(1); }
  // One run, with an event of each kernel, which the caller releases, also those there are when it fails.
  absl::Status RunWithEvents(std::vector<cl_event>* events);
  absl::StatusOr<double> Time(int64_t times) override {
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(RunTimes(times));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  absl::Status RunTimes(int64_t times);
  absl::Status Enqueue(const BoundKernel& bound, cl_event* event);
  absl::Status Finish() { return OpenClStatus(cl_.clFinish(queue_), "running kernels"); }

  const OpenClLibrary& cl_;
  const cl_command_queue queue_;
  std::vector<BoundKernel> kernels_;
};

absl::Status ClPlan::Add(const Launch& launch) {
  cl_int error = CL_SUCCESS;
  BoundKernel bound;
  bound.name = launch.kernel.name;
  bound.kernel = cl_.clCreateKernel(static_cast<const ClModule*>(launch.module)->program(), bound.name.c_str(), &error);
  if (error == CL_INVALID_KERNEL_NAME)
    return absl::InvalidArgumentError(absl::StrCat("the program has no kernel '", bound.name, "'"));
  RETURN_IF_ERROR(OpenClStatus(error, absl::StrCat("making kernel '", bound.name, "'")));
  for (int d = 0; d < 3; ++d) {
    bound.local[d] = launch.kernel.block[d];
    bound.global[d] = launch.kernel.grid[d] * launch.kernel.block[d];
  }
  kernels_.push_back(bound);  // from here on released with the plan
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const cl_mem memory = MemoryOf(*launch.args[i]);
    RETURN_IF_ERROR(OpenClStatus(cl_.clSetKernelArg(bound.kernel, static_cast<cl_uint>(i), sizeof(memory), &memory),
                                 absl::StrCat("argument ", i, " of kernel '", bound.name, "'")));
  }
  return absl::OkStatus();
}

absl::Status ClPlan::Enqueue(const BoundKernel& bound, cl_event* event) {
  const cl_int error =
      cl_.clEnqueueNDRangeKernel(queue_, bound.kernel, 3, nullptr, bound.global, bound.local, 0, nullptr, event);
  if (error == CL_SUCCESS) return absl::OkStatus();
  cl_.clFinish(queue_);
  return OpenClStatus(error, absl::StrCat("launching kernel '", bound.name, "'"));
}

absl::Status ClPlan::RunWithEvents(std::vector<cl_event>* events) {
  for (const BoundKernel& bound : kernels_) {
    cl_event event = nullptr;
    RETURN_IF_ERROR(Enqueue(bound, &event));
    events->push_back(event);
    if (static_cast<int64_t>(events->size()) % kCommandsInFlight == 0) RETURN_IF_ERROR(Finish());
  }
  return Finish();
}

absl::Status ClPlan::RunTimes(int64_t times) {
  int64_t in_flight = 0;
  for (int64_t i = 0; i < times; ++i) {
    for (const BoundKernel& bound : kernels_) {
      RETURN_IF_ERROR(Enqueue(bound, nullptr));
      if (++in_flight % kCommandsInFlight == 0) RETURN_IF_ERROR(Finish());
    }
  }
  return Finish();
}

// Times by the device's own clock (CL_QUEUE_PROFILING_ENABLE), in a queue of its own: kernels of a run are in the queue
// together, as in a plan, and what lies between one's end and the next one's start belongs to neither.
class ClLaunchTimer : public LaunchTimer {
 public:
  ClLaunchTimer(const OpenClLibrary& cl, cl_command_queue queue, std::unique_ptr<ClPlan> plan)
      : cl_(cl), queue_(queue), plan_(std::move(plan)) {}
  ~ClLaunchTimer() override { cl_.clReleaseCommandQueue(queue_); }
  absl::StatusOr<std::vector<double>> Run() override;

 private:
  absl::StatusOr<double> SecondsOf(cl_event event) const;

  const OpenClLibrary& cl_;
  const cl_command_queue queue_;
  const std::unique_ptr<ClPlan> plan_;
};

absl::StatusOr<double> ClLaunchTimer::SecondsOf(cl_event event) const {
  cl_ulong start = 0, end = 0;
  for (const auto& [what, value] : {std::pair{CL_PROFILING_COMMAND_START, &start}, {CL_PROFILING_COMMAND_END, &end}})
    RETURN_IF_ERROR(OpenClStatus(cl_.clGetEventProfilingInfo(event, what, sizeof(*value), value, nullptr),
                                 "reading the time of a kernel"));
  return end > start ? static_cast<double>(end - start) * 1e-9 : 0;
}

absl::StatusOr<std::vector<double>> ClLaunchTimer::Run() {
  std::vector<cl_event> events;
  const absl::Status ran = plan_->RunWithEvents(&events);
  std::vector<double> seconds;
  absl::Status read = ran;
  for (cl_event event : events) {
    if (read.ok()) {
      const absl::StatusOr<double> one = SecondsOf(event);
      if (one.ok()) seconds.push_back(*one);
      read = one.status();
    }
    cl_.clReleaseEvent(event);
  }
  RETURN_IF_ERROR(read);
  return seconds;
}

class ClDevice : public Device {
 public:
  ClDevice(const OpenClLibrary& cl, cl_device_id device, DeviceFacts facts)
      : cl_(cl), device_(device), facts_(std::move(facts)) {}
  ~ClDevice() override;
  absl::Status Open();

  const DeviceFacts& facts() const override { return facts_; }
  TargetKind kind() const override { return TargetKind::kOpenCl; }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer& of, int64_t offset, int64_t bytes) override;
  // OpenCL 1.2, 5.2.1: concurrent use of sub-buffers that overlap is undefined, and at least one driver (NVIDIA 580)
  // crashes when those of a network are released.
  bool views_may_overlap() const override { return false; }
  absl::Status CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) override;
  absl::Status CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) override;
  absl::Status Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) override;
  absl::Status Fill(DeviceBuffer& to, uint8_t value) override;
  absl::StatusOr<std::unique_ptr<Module>> Load(const Program& program) override;
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) override;
  absl::StatusOr<std::unique_ptr<LaunchTimer>> MakeLaunchTimer(std::vector<Launch> launches) override;
  absl::Status FlushCache() override;
  Clocks clocks() const override { return {}; }  // OpenCL tells the highest clock only

 private:
  absl::StatusOr<std::shared_ptr<const ClProgram>> BuildSource(const std::string& source);
  absl::StatusOr<std::unique_ptr<ClPlan>> MakePlanOn(cl_command_queue queue, const std::vector<Launch>& launches);

  const OpenClLibrary& cl_;
  const cl_device_id device_;
  const DeviceFacts facts_;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  std::unique_ptr<DeviceBuffer> flush_scratch_;
  Mutex mu_;
  std::map<std::string, std::weak_ptr<const ClProgram>> built_ ABSL_GUARDED_BY(mu_);  // by source
};

absl::Status ClDevice::Open() {
  cl_int error = CL_SUCCESS;
  context_ = cl_.clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &error);
  RETURN_IF_ERROR(OpenClStatus(error, absl::StrCat("making a context on '", facts_.model, "'")));
  queue_ = cl_.clCreateCommandQueue(context_, device_, 0, &error);
  return OpenClStatus(error, absl::StrCat("making a queue on '", facts_.model, "'"));
}

ClDevice::~ClDevice() {
  flush_scratch_.reset();
  if (queue_ != nullptr) cl_.clReleaseCommandQueue(queue_);
  if (context_ != nullptr) cl_.clReleaseContext(context_);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> ClDevice::Allocate(int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes cannot be"));
  cl_int error = CL_SUCCESS;
  cl_mem memory = nullptr;
  // Some drivers make a buffer of any size, and fail when it is used.
  if (bytes > INT64_MAX - kPadding ||
      static_cast<uint64_t>(bytes) > InfoOf<cl_ulong>(cl_, device_, CL_DEVICE_GLOBAL_MEM_SIZE))
    error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  else
    memory = cl_.clCreateBuffer(context_, CL_MEM_READ_WRITE, bytes + kPadding, nullptr, &error);
  RETURN_IF_ERROR(OpenClStatus(error, absl::StrCat("out of memory for a buffer of ", bytes, " bytes")));
  return std::make_unique<ClBuffer>(cl_, memory, bytes);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> ClDevice::View(DeviceBuffer& of, int64_t offset, int64_t bytes) {
  DIAPASON_CHECK(offset >= 0 && bytes >= 0 && offset % 512 == 0 && offset + bytes <= of.bytes());
  if (offset == 0) {  // the same memory object, so that such views may overlap
    RETURN_IF_ERROR(OpenClStatus(cl_.clRetainMemObject(MemoryOf(of)), "a view of a buffer"));
    return std::make_unique<ClBuffer>(cl_, MemoryOf(of), bytes);
  }
  cl_int error = CL_SUCCESS;
  // An empty region is refused by OpenCL; the padding of `of` makes room for one byte.
  const cl_buffer_region region{static_cast<size_t>(offset), static_cast<size_t>(std::max<int64_t>(bytes, 1))};
  cl_mem memory = cl_.clCreateSubBuffer(MemoryOf(of), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
  RETURN_IF_ERROR(OpenClStatus(error, absl::StrCat("a view of ", bytes, " bytes at ", offset)));
  return std::make_unique<ClBuffer>(cl_, memory, bytes);
}

absl::Status ClDevice::CopyIn(DeviceBuffer& to, const void* from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= to.bytes());
  if (bytes == 0) return absl::OkStatus();
  return OpenClStatus(cl_.clEnqueueWriteBuffer(queue_, MemoryOf(to), CL_TRUE, 0, bytes, from, 0, nullptr, nullptr),
                      "copying to the device");
}

absl::Status ClDevice::CopyOut(void* to, const DeviceBuffer& from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= from.bytes());
  if (bytes == 0) return absl::OkStatus();
  return OpenClStatus(cl_.clEnqueueReadBuffer(queue_, MemoryOf(from), CL_TRUE, 0, bytes, to, 0, nullptr, nullptr),
                      "copying from the device");
}

absl::Status ClDevice::Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) {
  DIAPASON_CHECK(bytes >= 0 && bytes <= to.bytes() && bytes <= from.bytes());
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      OpenClStatus(cl_.clEnqueueCopyBuffer(queue_, MemoryOf(from), MemoryOf(to), 0, 0, bytes, 0, nullptr, nullptr),
                   "copying on the device"));
  return OpenClStatus(cl_.clFinish(queue_), "copying on the device");
}

absl::Status ClDevice::Fill(DeviceBuffer& to, uint8_t value) {
  if (to.bytes() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      OpenClStatus(cl_.clEnqueueFillBuffer(queue_, MemoryOf(to), &value, 1, 0, to.bytes(), 0, nullptr, nullptr),
                   "filling a buffer"));
  return OpenClStatus(cl_.clFinish(queue_), "filling a buffer");
}

absl::StatusOr<std::shared_ptr<const ClProgram>> ClDevice::BuildSource(const std::string& source) {
  const char* text = source.c_str();
  const size_t length = source.size();
  cl_int error = CL_SUCCESS;
  cl_program raw = cl_.clCreateProgramWithSource(context_, 1, &text, &length, &error);
  RETURN_IF_ERROR(OpenClStatus(error, "reading OpenCL source"));
  auto program = std::make_shared<const ClProgram>(cl_, raw);
  error = cl_.clBuildProgram(raw, 1, &device_, BuildOptions(facts_), nullptr, nullptr);
  if (error == CL_SUCCESS) return program;
  size_t bytes = 0;
  cl_.clGetProgramBuildInfo(raw, device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes);
  std::string log(bytes, 0);
  if (bytes > 0) cl_.clGetProgramBuildInfo(raw, device_, CL_PROGRAM_BUILD_LOG, bytes, log.data(), nullptr);
  while (!log.empty() && (log.back() == 0 || log.back() == '\n')) log.pop_back();
  return absl::InvalidArgumentError(
      absl::StrCat("the OpenCL source does not compile (", OpenClErrorName(error), "): ", log));
}

absl::StatusOr<std::unique_ptr<Module>> ClDevice::Load(const Program& program) {
  if (program.target.kind != TargetKind::kOpenCl)
    return absl::InvalidArgumentError(
        absl::StrCat("a program for target '", program.target.ToString(), "' cannot be loaded on an opencl device"));
  MutexLock lock(mu_);
  std::shared_ptr<const ClProgram> built = built_[program.binary].lock();
  if (built == nullptr) {
    std::erase_if(built_, [](const auto& entry) { return entry.second.expired(); });
    ASSIGN_OR_RETURN(built, BuildSource(program.binary));
    built_[program.binary] = built;
  }
  return std::make_unique<ClModule>(std::move(built));
}

absl::StatusOr<std::unique_ptr<ClPlan>> ClDevice::MakePlanOn(cl_command_queue queue,
                                                             const std::vector<Launch>& launches) {
  auto plan = std::make_unique<ClPlan>(cl_, queue);
  for (const Launch& launch : launches) {
    if (launch.kernel.library != nullptr)
      return absl::InvalidArgumentError(absl::StrCat("an opencl device makes no calls of ",
                                                     TitleOf(launch.kernel.library->library()),
                                                     "; build for target 'cuda'"));
    RETURN_IF_ERROR(plan->Add(launch));
  }
  return plan;
}

absl::StatusOr<std::unique_ptr<Plan>> ClDevice::MakePlan(std::vector<Launch> launches) {
  return MakePlanOn(queue_, launches);
}

absl::StatusOr<std::unique_ptr<LaunchTimer>> ClDevice::MakeLaunchTimer(std::vector<Launch> launches) {
  cl_int error = CL_SUCCESS;
  const cl_command_queue queue = cl_.clCreateCommandQueue(context_, device_, CL_QUEUE_PROFILING_ENABLE, &error);
  if (error != CL_SUCCESS)
    return absl::FailedPreconditionError(
        absl::StrCat("the OpenCL driver of '", facts_.model, "' tells no times of kernels: ", OpenClErrorName(error)));
  absl::StatusOr<std::unique_ptr<ClPlan>> plan = MakePlanOn(queue, launches);
  if (!plan.ok()) {
    cl_.clReleaseCommandQueue(queue);
    return plan.status();
  }
  return std::make_unique<ClLaunchTimer>(cl_, queue, *std::move(plan));
}

absl::Status ClDevice::FlushCache() {
  if (flush_scratch_ == nullptr) {
    ASSIGN_OR_RETURN(flush_scratch_, Allocate(std::clamp<int64_t>(2 * facts_.l2_bytes, 32 << 20, 1 << 30)));
  }
  return Fill(*flush_scratch_, 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenOpenClDevice(const Target& target) {
  DIAPASON_CHECK(target.kind == TargetKind::kOpenCl);
  ASSIGN_OR_RETURN(const OpenClLibrary* cl, OpenClLibrary::Get());
  ASSIGN_OR_RETURN(cl_device_id id, FindDevice(*cl, target));
  auto device = std::make_unique<ClDevice>(*cl, id, ReadFacts(*cl, id, target));
  RETURN_IF_ERROR(device->Open());
  return device;
}

absl::StatusOr<DeviceFacts> OpenClFacts(const Target& target) {
  ASSIGN_OR_RETURN(const OpenClLibrary* cl, OpenClLibrary::Get());
  ASSIGN_OR_RETURN(cl_device_id id, FindDevice(*cl, target));
  return ReadFacts(*cl, id, target);
}

int CountOpenClDevices() {
  absl::StatusOr<const OpenClLibrary*> cl = OpenClLibrary::Get();
  return cl.ok() ? static_cast<int>((*cl)->Devices().size()) : 0;
}

}  // namespace diapason
