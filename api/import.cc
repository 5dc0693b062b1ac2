#include "api/import.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/version.h"
#include "base/check.h"
#include "compiler/graph/builtin.h"
#include "service/target.h"

namespace diapason::api {
namespace {

// Of an installed shared library, PREFIX/bin/diapason; else the file of the process, which is the program then.
std::string DefaultProgram() {
  Dl_info object;
  std::error_code error;
  const std::filesystem::path process = "/proc/self/exe";
  if (dladdr(reinterpret_cast<const void*>(&SetProgram), &object) == 0 || object.dli_fname == nullptr) return process;
  const std::filesystem::path file = std::filesystem::canonical(object.dli_fname, error);
  if (error || std::filesystem::equivalent(file, process, error) || error) return process;
  for (std::filesystem::path above = file.parent_path(); above.has_relative_path(); above = above.parent_path())
    if (std::filesystem::path program = above / "bin" / "diapason"; access(program.c_str(), X_OK) == 0) return program;
  return process;
}

std::string& MutableProgram() {
  static auto* const program = new std::string(DefaultProgram());
  return *program;
}

}  // namespace

void SetProgram(const std::string& path) { MutableProgram() = path; }
const std::string& Program() { return MutableProgram(); }
const char* Version() { return kVersion; }

std::vector<BuiltinNetwork> Networks() {
  std::vector<BuiltinNetwork> networks;
  for (const BuiltinInfo& info : BuiltinNetworks()) {
    networks.push_back({info.name, info.help, {}});
    for (const BuiltinOption& option : info.options)
      networks.back().options.push_back({option.name, option.fallback, option.help});
  }
  return networks;
}

std::string SizesText(const std::map<std::string, int64_t>& sizes) { return ::diapason::SizesText(sizes); }

void Warn(const Hooks& hooks, const std::string& sentence) {
  if (hooks.warn) hooks.warn(sentence);
}

absl::Status CheckStop(const Hooks& hooks, const std::string& what) {
  if (hooks.stop == nullptr || !*hooks.stop) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("stopped while ", what));
}

absl::StatusOr<ModelOptions> ModelOptionsOf(const Model& model) {
  ModelOptions options;
  if (model.batch < 0)
    return absl::InvalidArgumentError(absl::StrCat("the batch is ", model.batch, "; give a number of at least 1"));
  if (model.layout != "NHWC" && model.layout != "NCHW")
    return absl::InvalidArgumentError(absl::StrCat("the layout is '", model.layout, "'; give NHWC or NCHW"));
  ASSIGN_OR_RETURN(options.dtype, ModelTypeFromName("type", model.dtype));
  options.batch = model.batch;
  options.layout = model.layout == "NCHW" ? Layout::kNCHW : Layout::kNHWC;
  options.strict = model.strict;
  options.extra = model.options;
  options.input_shapes = model.input_shapes;
  return options;
}

absl::StatusOr<DimChoices> DimsOf(const Model& model) {
  DimChoices choices;
  for (const std::string& text : model.dims) RETURN_IF_ERROR(AddDim(text, choices));
  RETURN_IF_ERROR(CheckDimChoices(choices));
  return choices;
}

::diapason::ImportLimits LimitsOf(const Model& model) {
  ::diapason::ImportLimits limits;
  limits.memory_bytes = static_cast<int64_t>(model.import_memory_gib * static_cast<double>(int64_t{1} << 30));
  limits.seconds = model.import_seconds;
  limits.program = Program();
  return limits;
}

absl::StatusOr<std::vector<ImportedPlan>> LoadPlans(const Model& model, const ResolvedTarget& target, bool with_network,
                                                    const Hooks& hooks) {
  RETURN_IF_ERROR(CheckStop(hooks, "the model was read"));
  ASSIGN_OR_RETURN(const ModelOptions options, ModelOptionsOf(model));
  ASSIGN_OR_RETURN(const DimChoices dims, DimsOf(model));
  if (!model.mask.empty() && dims.empty())
    return absl::InvalidArgumentError(
        "--mask says what is padding between sizes; give these with --dim, for example --dim seq=16,64,128");
  ImportRequest request{model.source, options, LimitsOf(model), with_network, hooks.stop};
  request.prove_padding = true;
  request.mask = model.mask;
  request.fusion = PreferredFusion(target);
  ASSIGN_OR_RETURN(std::vector<ImportedPlan> plans, ImportPlans(std::move(request), dims));
  for (const std::string& warning : WarningsOf(plans)) Warn(hooks, warning);
  return plans;
}

}  // namespace diapason::api
