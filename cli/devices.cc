// diapason devices: what this machine can measure on, with the facts that the search uses.
#include "diapason/devices.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"

namespace diapason {
namespace {

void PrintJson(std::ostream& out, const std::vector<api::LocalDevice>& found) {
  Json devices = Json::array();
  for (const api::LocalDevice& d : found) {
    devices.push_back({{"device", d.model},
                       {"target", d.target},
                       {"uuid", d.uuid},
                       {"arch", d.arch},
                       {"driver", d.driver},
                       {"cores", d.cores},
                       {"max_threads_per_block", d.max_threads_per_block},
                       {"max_shared_bytes", d.max_shared_bytes},
                       {"shared_bytes_per_core", d.shared_bytes_per_core},
                       {"registers_per_core", d.registers_per_core},
                       {"max_registers_per_thread", d.max_registers_per_thread},
                       {"max_threads_per_core", d.max_threads_per_core},
                       {"warp_size", d.warp_size},
                       {"max_blocks_per_cluster", d.max_blocks_per_cluster},
                       {"vector_bytes", d.vector_bytes},
                       {"vector_registers", d.vector_registers},
                       {"l1_bytes", d.l1_bytes},
                       {"l2_bytes", d.l2_bytes},
                       {"l3_bytes", d.l3_bytes},
                       {"clock_hz", d.clock_hz},
                       {"flops_per_s", d.flops_per_s},
                       {"bytes_per_s", d.bytes_per_s},
                       {"l2_bytes_per_s", d.l2_bytes_per_s},
                       {"launch_us", d.launch_us}});
  }
  WriteDocument(out, {"devices", 2}, {{"devices", devices}});
}

void PrintDevice(std::ostream& out, const api::LocalDevice& d) {
  auto line = [&](const char* name, const std::string& value) {
    out << "  " << name << std::string(24 - std::string(name).size(), ' ') << value << "\n";
  };
  out << "--target \"" << d.target << "\"\n";
  line("device", d.title);
  if (!d.uuid.empty()) line("uuid", d.uuid);
  if (!d.arch.empty()) line("architecture", d.arch);
  if (!d.driver.empty()) line("driver", d.driver);
  line(d.is_gpu() ? "multiprocessors" : "threads", absl::StrCat(d.cores));
  line("clock", Digits(d.clock_hz / 1e9) + " GHz");
  line("peak", Digits(d.flops_per_s / 1e9) + " GFLOP/s in float32");
  line("memory bandwidth", Digits(d.bytes_per_s / 1e9) + " GB/s");
  line("vector width", Bytes(d.vector_bytes));
  if (d.is_gpu()) {
    line("warp", absl::StrCat(d.warp_size, " threads"));
    line("threads per block", absl::StrCat(d.max_threads_per_block));
    line("blocks per cluster", d.max_blocks_per_cluster > 1 ? absl::StrCat(d.max_blocks_per_cluster) : "no clusters");
    line("shared memory a block", Bytes(d.max_shared_bytes));
    line("registers",
         absl::StrCat(d.registers_per_core, " a multiprocessor, ", d.max_registers_per_thread, " a thread"));
  }
  line("caches", absl::StrCat("L1 ", Bytes(d.l1_bytes), ", L2 ", Bytes(d.l2_bytes),
                              d.l3_bytes > 0 ? ", L3 " + Bytes(d.l3_bytes) : ""));
}

}  // namespace

void AddDevices(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("devices", "List the targets that this machine can measure on");
  auto json = std::make_shared<bool>(false);
  AddJsonFlag(command, json.get());
  command->callback([&chosen, json] {
    chosen = [json](Session& session) {
      const std::vector<api::LocalDevice> devices = api::Devices();
      if (*json) {
        PrintJson(session.out, devices);
        return absl::OkStatus();
      }
      for (size_t i = 0; i < devices.size(); ++i) {
        if (i > 0) session.out << "\n";
        PrintDevice(session.out, devices[i]);
      }
      return absl::OkStatus();
    };
  });
}

}  // namespace diapason
