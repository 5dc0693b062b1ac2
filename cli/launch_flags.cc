#include "cli/launch_flags.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "absl/strings/str_split.h"
#include "cli/flags.h"

namespace diapason {
namespace {

constexpr char kGroup[] = "Launching workers";

std::vector<std::string> Words(const std::string& text) { return absl::StrSplit(text, ' ', absl::SkipWhitespace()); }

}  // namespace

void AddLaunchFlags(CLI::App* command, LaunchFlags* flags) {
  api::LaunchRequest* request = &flags->request;
  command
      ->add_option("--launch", request->engine,
                   "Start workers: local (processes of this host), slurm (sbatch) or kubernetes (kubectl)")
      ->type_name("ENGINE")
      ->group(kGroup);
  AddWhole(command, "--workers", &request->workers, {1, 10000}, "Workers at the start (default: --min-workers)")
      ->group(kGroup);
  AddWhole(command, "--max-workers", &request->max_workers, {1, 10000},
           "Most workers, while the queue is long (default: as --workers)")
      ->group(kGroup);
  AddWhole(command, "--min-workers", &request->min_workers, {0, 10000},
           "Least workers, while the queue is empty (default: as --workers)")
      ->group(kGroup);
  AddNumber(command, "--shrink-after", &request->shrink_after_seconds, 0,
            "Seconds without measurements after which the number shrinks to --min-workers (default 60)")
      ->group(kGroup);
  AddWhole(command, "--max-replaced", &request->max_replaced, {0, 1 << 20},
           "Number of lost workers to replace (default 32)")
      ->group(kGroup);
  command
      ->add_option("--worker-args", flags->worker_args,
                   "Flags of the workers, for example \"--devices cuda:* --builders 8\"")
      ->type_name("TEXT")
      ->group(kGroup);
  command
      ->add_option("--worker-program", request->worker_program,
                   "Path of the program diapason where the workers run (default: that of this program)")
      ->type_name("FILE")
      ->group(kGroup);
  auto file = [&](const std::string& name, std::string* value, const std::string& help) {
    command->add_option(name, *value, help)->type_name("FILE")->group(kGroup);
  };
  file("--worker-token-file", &request->worker_token_file,
       "File with the workers' token, passed to them as a file of mode 600 or a secret");
  file("--worker-tls-cert", &request->worker_tls_cert, "Certificate (PEM) of the workers, passed in the same way");
  file("--worker-tls-key", &request->worker_tls_key, "Private key of the certificate");
  file("--worker-tls-ca", &request->worker_tls_ca,
       "Certificate of the authority that signed the tracker's certificate");
  command
      ->add_option("--worker-secrets", request->worker_secrets,
                   "Folder for these files; with slurm, one that the nodes can see (default: the current folder; with "
                   "local, the folder of temporary files)")
      ->type_name("DIR")
      ->group(kGroup);
  command->add_option("--slurm-args", flags->slurm_args, "For sbatch, for example \"-p gpu --gres=gpu:1\"")
      ->type_name("TEXT")
      ->group(kGroup);
  command->add_option("--kube-template", request->kube_template, "Manifest of a worker's pod")
      ->type_name("FILE")
      ->group(kGroup);
}

api::LaunchRequest LaunchRequestOf(const LaunchFlags& flags) {
  api::LaunchRequest request = flags.request;
  request.worker_args = Words(flags.worker_args);
  request.slurm_args = Words(flags.slurm_args);
  return request;
}

}  // namespace diapason
