#include "compiler/build/export_kernels.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "compiler/build/export_templates.h"
#include "compiler/build/memory_plan.h"
#include "compiler/codegen/compile.h"

namespace diapason {
namespace {

namespace fs = std::filesystem;

using Place = PackageTensor::Place;

// Behind the end of a buffer that kernels do not share (Device::Allocate).
constexpr int64_t kReadBehind = 64;

bool IsIdentifier(const std::string& name) {
  const auto fits = [](char c) { return absl::ascii_isalnum(c) || c == '_'; };
  return !name.empty() && !absl::ascii_isdigit(name[0]) && std::all_of(name.begin(), name.end(), fits);
}

// "resnet-18" is resnet_18.
std::string IdentifierOf(const std::string& network) {
  std::string name = network;
  for (char& c : name)
    if (!absl::ascii_isalnum(c)) c = '_';
  return IsIdentifier(name) ? name : absl::StrCat("network_", name);
}

// As a string of C. Octal escapes end after three digits, unlike hexadecimal ones.
std::string Quoted(const std::string& text) { return absl::StrCat("\"", absl::CEscape(text), "\""); }

// Within a comment.
std::string InComment(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return absl::StrReplaceAll(text, {{"*/", "* /"}, {"/*", "/ *"}});
}

// NumPy has no bfloat16: its bits.
std::string NpyType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "'<f4'";
    case DType::kFloat16: return "'<f2'";
    case DType::kFloat64: return "'<f8'";
    case DType::kInt32: return "'<i4'";
    case DType::kInt64: return "'<i8'";
    case DType::kBool: return "'|b1'";
    case DType::kInt8: return "'|i1'";
    case DType::kUint8: return "'|u1'";
    case DType::kBfloat16: return "'<u2'";
  }
  return "";
}

std::string NpyShape(const std::vector<int64_t>& shape) {
  return absl::StrCat("(", absl::StrJoin(shape, ", "), shape.size() == 1 ? ",)" : ")");
}

struct ExportedLaunch {
  int task = 0;
  Kernel kernel;
  int first = 0, first_map = 0;  // of its arguments and tensor maps
};

// In the table of tensor maps.
std::string MapRow(const Kernel::TensorMap& map) {
  const DriverTensorBox box = ForDriver(map.box, map.element_bytes);
  const auto list = [](const auto& numbers) {
    return numbers.empty() ? std::string("{0}") : absl::StrCat("{", absl::StrJoin(numbers, ", "), "}");
  };
  return absl::StrCat("    {", map.arg, ", ", box.type, ", ", box.swizzle, ", ", box.extents.size(), ", ",
                      map.box.windows.size(), ", ", box.offset, ", ", list(box.extents), ", ", list(box.strides), ", ",
                      list(box.box), ", ", list(box.first), ", ", list(box.last), ", ", list(box.steps), "},\n");
}

// Files of the project, and targets that every CMake project has: no library can have their names.
bool IsTaken(const std::string& name) {
  static const char* const kTaken[] = {"main",
                                       "all",
                                       "clean",
                                       "help",
                                       "install",
                                       "test",
                                       "package",
                                       "package_source",
                                       "edit_cache",
                                       "rebuild_cache",
                                       "list_install_components",
                                       "depend",
                                       "preinstall",
                                       "default_target"};
  return std::any_of(std::begin(kTaken), std::end(kTaken), [&](const char* taken) { return name == taken; });
}

// The name of a network, or with something behind it.
std::string LibraryName(const std::string& network) {
  std::string name = IdentifierOf(network);
  return IsTaken(name) ? name + "_network" : name;
}

// Writes down the network: where each buffer lies, and what is launched with which.
class Exporter {
 public:
  Exporter(const Package& package, const KernelExportOptions& options)
      : package_(package),
        plan_(package.manifest()),
        cuda_(plan_.target.kind == TargetKind::kCuda),
        name_(options.name.empty() ? LibraryName(plan_.network) : options.name) {}

  absl::Status Prepare();
  absl::Status Write(PackageWriter& folder) const;

 private:
  absl::Status Damaged(const std::string& why) const {
    return absl::DataLossError(
        absl::StrCat(package_.PathOf(kManifestFile), " is damaged: ", why, "; build the package again"));
  }
  absl::Status AddTask(int task);
  absl::Status AddStep(const PackageStep& step);
  absl::Status CheckProgram(const Program& program) const;
  // Positions in buffers_ of the program's buffers; -1 for those that nothing is bound to.
  absl::StatusOr<std::vector<int>> BindStep(const PackageStep& step, const Program& program);
  absl::Status AddLaunches(int task, const std::vector<Kernel>& kernels, std::vector<int>& bound,
                           std::vector<ExportedLaunch>& launches);
  int AddBuffer(const std::string& name, bool weights, int64_t offset, int64_t bytes);
  int AddOwn(const std::string& name, int64_t bytes);

  std::string Symbol(int task, const Kernel& kernel) const;
  std::string KernelSource(int task) const;
  std::string LaunchTable(const std::string& what, const std::vector<ExportedLaunch>& launches) const;
  std::string LaunchType() const;
  std::string MapTable() const;
  std::string LaunchesHeader() const;
  std::string PortTable(const std::string& what, const std::vector<PackagePort>& ports) const;
  std::string Filled(std::string_view text) const;

  const Package& package_;
  const PackageManifest& plan_;
  const bool cuda_;
  const std::string name_;
  std::vector<Program> programs_;     // by task
  std::vector<std::string> sources_;  // by task
  int64_t memory_bytes_ = 0;          // the arena, inputs, and what programs keep
  std::vector<int> tensors_;          // by tensor: position in buffers_
  std::vector<std::string> buffers_;  // rows of the table
  std::vector<int> arguments_;
  std::vector<std::string> maps_;  // rows of the table
  std::vector<ExportedLaunch> prologue_, launches_;
};

int Exporter::AddBuffer(const std::string& name, bool weights, int64_t offset, int64_t bytes) {
  buffers_.push_back(absl::StrCat("    {", Quoted(name), ", ", name_, weights ? "_IN_WEIGHTS" : "_IN_MEMORY", ", ",
                                  offset, ", ", bytes, "},\n"));
  return static_cast<int>(buffers_.size()) - 1;
}

int Exporter::AddOwn(const std::string& name, int64_t bytes) {
  const int64_t offset = (memory_bytes_ + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  memory_bytes_ = offset + bytes + kReadBehind;
  return AddBuffer(name, /*weights=*/false, offset, bytes);
}

absl::Status Exporter::CheckProgram(const Program& program) const {
  for (const ProgramBuffer& buffer : program.buffers)
    if (buffer.elements < 0) return Damaged(absl::StrCat("buffer '", buffer.name, "' has no size"));
  for (const auto* kernels : {&program.prologue, &program.kernels}) {
    for (const Kernel& kernel : *kernels) {
      if (kernel.library != nullptr)
        return absl::InvalidArgumentError(absl::StrCat(
            "package '", package_.dir(), "' calls ", TitleOf(kernel.library->library()),
            ", which cannot be exported: build it for a target without -libs=", NameOf(kernel.library->library())));
      if (!IsIdentifier(kernel.name)) return Damaged("a kernel has no name of C");
      for (int arg : kernel.args)
        if (arg < 0 || arg >= static_cast<int>(program.buffers.size()))
          return Damaged(absl::StrCat("kernel '", kernel.name, "' takes a buffer that its program does not have"));
      for (const Kernel::TensorMap& map : kernel.tensor_maps)
        if (!FitsTensorMap(program, kernel, map))
          return Damaged(absl::StrCat("a tensor map of kernel '", kernel.name, "' does not fit its buffer"));
    }
  }
  return absl::OkStatus();
}

absl::Status Exporter::AddTask(int task) {
  ASSIGN_OR_RETURN(Program program, package_.ReadProgram(task));
  RETURN_IF_ERROR(CheckProgram(program));
  ASSIGN_OR_RETURN(std::string source, package_.ReadSource(task));
  programs_.push_back(std::move(program));
  sources_.push_back(std::move(source));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> Exporter::BindStep(const PackageStep& step, const Program& program) {
  const PackageTask& task = plan_.tasks[step.task];
  if (task.input_stages.size() != step.inputs.size() || task.output_stages.size() != step.outputs.size())
    return Damaged(absl::StrCat("a step does not fit its task '", task.name, "'"));
  std::vector<int> bound(program.buffers.size(), -1);
  const auto bind = [&](int stage, int tensor) {
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      if (stage < 0 || program.buffers[b].stage != stage) continue;
      if (program.buffers[b].bytes() != plan_.tensors[tensor].bytes()) return false;
      bound[b] = tensors_[tensor];
    }
    return true;
  };
  bool fits = true;
  for (size_t i = 0; i < step.inputs.size(); ++i) fits = bind(task.input_stages[i], step.inputs[i]) && fits;
  for (size_t i = 0; i < step.outputs.size(); ++i) fits = bind(task.output_stages[i], step.outputs[i]) && fits;
  if (!fits) return Damaged(absl::StrCat("a tensor does not fit task '", task.name, "'"));
  for (const auto& [buffer, offset] : step.workspaces) {
    if (buffer < 0 || buffer >= static_cast<int>(program.buffers.size()) || offset < 0 ||
        offset > plan_.arena_bytes - program.buffers[buffer].bytes())
      return Damaged("a workspace lies outside its memory");
    bound[buffer] = AddBuffer(program.buffers[buffer].name, false, offset, program.buffers[buffer].bytes());
  }
  return bound;
}

absl::Status Exporter::AddLaunches(int task, const std::vector<Kernel>& kernels, std::vector<int>& bound,
                                   std::vector<ExportedLaunch>& launches) {
  for (const Kernel& kernel : kernels) {
    launches.push_back({task, kernel, static_cast<int>(arguments_.size()), static_cast<int>(maps_.size())});
    for (const Kernel::TensorMap& map : kernel.tensor_maps) maps_.push_back(MapRow(map));
    for (int arg : kernel.args) {
      const ProgramBuffer& buffer = programs_[task].buffers[arg];
      if (bound[arg] < 0) bound[arg] = AddOwn(buffer.name, buffer.bytes());
      arguments_.push_back(bound[arg]);
    }
  }
  return absl::OkStatus();
}

absl::Status Exporter::AddStep(const PackageStep& step) {
  const Program& program = programs_[step.task];
  ASSIGN_OR_RETURN(std::vector<int> bound, BindStep(step, program));
  RETURN_IF_ERROR(AddLaunches(step.task, program.prologue, bound, prologue_));
  return AddLaunches(step.task, program.kernels, bound, launches_);
}

absl::Status Exporter::Prepare() {
  if (!IsIdentifier(name_))
    return absl::InvalidArgumentError(
        absl::StrCat("--name: '", name_, "' is no identifier of C: use letters, digits and _"));
  if (IsTaken(name_))
    return absl::InvalidArgumentError(
        absl::StrCat("--name: '", name_, "' is a name that the project or CMake has already; give another one"));
  if (plan_.target.kind == TargetKind::kOpenCl)
    return absl::InvalidArgumentError(absl::StrCat("package '", package_.dir(),
                                                   "' is for opencl, whose kernels only a driver compiles: kernels are "
                                                   "exported from packages for cpu and cuda"));
  for (size_t task = 0; task < plan_.tasks.size(); ++task) RETURN_IF_ERROR(AddTask(static_cast<int>(task)));
  memory_bytes_ = plan_.arena_bytes + kReadBehind;
  for (const PackageTensor& tensor : plan_.tensors)
    tensors_.push_back(tensor.place == Place::kInput
                           ? AddOwn(tensor.name, tensor.bytes())
                           : AddBuffer(tensor.name, tensor.place == Place::kConstant, tensor.offset, tensor.bytes()));
  for (const PackageStep& step : plan_.steps) RETURN_IF_ERROR(AddStep(step));
  return absl::OkStatus();
}

// Kernels of several tasks have the same names: on cpu, where all are linked together, those of a task have a prefix.
std::string Exporter::Symbol(int task, const Kernel& kernel) const {
  return absl::StrCat(name_, "_task", task, "_", kernel.name);
}

std::string Exporter::KernelSource(int task) const {
  if (cuda_) return sources_[task];
  std::string renames;
  for (const auto* kernels : {&programs_[task].prologue, &programs_[task].kernels})
    for (const Kernel& kernel : *kernels)
      absl::StrAppend(&renames, "#define ", kernel.name, " ", Symbol(task, kernel), "\n");
  return renames + sources_[task];
}

std::string Exporter::LaunchTable(const std::string& what, const std::vector<ExportedLaunch>& launches) const {
  std::string text = absl::StrCat("static const ", name_, "_launch ", name_, "_", what, "[] = {\n");
  for (const ExportedLaunch& launch : launches) {
    const Kernel& kernel = launch.kernel;
    const std::string task = Quoted(plan_.tasks[launch.task].name);
    if (cuda_) {
      const int64_t dynamic = kernel.shared_bytes > kMaxStaticSharedBytes ? kernel.shared_bytes : 0;
      absl::StrAppend(&text, "    {", task, ", ", Quoted(kernel.name), ", ", launch.task, ", {",
                      absl::StrJoin(kernel.grid, ", "), "}, {", absl::StrJoin(kernel.block, ", "), "}, ", dynamic, ", ",
                      kernel.cluster, ", ", kernel.overlap ? 1 : 0);
    } else {
      absl::StrAppend(&text, "    {", task, ", ", Symbol(launch.task, kernel), ", ", kernel.grid[0]);
    }
    absl::StrAppend(&text, ", ", kernel.args.size(), ", ", launch.first);
    if (cuda_) absl::StrAppend(&text, ", ", kernel.tensor_maps.size(), ", ", launch.first_map);
    absl::StrAppend(&text, "},\n");
  }
  if (launches.empty()) absl::StrAppend(&text, "    {0},\n");  // C has no arrays of nothing
  return text + "};\n";
}

// The type of the table's rows, and what these refer to.
std::string Exporter::LaunchType() const {
  std::string text;
  if (cuda_) {
    absl::StrAppend(&text, "static const struct {\n  const char* file;\n  size_t bytes;\n} ", name_,
                    "_modules[] = {\n");
    for (size_t t = 0; t < plan_.tasks.size(); ++t)
      absl::StrAppend(&text, "    {", Quoted(absl::StrCat("kernels/", plan_.tasks[t].file, ".cubin")), ", ",
                      programs_[t].binary.size(), "},\n");
    absl::StrAppend(&text, "    {0},\n};\n\n");
    text += Filled(
        "typedef struct {\n  const char* task;\n  const char* kernel;\n  int module; /* in @NAME@_modules */\n"
        "  unsigned grid[3], block[3];\n  unsigned dynamic_shared; /* bytes */\n"
        "  int cluster; /* blocks of a cluster along x */\n"
        "  int early; /* may start before the launch in front of it has ended, for which it waits itself */\n"
        "  int arguments, first; /* so many of @NAME@_arguments, from there on */\n"
        "  int maps, first_map; /* so many of @NAME@_maps, which follow the arguments */\n} @NAME@_launch;\n\n");
    text += MapTable();
  } else {
    text += Filled(
        "/* Iterations from `begin` to before `end`. Disjoint ranges may run at the same time. */\n"
        "typedef void (*@NAME@_kernel)(void* const* arguments, long long begin, long long end);\n"
        "typedef struct {\n  const char* task;\n  @NAME@_kernel kernel;\n  long long count; /* iterations */\n"
        "  int arguments, first; /* so many of @NAME@_arguments, from there on */\n} @NAME@_launch;\n\n");
    std::map<std::string, int> symbols;
    for (const auto* launches : {&prologue_, &launches_})
      for (const ExportedLaunch& launch : *launches) symbols[Symbol(launch.task, launch.kernel)] = launch.task;
    for (const auto& [symbol, task] : symbols)
      absl::StrAppend(&text, "void ", symbol, "(void* const* arguments, long long begin, long long end);\n");
    text += "\n";
  }
  return text;
}

// Tensor maps (CUtensorMap), in the units and numbers of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.
std::string Exporter::MapTable() const {
  if (maps_.empty()) return "";
  std::string text = Filled(
      "/* Tensor maps of kernels: as cuTensorMapEncodeTiled takes them, of the argument with that number; where there\n"
      " * are windows, as cuTensorMapEncodeIm2col does. */\n"
      "typedef struct {\n  int argument, type, swizzle, rank, windows;\n  long long offset; /* bytes */\n"
      "  unsigned long long extents[5], strides[5];\n  unsigned box[5];\n"
      "  int first[3], last[3];\n  unsigned steps[5];\n} @NAME@_map;\n"
      "static const @NAME@_map @NAME@_maps[] = {\n");
  for (const std::string& map : maps_) text += map;
  return text + "    {0},\n};\n\n";
}

std::string Exporter::LaunchesHeader() const {
  size_t most_arguments = 1, most_maps = 0;
  for (const auto* launches : {&prologue_, &launches_}) {
    for (const ExportedLaunch& launch : *launches) {
      most_arguments = std::max(most_arguments, launch.kernel.args.size());
      most_maps = std::max(most_maps, launch.kernel.tensor_maps.size());
    }
  }
  std::string text = absl::StrCat(
      "/* What @NAME@.c launches: where buffers lie, and the kernels in order with their grids and arguments.\n"
      " * The prologue, which prepares weights, is launched once; the launches at each run. */\n#pragma "
      "once\n\n#include <stddef.h>\n\n"
      "enum {\n  @NAME@_BUFFERS = ",
      buffers_.size(), ",\n  @NAME@_ARGUMENTS = ", arguments_.size(), ",\n  @NAME@_MOST_ARGUMENTS = ", most_arguments,
      ", /* of one launch */\n  @NAME@_MOST_MAPS = ", most_maps, ",\n  @NAME@_PROLOGUE = ", prologue_.size(),
      ",\n  @NAME@_LAUNCHES = ", launches_.size(),
      ",\n  @NAME@_THREADS = @THREADS@,\n  @NAME@_MODULES = ", cuda_ ? programs_.size() : 0,
      "\n};\n#define @NAME@_MAPS ", maps_.size(), "\n#define @NAME@_WEIGHTS_BYTES ", plan_.weights_bytes,
      "LL\n#define @NAME@_MEMORY_BYTES ", memory_bytes_,
      "LL\n\n/* A range of weights.bin, or of memory that the network allocates. */\n"
      "enum { @NAME@_IN_WEIGHTS, @NAME@_IN_MEMORY };\n"
      "typedef struct {\n  const char* name;\n  int block;\n  long long offset, bytes;\n} @NAME@_buffer;\n"
      "static const @NAME@_buffer @NAME@_buffers[] = {\n");
  text = Filled(text);
  for (const std::string& buffer : buffers_) text += buffer;
  absl::StrAppend(&text, "    {0},\n};\n\n/* Positions in ", name_, "_buffers. */\nstatic const int ", name_,
                  "_arguments[] = {", absl::StrJoin(arguments_, ", "), arguments_.empty() ? "0};\n\n" : "};\n\n");
  text += LaunchType();
  return absl::StrCat(text, LaunchTable("prologue", prologue_), "\n", LaunchTable("launches", launches_));
}

std::string Exporter::PortTable(const std::string& what, const std::vector<PackagePort>& ports) const {
  std::string text = absl::StrCat("const ", name_, "_port ", name_, "_", what, "[] = {\n");
  for (const PackagePort& port : ports)
    absl::StrAppend(&text, "    {", Quoted(port.name), ", \"", NameOf(port.dtype), "\", ", port.shape.size(), ", {",
                    port.shape.empty() ? "0" : absl::StrJoin(port.shape, ", "), "}, ",
                    port.elements() * BytesOf(port.dtype), ", \"", NpyType(port.dtype), "\", \"", NpyShape(port.shape),
                    "\", ", tensors_[port.tensor], "},\n");
  return text + "    {0},\n};\n";
}

std::string Exporter::Filled(std::string_view text) const {
  size_t rank = 1;
  for (const auto* ports : {&plan_.inputs, &plan_.outputs})
    for (const PackagePort& port : *ports) rank = std::max(rank, port.shape.size());
  std::string kernels;
  if (!cuda_)
    for (const PackageTask& task : plan_.tasks) absl::StrAppend(&kernels, "  kernels/", task.file, ".c\n");
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{"@NETWORK@", InComment(plan_.network)},
                              {"@TARGET@", InComment(plan_.target.ToString())},
                              {"@NAME@", name_},
                              {"@INPUTS@", absl::StrCat(plan_.inputs.size())},
                              {"@OUTPUTS@", absl::StrCat(plan_.outputs.size())},
                              {"@RANK@", absl::StrCat(rank)},
                              {"@THREADS@", absl::StrCat(cuda_ ? 1 : std::max(plan_.target.num_cores, 1))},
                              {"@INCLUDE@", cuda_ ? "#include <cuda.h>\n" : ""},
                              {"@READS@", cuda_ ? "weights.bin and the cubins" : "weights.bin"},
                              {"@FLAGS@", cuda_ ? "" : absl::StrJoin(CKernelFlags(plan_.target), ";")},
                              {"@KERNELS@", kernels}});
}

absl::Status Exporter::Write(PackageWriter& folder) const {
  const ExportTemplates texts = ExportTemplatesOf(plan_.target.kind);
  const std::string declarations(texts.declarations);
  const std::string header = absl::StrReplaceAll(std::string(texts.header), {{"@DECLARATIONS@\n", declarations}});
  ASSIGN_OR_RETURN(const PackageBytes weights, package_.ReadWeights());
  RETURN_IF_ERROR(folder.Write("weights.bin", std::string(weights.bytes)));
  std::vector<std::string> written;  // tasks may share files
  for (size_t t = 0; t < plan_.tasks.size(); ++t) {
    const std::string base = absl::StrCat("kernels/", plan_.tasks[t].file);
    if (std::find(written.begin(), written.end(), base) != written.end()) continue;
    written.push_back(base);
    RETURN_IF_ERROR(folder.Write(base + SourceEnding(plan_.target.kind), KernelSource(static_cast<int>(t))));
    if (cuda_) RETURN_IF_ERROR(folder.Write(base + BinaryEnding(plan_.target.kind), programs_[t].binary));
  }
  const std::string tables = absl::StrCat("\n", PortTable("inputs", plan_.inputs), PortTable("outputs", plan_.outputs));
  RETURN_IF_ERROR(folder.Write(name_ + "_launches.h", LaunchesHeader()));
  RETURN_IF_ERROR(folder.Write(name_ + ".h", Filled(header)));
  RETURN_IF_ERROR(folder.Write(name_ + ".c", Filled(texts.source) + tables));
  RETURN_IF_ERROR(folder.Write("main.c", Filled(texts.main)));
  return folder.Write("CMakeLists.txt", Filled(texts.cmake));
}

absl::Status CheckFree(const std::string& dir) {
  std::error_code error;
  if (!fs::exists(dir, error) || (fs::is_directory(dir, error) && fs::is_empty(dir, error))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("'", dir, "' is there already; give --out a new name, or an empty folder"));
}

}  // namespace

absl::Status ExportKernels(const Package& package, const KernelExportOptions& options) {
  RETURN_IF_ERROR(CheckFree(options.dir));
  Exporter exporter(package, options);
  RETURN_IF_ERROR(exporter.Prepare());
  ASSIGN_OR_RETURN(PackageFolder folder, PackageFolder::Create(options.dir));
  RETURN_IF_ERROR(exporter.Write(folder));
  return folder.Commit();
}

}  // namespace diapason
