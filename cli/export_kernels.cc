// diapason export-kernels: a package as C code that needs nothing of ours.
#include "compiler/build/export_kernels.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "compiler/build/open_package.h"
#include "compiler/build/plans.h"
#include "compiler/graph/dims.h"

namespace diapason {
namespace {

struct KernelExportFlags {
  std::string package;
  std::vector<std::string> dims;
  KernelExportOptions options;
};

// The plan that --dim names. Without it there must be one alone.
absl::StatusOr<int> PlanToExport(const KernelExportFlags& flags, const Package& package) {
  if (flags.dims.empty() && package.plans().size() == 1) return 0;
  ASSIGN_OR_RETURN(const DimChoices asked, DimsOf(flags.dims));
  const std::vector<DimCombination> combinations = CombinationsOf(asked);
  std::vector<std::string> there;
  for (size_t p = 0; p < package.plans().size(); ++p) {
    const SymbolSizes& sizes = package.plans()[p].sizes;
    if (combinations.size() == 1 && combinations[0].sizes == sizes) return static_cast<int>(p);
    there.push_back(SizesText(sizes));
  }
  if (package.plans().front().sizes.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("package '", flags.package, "' has no symbolic dimensions; leave --dim out"));
  return absl::InvalidArgumentError(absl::StrCat("one plan is exported, and package '", flags.package, "' has ",
                                                 absl::StrJoin(there, "; "),
                                                 ": give the sizes of one of them with --dim"));
}

absl::Status RunExport(const KernelExportFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const Package package, OpenPackage(flags.package));
  ASSIGN_OR_RETURN(const int plan, PlanToExport(flags, package));
  RETURN_IF_ERROR(ExportKernels(package.WithPlan(plan), flags.options));
  session.out << "exported " << package.manifest().network << " for " << package.manifest().target.ToString() << " to "
              << flags.options.dir << "\nnext: cmake -S " << ShellQuoted(flags.options.dir) << " -B "
              << ShellQuoted(flags.options.dir + "/build") << " -DCMAKE_BUILD_TYPE=Release && cmake --build "
              << ShellQuoted(flags.options.dir + "/build") << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddExportKernels(CLI::App& app, CommandBody& chosen) {
  CLI::App* command =
      app.add_subcommand("export-kernels", "Write a package's kernels as a C project that needs nothing of Diapason");
  command->footer(
      "The folder gets the kernels (cpu: C sources; cuda: cubins and their sources), weights.bin, a header with the "
      "launch parameters, C code that launches them, and a CMakeLists.txt that builds a library and a program "
      "run_NAME of it. Packages for opencl and packages that call cuBLAS or cuDNN cannot be exported.");
  auto flags = std::make_shared<KernelExportFlags>();
  command->add_option("PACKAGE", flags->package, "Package that `diapason build` made, a folder or a .dpk file")
      ->required()
      ->type_name("");
  command->add_option("--out", flags->options.dir, "Folder to write, new or empty")->required()->type_name("DIR");
  AddDimFlag(command, &flags->dims, "Sizes of the plan to export, as in seq=128, for a package that has several");
  command
      ->add_option("--name", flags->options.name,
                   "Prefix of the C functions, and name of the library (default: the network's name)")
      ->type_name("NAME");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunExport(*flags, session); }; });
}

}  // namespace diapason
