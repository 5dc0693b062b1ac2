#include "worker/process/in_place.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"

namespace diapason {
namespace {

constexpr size_t kSlots = 8;  // buffers that one launch writes
constexpr int64_t kNumbersOfSlot = 4;
// In front of a comparison: few blocks, so that those of the program find room beside them.
constexpr int64_t kBlocks = 64, kThreads = 256;
// Of each block's shared memory the system takes as much more (CUDA, from sm_80 on).
constexpr int64_t kSharedBytesOfSystem = 1024;
// Cycles of the device between the start of the program and the writes: some 10 us.
constexpr int64_t kDelay = 20000;
constexpr double kCompileSeconds = 60;
// Of inputs of their own for launches that are timed.
constexpr int64_t kMostKeptBytes = int64_t{64} << 20;
// Programs of milliseconds are compared less often.
constexpr int kLeastReplays = 2;
constexpr double kMostSeconds = 0.05;

// One text for all targets. Numbers of the writing kernel: the delay, and of each slot how many units of 16, 4 or 1
// bytes there are, how large they are, by how many they are turned, and whether they are 0xff instead. Of the comparing
// kernel: units and size.
constexpr char kBody[] = R"(
#define COPY(T) \
  for (int64 i = first; i < units; i += STEP) { \
    const int64 j = i + turned < units ? i + turned : i + turned - units; \
    ((GLOBAL T*)to)[i] = ((GLOBAL const T*)from)[j]; \
  }
#define FILL(T) \
  for (int64 i = first; i < units; i += STEP) ((GLOBAL T*)to)[i] = (T)~0u;
#define DIFFER(T) \
  for (int64 i = first; i < units; i += STEP) \
    if (((GLOBAL const T*)got)[i] != ((GLOBAL const T*)expected)[i]) found[0] = i * size + 1;

FUNCTION void write_slot(GLOBAL const int64* slot, GLOBAL const unsigned char* from, GLOBAL unsigned char* to, int64 first) {
  const int64 units = slot[0], size = slot[1], turned = slot[2];
  if (slot[3] != 0) {
    if (size == 4) {
      FILL(unsigned)
    } else {
      FILL(unsigned char)
    }
  } else if (size == 16) {
    COPY(uint4)
  } else if (size == 4) {
    COPY(unsigned)
  } else {
    COPY(unsigned char)
  }
}

FUNCTION void compare_units(GLOBAL const int64* numbers, GLOBAL const unsigned char* got, GLOBAL const unsigned char* expected,
                            GLOBAL int64* found, int64 first) {
  const int64 units = numbers[0], size = numbers[1];
  if (size == 4) {
    DIFFER(unsigned)
  } else {
    DIFFER(unsigned char)
  }
}
)";

constexpr char kCuda[] = R"(typedef long long int64;
#define GLOBAL
#define FUNCTION static __device__ __noinline__
#define STEP (int64)(gridDim.x * blockDim.x)
)";
constexpr char kCudaStart[] = R"(
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
  for (const long long start = clock64(); clock64() - start < numbers[0];) {}
)";
constexpr char kOpenCl[] = R"(typedef long int64;
#define GLOBAL __global
#define FUNCTION static inline
#define STEP (int64)get_global_size(0)
)";
constexpr char kC[] = R"(typedef long long int64;
typedef struct { unsigned x, y, z, w; } uint4;
#define GLOBAL
#define FUNCTION static inline
#define STEP $blocks
)";

// A parameter or local variable of a kernel.
struct Parameter {
  std::string type, name;
};

std::string KernelText(TargetKind kind, const std::string& name, const std::vector<Parameter>& parameters,
                       const std::string& body) {
  std::string list, head;
  for (size_t i = 0; i < parameters.size(); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ", ", "GLOBAL ", parameters[i].type, "* ", parameters[i].name);
    absl::StrAppend(&head, "  ", parameters[i].type, "* ", parameters[i].name, " = (", parameters[i].type, "*)args[", i,
                    "];\n");
  }
  switch (kind) {
    case TargetKind::kCuda:
      return absl::StrCat("extern \"C\" __global__ void __launch_bounds__(", kThreads, ") ", name, "(", list, ") {\n",
                          "  const int64 first = blockIdx.x * blockDim.x + threadIdx.x;\n", body, "}\n");
    case TargetKind::kOpenCl:
      return absl::StrCat("__kernel __attribute__((reqd_work_group_size(", kThreads, ", 1, 1))) void ", name, "(", list,
                          ") {\n", "  const int64 first = get_global_id(0);\n", body, "}\n");
    case TargetKind::kCpu: break;
  }
  return absl::StrCat("void ", name, "(void* const* args, int64 begin, int64 end) {\n", head,
                      "  for (int64 first = begin; first < end; ++first) {\n", body, "  }\n}\n");
}

std::string SourceFor(TargetKind kind) {
  std::string source = kind == TargetKind::kCuda ? kCuda : kind == TargetKind::kOpenCl ? kOpenCl : kC;
  source = absl::StrCat(absl::StrReplaceAll(source, {{"$blocks", absl::StrCat(kBlocks)}}), kBody);
  std::vector<Parameter> parameters = {{"const int64", "numbers"}};
  std::string body = kind == TargetKind::kCuda ? kCudaStart : "";
  for (size_t s = 0; s < kSlots; ++s) {
    parameters.push_back({"const unsigned char", absl::StrCat("from", s)});
    parameters.push_back({"unsigned char", absl::StrCat("to", s)});
    absl::StrAppend(&body, "  write_slot(numbers + ", 1 + kNumbersOfSlot * s, ", from", s, ", to", s, ", first);\n");
  }
  absl::StrAppend(&source, KernelText(kind, "write_buffers", parameters, body));
  parameters = {{"const int64", "numbers"},
                {"const unsigned char", "got"},
                {"const unsigned char", "expected"},
                {"int64", "found"}};
  return source +
         KernelText(kind, "compare_buffers", parameters, "  compare_units(numbers, got, expected, found, first);\n");
}

Kernel KernelNamed(const std::string& name, TargetKind kind) {
  Kernel kernel;
  kernel.name = name;
  kernel.grid = {kBlocks, 1, 1};
  kernel.block = {kind == TargetKind::kCpu ? 1 : kThreads, 1, 1};
  return kernel;
}

// The largest unit of which there are at least `least`, and that fills the bytes.
int64_t UnitOf(int64_t bytes, std::initializer_list<int64_t> sizes, int64_t least) {
  for (int64_t size : sizes)
    if (bytes % size == 0 && bytes / size >= least) return size;
  return 1;
}

}  // namespace

bool StartsEarly(const Program& program) {
  return std::any_of(program.kernels.begin(), program.kernels.end(),
                     [](const Kernel& kernel) { return kernel.overlap; });
}

absl::StatusOr<std::unique_ptr<InPlace>> InPlace::Create(Device& device, const SourceCompiler& compile) {
  Target target;
  target.kind = device.kind();
  if (target.kind == TargetKind::kCuda) target.arch = device.facts().arch;
  auto made = std::unique_ptr<InPlace>(new InPlace(device, target));
  Program program;
  program.target = target;
  program.source = SourceFor(target.kind);
  RETURN_IF_ERROR(compile(program, kCompileSeconds));
  ASSIGN_OR_RETURN(made->module_, device.Load(program));
  ASSIGN_OR_RETURN(made->unused_, device.Allocate(16));
  return made;
}

absl::StatusOr<DeviceBuffer*> InPlace::Numbers(const std::vector<int64_t>& values, Buffers& numbers) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(int64_t));
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer, device_.Allocate(bytes));
  RETURN_IF_ERROR(device_.CopyIn(*buffer, values.data(), bytes));
  numbers.push_back(std::move(buffer));
  return numbers.back().get();
}

absl::StatusOr<Launch> InPlace::WriteSome(const Slot* slots, size_t count, int64_t delay, Buffers& numbers) {
  std::vector<int64_t> values(1 + kNumbersOfSlot * kSlots, 0);
  values[0] = delay;
  Launch launch{module_.get(), KernelNamed("write_buffers", target_.kind), {nullptr}, {}};
  for (size_t s = 0; s < kSlots; ++s) {
    launch.args.push_back(s < count && slots[s].from != nullptr ? slots[s].from : unused_.get());
    launch.args.push_back(s < count ? slots[s].to : unused_.get());
    if (s >= count) continue;
    const bool fills = slots[s].from == nullptr;
    const int64_t bytes = fills ? slots[s].to->bytes() : std::min(slots[s].from->bytes(), slots[s].to->bytes()),
                  width = slots[s].width;
    const int64_t size = fills ? UnitOf(bytes, {4}, 1) : UnitOf(bytes, {16, 4}, 2);
    int64_t* const slot = &values[1 + kNumbersOfSlot * s];
    slot[0] = bytes / size;
    slot[1] = size;
    const int64_t element = std::max<int64_t>(1, width / size);
    slot[2] = slots[s].turned ? slot[0] / 2 / element * element : 0;
    slot[3] = fills ? 1 : 0;
  }
  ASSIGN_OR_RETURN(launch.args[0], Numbers(values, numbers));
  // Its threads wait first. As an early kernel it has the same division of shared memory and L1 cache as the program's,
  // whose blocks can then run beside it (runtime/cuda/launches.h).
  launch.kernel.overlap = target_.kind == TargetKind::kCuda;
  return launch;
}

absl::StatusOr<std::vector<Launch>> InPlace::Write(const std::vector<Slot>& slots, int64_t delay, size_t last,
                                                   Buffers& numbers) {
  std::vector<Launch> launches;
  for (size_t first = 0; first < slots.size(); first += kSlots) {
    ASSIGN_OR_RETURN(Launch launch, WriteSome(&slots[first], std::min(kSlots, slots.size() - first), delay, numbers));
    launches.push_back(std::move(launch));
  }
  if (!launches.empty()) std::swap(launches[last], launches.back());
  return launches;
}

absl::StatusOr<Launch> InPlace::CompareBytes(DeviceBuffer& got, DeviceBuffer& expected, DeviceBuffer& found) {
  const int64_t size = UnitOf(expected.bytes(), {4}, 1);
  ASSIGN_OR_RETURN(DeviceBuffer* const numbers, Numbers({expected.bytes() / size, size}, numbers_));
  return Launch{module_.get(), KernelNamed("compare_buffers", target_.kind), {numbers, &got, &expected, &found}, {}};
}

int64_t InPlace::SharedBytesBefore(const Executable& executable) const {
  if (target_.kind != TargetKind::kCuda) return 0;
  const DeviceFacts& facts = device_.facts();
  const std::vector<Kernel>& kernels = executable.program().kernels;
  if (kernels.empty()) return 0;
  const int64_t of_first = kernels.front().shared_bytes + kSharedBytesOfSystem;
  return 2 * of_first > facts.shared_bytes_per_core ? facts.max_shared_bytes : 0;
}

absl::StatusOr<std::vector<Launch>> InPlace::RewriteAll(const std::vector<Slot>& slots, int64_t shared_bytes,
                                                        Buffers& numbers) {
  if (slots.empty()) return std::vector<Launch>{};
  ASSIGN_OR_RETURN(std::vector<Launch> launches,
                   Write(slots, /*delay=*/0, /*last=*/(slots.size() - 1) / kSlots, numbers));
  if (target_.kind != TargetKind::kCuda) return launches;
  for (Launch& launch : launches) {
    launch.kernel.grid[0] = std::max<int64_t>(1, device_.facts().num_cores);
    launch.kernel.shared_bytes = shared_bytes;
  }
  return launches;
}

absl::StatusOr<std::vector<Launch>> InPlace::Rewrite(const Executable& executable) {
  numbers_.clear();
  std::vector<Slot> slots;
  for (int input : executable.BuffersOf(BufferRole::kInput))
    slots.push_back({executable.buffer(input), executable.buffer(input)});
  return RewriteAll(slots, SharedBytesBefore(executable), numbers_);
}

absl::StatusOr<TimedLaunches*> InPlace::TimedRewrite(const Executable& executable, double max_seconds) {
  std::vector<int64_t> sizes;
  for (int input : executable.BuffersOf(BufferRole::kInput)) sizes.push_back(executable.buffer(input)->bytes());
  if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) > kMostKeptBytes) return nullptr;
  if (kept_ == nullptr || kept_->sizes != sizes) {
    kept_ = std::make_unique<Kept>();
    kept_->sizes = sizes;
  }
  while (kept_->inputs.size() < sizes.size()) {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer, device_.Allocate(sizes[kept_->inputs.size()]));
    RETURN_IF_ERROR(device_.Fill(*buffer, 0));
    kept_->inputs.push_back(std::move(buffer));
  }
  const int64_t shared_bytes = SharedBytesBefore(executable);
  const auto known = kept_->timed.find(shared_bytes);
  if (known != kept_->timed.end()) return &known->second.launches;
  std::vector<Slot> slots;
  for (const std::unique_ptr<DeviceBuffer>& input : kept_->inputs) slots.push_back({input.get(), input.get()});
  Buffers numbers;
  ASSIGN_OR_RETURN(const std::vector<Launch> launches, RewriteAll(slots, shared_bytes, numbers));
  ASSIGN_OR_RETURN(TimedLaunches timed, TimedLaunches::Create(device_, launches, max_seconds));
  Kept::Timed& kept =
      kept_->timed.try_emplace(shared_bytes, Kept::Timed{std::move(numbers), std::move(timed)}).first->second;
  return &kept.launches;
}

// One comparison: inputs as they are (set 0) and turned (set 1), and what the program makes of both.
class InPlace::Comparison {
 public:
  Comparison(InPlace& in_place, Executable& executable)
      : in_place_(in_place), device_(in_place.device_), executable_(executable) {}

  absl::StatusOr<std::string> Run(int replays);

 private:
  static constexpr int kSets = 2;

  // A copy of the executable's buffer `index`.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> CopyOf(int index);
  absl::Status KeepInputs();
  // What is written in front of the program: inputs of the set; outputs and workspaces that hold nothing.
  std::vector<Slot> Slots(int set) const;
  // Runs the program with the inputs of the set, each kernel after the one before has ended, and keeps the outputs.
  absl::Status Expect(int set);
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan();
  absl::StatusOr<std::string> Differences();

  InPlace& in_place_;
  Device& device_;
  Executable& executable_;
  std::map<int, std::unique_ptr<DeviceBuffer>> inputs_;
  std::map<int, std::unique_ptr<DeviceBuffer>> expected_[kSets], found_[kSets];  // by output
};

absl::StatusOr<std::unique_ptr<DeviceBuffer>> InPlace::Comparison::CopyOf(int index) {
  const int64_t bytes = executable_.program().buffers[index].bytes();
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> copy, device_.Allocate(bytes));
  RETURN_IF_ERROR(device_.Copy(*copy, *executable_.buffer(index), bytes));
  return copy;
}

absl::Status InPlace::Comparison::KeepInputs() {
  for (int input : executable_.BuffersOf(BufferRole::kInput)) {
    ASSIGN_OR_RETURN(inputs_[input], CopyOf(input));
  }
  return absl::OkStatus();
}

std::vector<InPlace::Slot> InPlace::Comparison::Slots(int set) const {
  std::vector<Slot> slots;
  for (const auto& [input, copy] : inputs_)
    slots.push_back(
        {executable_.buffer(input), copy.get(), BytesOf(executable_.program().buffers[input].dtype), set != 0});
  for (BufferRole role : {BufferRole::kOutput, BufferRole::kWorkspace})
    for (int index : executable_.BuffersOf(role)) slots.push_back({executable_.buffer(index)});
  return slots;
}

absl::Status InPlace::Comparison::Expect(int set) {
  ASSIGN_OR_RETURN(std::vector<Launch> launches,
                   in_place_.Write(Slots(set), /*delay=*/0, /*last=*/0, in_place_.numbers_));
  for (Launch& launch : executable_.Launches()) {
    launch.kernel.overlap = false;
    launches.push_back(std::move(launch));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, device_.MakePlan(std::move(launches)));
  RETURN_IF_ERROR(plan->Run());
  for (int output : executable_.BuffersOf(BufferRole::kOutput)) {
    ASSIGN_OR_RETURN(expected_[set][output], CopyOf(output));
    ASSIGN_OR_RETURN(found_[set][output], device_.Allocate(sizeof(int64_t)));
    RETURN_IF_ERROR(device_.Fill(*found_[set][output], 0));
  }
  return absl::OkStatus();
}

// Once for each launch that writes, as the last in front of the program: the earlier ones have ended by then. Set 0
// comes last.
absl::StatusOr<std::unique_ptr<Plan>> InPlace::Comparison::MakePlan() {
  std::vector<Launch> all;
  const size_t writers = (Slots(0).size() + kSlots - 1) / kSlots;
  for (size_t last = 0; last < writers; ++last) {
    for (int set = kSets; set-- > 0;) {
      ASSIGN_OR_RETURN(std::vector<Launch> launches, in_place_.Write(Slots(set), kDelay, last, in_place_.numbers_));
      for (Launch& launch : executable_.Launches()) launches.push_back(std::move(launch));
      for (const auto& [output, expected] : expected_[set]) {
        ASSIGN_OR_RETURN(Launch compare,
                         in_place_.CompareBytes(*executable_.buffer(output), *expected, *found_[set].at(output)));
        launches.push_back(std::move(compare));
      }
      all.insert(all.end(), std::make_move_iterator(launches.begin()), std::make_move_iterator(launches.end()));
    }
  }
  return device_.MakePlan(std::move(all));
}

absl::StatusOr<std::string> InPlace::Comparison::Differences() {
  for (int set = 0; set < kSets; ++set) {
    for (const auto& [output, found] : found_[set]) {
      int64_t at = 0;
      RETURN_IF_ERROR(device_.CopyOut(&at, *found, sizeof at));
      const ProgramBuffer& buffer = executable_.program().buffers[output];
      if (at > 0)
        return absl::StrCat(
            "element ", (at - 1) / BytesOf(buffer.dtype), " of output '", buffer.name,
            "' is another one when the program starts while the kernel in front still writes its inputs: "
            "a kernel reads or writes before it has waited (parameter 'overlap')");
    }
  }
  return std::string();
}

absl::StatusOr<std::string> InPlace::Comparison::Run(int replays) {
  RETURN_IF_ERROR(KeepInputs());
  for (int set = kSets; set-- > 0;) RETURN_IF_ERROR(Expect(set));
  ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, MakePlan());
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  for (int i = 0; i < replays && (i < kLeastReplays || seconds() < kMostSeconds); ++i) RETURN_IF_ERROR(plan->Run());
  return Differences();
}

absl::StatusOr<std::string> InPlace::Compare(Executable& executable, int replays) {
  numbers_.clear();
  absl::StatusOr<std::string> text = Comparison(*this, executable).Run(replays);
  numbers_.clear();
  return text;
}

absl::StatusOr<InPlace*> LazyInPlace::Get() {
  if (made_ != nullptr) return made_.get();
  if (compile_ == nullptr)
    return absl::UnavailableError("this runner has no compiler for the kernels around a program that starts early");
  ASSIGN_OR_RETURN(made_, InPlace::Create(device_, compile_));
  return made_.get();
}

}  // namespace diapason
