// diapason devices: what this machine can measure on, with the facts that the search uses.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "compiler/runtime/device.h"
#include "service/target.h"

namespace diapason {
namespace {

void PrintJson(std::ostream& out, const std::vector<DeviceListing>& listings) {
  Json devices = Json::array();
  for (const DeviceListing& listing : listings) {
    const DeviceFacts& f = listing.facts;
    devices.push_back({{"device", f.model},
                       {"target", listing.target},
                       {"uuid", f.uuid},
                       {"arch", f.arch},
                       {"driver", f.driver},
                       {"cores", f.num_cores},
                       {"max_threads_per_block", f.max_threads_per_block},
                       {"max_shared_bytes", f.max_shared_bytes},
                       {"shared_bytes_per_core", f.shared_bytes_per_core},
                       {"registers_per_core", f.registers_per_core},
                       {"max_registers_per_thread", f.max_registers_per_thread},
                       {"max_threads_per_core", f.max_threads_per_core},
                       {"warp_size", f.warp_size},
                       {"max_blocks_per_cluster", f.max_cluster},
                       {"vector_bytes", f.vector_bytes},
                       {"vector_registers", f.num_vector_registers},
                       {"l1_bytes", f.l1_bytes},
                       {"l2_bytes", f.l2_bytes},
                       {"l3_bytes", f.l3_bytes},
                       {"clock_hz", f.clock_hz},
                       {"flops_per_s", f.flops},
                       {"bytes_per_s", f.bandwidth},
                       {"l2_bytes_per_s", f.l2_bandwidth},
                       {"launch_us", f.launch_seconds * 1e6}});
  }
  WriteDocument(out, {"devices", 2}, {{"devices", devices}});
}

void PrintDevice(std::ostream& out, const DeviceListing& listing) {
  const DeviceFacts& f = listing.facts;
  const bool gpu = f.max_threads_per_block > 1;
  auto line = [&](const char* name, const std::string& value) {
    out << "  " << name << std::string(24 - std::string(name).size(), ' ') << value << "\n";
  };
  out << "--target \"" << listing.target << "\"\n";
  const absl::StatusOr<Target> target = Target::Parse(listing.target);
  line("device", target.ok() ? DeviceTitle(target->kind, f) : f.model);
  if (!f.uuid.empty()) line("uuid", f.uuid);
  if (!f.arch.empty()) line("architecture", f.arch);
  if (!f.driver.empty()) line("driver", f.driver);
  line(gpu ? "multiprocessors" : "threads", absl::StrCat(f.num_cores));
  line("clock", Digits(f.clock_hz / 1e9) + " GHz");
  line("peak", Digits(f.flops / 1e9) + " GFLOP/s in float32");
  line("memory bandwidth", Digits(f.bandwidth / 1e9) + " GB/s");
  line("vector width", Bytes(f.vector_bytes));
  if (gpu) {
    line("warp", absl::StrCat(f.warp_size, " threads"));
    line("threads per block", absl::StrCat(f.max_threads_per_block));
    line("blocks per cluster", f.max_cluster > 1 ? absl::StrCat(f.max_cluster) : "no clusters");
    line("shared memory a block", Bytes(f.max_shared_bytes));
    line("registers",
         absl::StrCat(f.registers_per_core, " a multiprocessor, ", f.max_registers_per_thread, " a thread"));
  }
  line("caches", absl::StrCat("L1 ", Bytes(f.l1_bytes), ", L2 ", Bytes(f.l2_bytes),
                              f.l3_bytes > 0 ? ", L3 " + Bytes(f.l3_bytes) : ""));
}

}  // namespace

void AddDevices(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("devices", "List the targets that this machine can measure on");
  auto json = std::make_shared<bool>(false);
  AddJsonFlag(command, json.get());
  command->callback([&chosen, json] {
    chosen = [json](Session& session) {
      const std::vector<DeviceListing> listings = ListDevices();
      if (*json) {
        PrintJson(session.out, listings);
        return absl::OkStatus();
      }
      for (size_t i = 0; i < listings.size(); ++i) {
        if (i > 0) session.out << "\n";
        PrintDevice(session.out, listings[i]);
      }
      return absl::OkStatus();
    };
  });
}

}  // namespace diapason
