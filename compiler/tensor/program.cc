#include "compiler/tensor/program.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

// The file: magic, version (u32), checksum of the payload (u64), payload length (u64), payload. Numbers are
// little-endian; strings and lists carry their length before them. The fields are in the order of PayloadOf.
constexpr char kMagic[8] = {'D', 'I', 'A', 'P', 'R', 'O', 'G', '\n'};
// 2: kernels may overlap and may be calls of libraries. 3: they may have tensor maps. 4: of windows, too. Programs are
// written in the oldest version that has what they have, so that older runtimes read them.
constexpr uint32_t kWithoutTensorMaps = 2, kWithoutWindows = 3, kVersion = 4;
constexpr size_t kHeaderBytes = sizeof kMagic + 4 + 8 + 8;

// FNV-1a over 8 bytes at a time: a damaged file is noticed; nobody is kept from forging one.
uint64_t ChecksumOf(const char* bytes, size_t size) {
  uint64_t hash = 0xcbf29ce484222325u ^ size;
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, size - i < 8 ? size - i : 8);
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  return hash;
}

class Writer {
 public:
  template <typename T>
  void Number(T value) {
    static_assert(std::is_integral_v<T>);
    for (size_t i = 0; i < sizeof(T); ++i) out_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
  void Text(const std::string& text) {
    Number<uint64_t>(text.size());
    out_.append(text);
  }
  template <typename T>
  void Numbers(const std::vector<T>& values) {
    Number<uint32_t>(values.size());
    for (T value : values) Number(value);
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads what Writer wrote; past the end, or after an impossible length, every read gives zeros and ok() is false.
class Reader {
 public:
  Reader(const char* bytes, size_t size) : next_(bytes), end_(bytes + size) {}

  bool ok() const { return ok_; }
  bool done() const { return ok_ && next_ == end_; }
  void Fail() { ok_ = false; }

  template <typename T>
  T Number() {
    if (!Has(sizeof(T))) return 0;
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(next_[i])) << (8 * i);
    next_ += sizeof(T);
    return static_cast<T>(value);
  }
  std::string Text() {
    const uint64_t size = Number<uint64_t>();
    if (!Has(size)) return "";
    std::string text(next_, size);
    next_ += size;
    return text;
  }
  // A count of items that take at least one byte each: never more than the bytes that are left.
  uint32_t Count() {
    const uint32_t count = Number<uint32_t>();
    return Has(count) ? count : 0;
  }
  template <typename T>
  std::vector<T> Numbers() {
    std::vector<T> values(Count());
    for (T& value : values) value = Number<T>();
    return values;
  }

 private:
  bool Has(uint64_t bytes) {
    if (!ok_ || bytes > static_cast<uint64_t>(end_ - next_)) ok_ = false;
    return ok_;
  }
  const char* next_;
  const char* end_;
  bool ok_ = true;
};

// With windows, a row for each dimension of the image follows.
std::vector<int64_t> NumbersOf(const Kernel::TensorMap& map) {
  std::vector<int64_t> numbers = {map.arg, map.element_bytes, map.box.swizzle, map.box.offset};
  std::vector<int64_t> box = map.box.box;
  box.resize(map.box.extents.size(), 1);
  for (const auto* list : {&map.box.extents, &map.box.strides, &std::as_const(box)})
    numbers.insert(numbers.end(), list->begin(), list->end());
  for (const WindowDim& dim : map.box.windows)
    numbers.insert(numbers.end(), {dim.first, dim.windows, dim.step, dim.elements, dim.apart});
  return numbers;
}

Kernel::TensorMap TensorMapFrom(const std::vector<int64_t>& numbers, Reader& in) {
  constexpr size_t kHead = 4, kLists = 3, kOfWindows = 5;
  const auto is_int = [](int64_t number) { return number >= 0 && number <= std::numeric_limits<int>::max(); };
  Kernel::TensorMap map;
  // Each rank has two lengths, and no length belongs to two ranks.
  size_t rank = 0;
  bool windows = false;
  for (size_t r = 1; r <= TensorBox::kMostDimensions; ++r) {
    if (numbers.size() == kHead + kLists * r) rank = r;
    if (r < 3 || numbers.size() != kHead + kLists * r + kOfWindows * (r - 2)) continue;
    rank = r;
    windows = true;
  }
  if (rank == 0 || !std::all_of(numbers.begin(), numbers.begin() + 3, is_int)) {
    in.Fail();
    return map;
  }
  map.arg = static_cast<int>(numbers[0]);
  map.element_bytes = static_cast<int>(numbers[1]);
  map.box.swizzle = static_cast<int>(numbers[2]);
  map.box.offset = numbers[3];
  auto from = numbers.begin() + kHead;
  for (auto* list : {&map.box.extents, &map.box.strides, &map.box.box}) {
    list->assign(from, from + static_cast<std::ptrdiff_t>(rank));
    from += static_cast<std::ptrdiff_t>(rank);
  }
  if (windows) map.box.box.resize(2);
  for (; from != numbers.end(); from += kOfWindows)
    map.box.windows.push_back(
        {.first = from[0], .windows = from[1], .step = from[2], .elements = from[3], .apart = from[4]});
  return map;
}

uint32_t VersionOf(const Program& program) {
  uint32_t version = kWithoutTensorMaps;
  for (const auto* kernels : {&program.prologue, &program.kernels})
    for (const Kernel& kernel : *kernels)
      for (const Kernel::TensorMap& map : kernel.tensor_maps)
        version = std::max(version, map.box.windows.empty() ? kWithoutWindows : kVersion);
  return version;
}

void Write(Writer& out, const Kernel& kernel, bool with_maps) {
  out.Text(kernel.name);
  out.Numbers(kernel.args);
  for (int64_t extent : kernel.grid) out.Number(extent);
  for (int64_t extent : kernel.block) out.Number(extent);
  out.Number(kernel.shared_bytes);
  out.Number(kernel.cluster);
  out.Number<uint8_t>(kernel.overlap);
  out.Numbers(kernel.library != nullptr ? kernel.library->ToNumbers() : std::vector<int64_t>{});
  if (!with_maps) return;
  out.Number<uint32_t>(kernel.tensor_maps.size());
  for (const Kernel::TensorMap& map : kernel.tensor_maps) out.Numbers(NumbersOf(map));
}

Kernel ReadKernel(Reader& in, size_t buffers, bool with_maps) {
  Kernel kernel;
  kernel.name = in.Text();
  kernel.args = in.Numbers<int>();
  for (int64_t& extent : kernel.grid) extent = in.Number<int64_t>();
  for (int64_t& extent : kernel.block) extent = in.Number<int64_t>();
  kernel.shared_bytes = in.Number<int64_t>();
  kernel.cluster = in.Number<int>();
  kernel.overlap = in.Number<uint8_t>() != 0;
  if (const std::vector<int64_t> numbers = in.Numbers<int64_t>(); !numbers.empty()) {
    absl::StatusOr<LibraryCall> call = LibraryCall::FromNumbers(numbers);
    if (call.ok())
      kernel.library = std::make_shared<const LibraryCall>(*std::move(call));
    else
      in.Fail();
  }
  const uint32_t maps = with_maps ? in.Count() : 0;
  for (uint32_t i = 0; i < maps && in.ok(); ++i) kernel.tensor_maps.push_back(TensorMapFrom(in.Numbers<int64_t>(), in));
  for (int arg : kernel.args)
    if (arg < 0 || static_cast<size_t>(arg) >= buffers) in.Fail();
  return kernel;
}

void Write(Writer& out, const ProgramBuffer& buffer) {
  out.Text(buffer.name);
  out.Text(NameOf(buffer.dtype));
  out.Number(buffer.elements);
  out.Number(static_cast<uint8_t>(buffer.role));
  out.Number(buffer.stage);
  out.Number(buffer.valid_min);
  out.Number(buffer.valid_max);
}

ProgramBuffer ReadBuffer(Reader& in) {
  ProgramBuffer buffer;
  buffer.name = in.Text();
  const std::optional<DType> dtype = DTypeFromName(in.Text());
  buffer.elements = in.Number<int64_t>();
  const uint8_t role = in.Number<uint8_t>();
  buffer.stage = in.Number<int>();
  buffer.valid_min = in.Number<int64_t>();
  buffer.valid_max = in.Number<int64_t>();
  const bool known_role =
      role >= static_cast<uint8_t>(BufferRole::kInput) && role <= static_cast<uint8_t>(BufferRole::kOutput);
  if (!dtype || !known_role || buffer.elements < 0 || buffer.elements > std::numeric_limits<int64_t>::max() / 16) {
    in.Fail();
    return buffer;
  }
  buffer.dtype = *dtype;
  buffer.role = static_cast<BufferRole>(role);
  return buffer;
}

void WriteKernels(Writer& out, const std::vector<Kernel>& kernels, bool with_maps) {
  out.Number<uint32_t>(kernels.size());
  for (const Kernel& kernel : kernels) Write(out, kernel, with_maps);
}

std::vector<Kernel> ReadKernels(Reader& in, size_t buffers, bool with_maps) {
  std::vector<Kernel> kernels;
  const uint32_t count = in.Count();
  for (uint32_t i = 0; i < count && in.ok(); ++i) kernels.push_back(ReadKernel(in, buffers, with_maps));
  return kernels;
}

std::string PayloadOf(const Program& program) {
  const bool with_maps = VersionOf(program) != kWithoutTensorMaps;
  Writer out;
  out.Text(program.target.ToString());
  out.Number<uint32_t>(program.buffers.size());
  for (const ProgramBuffer& buffer : program.buffers) Write(out, buffer);
  WriteKernels(out, program.prologue, with_maps);
  WriteKernels(out, program.kernels, with_maps);
  out.Text(program.source);
  out.Text(program.binary);
  out.Text(program.compiler);
  out.Numbers(program.registers);
  out.Numbers(program.spill_bytes);
  return out.Take();
}

absl::StatusOr<Program> ParsePayload(Reader& in, bool with_maps) {
  Program program;
  absl::StatusOr<Target> target = Target::Parse(in.Text());
  const uint32_t buffers = in.Count();
  for (uint32_t i = 0; i < buffers && in.ok(); ++i) program.buffers.push_back(ReadBuffer(in));
  program.prologue = ReadKernels(in, program.buffers.size(), with_maps);
  program.kernels = ReadKernels(in, program.buffers.size(), with_maps);
  program.source = in.Text();
  program.binary = in.Text();
  program.compiler = in.Text();
  program.registers = in.Numbers<int>();
  program.spill_bytes = in.Numbers<int>();
  if (!in.done() || !target.ok())
    return absl::DataLossError("the compiled program is damaged: its fields do not fit together; build it again");
  program.target = *std::move(target);
  return program;
}

}  // namespace

std::vector<Library> Program::Libraries() const {
  std::vector<Library> called;
  for (Library library : AllLibraries()) {
    const auto calls = [&](const Kernel& kernel) {
      return kernel.library != nullptr && kernel.library->library() == library;
    };
    if (std::any_of(prologue.begin(), prologue.end(), calls) || std::any_of(kernels.begin(), kernels.end(), calls))
      called.push_back(library);
  }
  return called;
}

absl::Status CheckLaunch(const Kernel& kernel) {
  const auto check = [&](int64_t number, const char* what) {
    if (number >= 1 && number <= kMaxGridBlocks) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("kernel '", kernel.name, "' has ", number, " ", what,
                                                      " along an axis; a GPU launches 1 to ", kMaxGridBlocks));
  };
  for (int64_t blocks : kernel.grid) RETURN_IF_ERROR(check(blocks, "blocks"));
  for (int64_t threads : kernel.block) RETURN_IF_ERROR(check(threads, "threads of a block"));
  return absl::OkStatus();
}

bool FitsTensorMap(const Program& program, const Kernel& kernel, const Kernel::TensorMap& map) {
  if (map.arg < 0 || map.arg >= static_cast<int>(kernel.args.size())) return false;
  const ProgramBuffer& buffer = program.buffers[kernel.args[map.arg]];
  return map.element_bytes == BytesOf(buffer.dtype) && IsCopyable(map.box, map.element_bytes, buffer.elements);
}

std::string SerializeProgram(const Program& program) {
  const std::string payload = PayloadOf(program);
  Writer header;
  header.Number(VersionOf(program));
  header.Number<uint64_t>(ChecksumOf(payload.data(), payload.size()));
  header.Number<uint64_t>(payload.size());
  return std::string(kMagic, sizeof kMagic) + header.Take() + payload;
}

absl::StatusOr<Program> ParseProgram(const std::string& bytes) {
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    return absl::DataLossError("these bytes are no compiled program of diapason; build it again");
  Reader header(bytes.data() + sizeof kMagic, kHeaderBytes - sizeof kMagic);
  const uint32_t version = header.Number<uint32_t>();
  if (version < kWithoutTensorMaps || version > kVersion)
    return absl::DataLossError("the compiled program has format version " + std::to_string(version) +
                               ", this diapason reads versions " + std::to_string(kWithoutTensorMaps) + " to " +
                               std::to_string(kVersion) + "; build it again");
  const uint64_t checksum = header.Number<uint64_t>();
  const uint64_t size = header.Number<uint64_t>();
  const char* payload = bytes.data() + kHeaderBytes;
  if (size != bytes.size() - kHeaderBytes || checksum != ChecksumOf(payload, size))
    return absl::DataLossError("the compiled program is damaged: its checksum does not match; build it again");
  Reader in(payload, size);
  return ParsePayload(in, version != kWithoutTensorMaps);
}

}  // namespace diapason
