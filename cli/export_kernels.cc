// diapason export-kernels: a package as C code that needs nothing of ours.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "diapason/profile.h"

namespace diapason {
namespace {

absl::Status RunExport(const api::KernelExport& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::ExportedKernels exported, api::ExportKernels(flags));
  session.out << "exported " << exported.network << " for " << exported.target << " to " << flags.out
              << "\nnext: cmake -S " << ShellQuoted(flags.out) << " -B " << ShellQuoted(flags.out + "/build")
              << " -DCMAKE_BUILD_TYPE=Release && cmake --build " << ShellQuoted(flags.out + "/build") << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddExportKernels(CLI::App& app, CommandBody& chosen) {
  CLI::App* command =
      app.add_subcommand("export-kernels", "Write a package's kernels as a C project that does not need Diapason");
  command->footer(
      "Writes the kernels (cpu: C sources; cuda: cubins and their sources), weights.bin, a header with the launch "
      "parameters, C code that launches them, and a CMakeLists.txt that builds a library and a program run_NAME. "
      "Packages for opencl and packages that call cuBLAS or cuDNN cannot be exported.");
  auto flags = std::make_shared<api::KernelExport>();
  command->add_option("PACKAGE", flags->package, "Package that `diapason build` made, a folder or a .dpk file")
      ->required()
      ->type_name("");
  command->add_option("--out", flags->out, "Folder to write, new or empty")->required()->type_name("DIR");
  AddDimFlag(command, &flags->dims, "Sizes of the plan to export, as in seq=128, for a package that has several");
  command
      ->add_option("--name", flags->name,
                   "Prefix of the C functions, and name of the library (default: the network's name)")
      ->type_name("NAME");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunExport(*flags, session); }; });
}

}  // namespace diapason
