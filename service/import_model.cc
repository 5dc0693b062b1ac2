#include "service/import_model.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "diapason/v1/import.pb.h"
#include "service/import_form.h"
#include "service/importer.h"
#include "worker/process/child_process.h"
#include "worker/process/host_memory.h"
#include "worker/process/scratch.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

// Of all that comes back but the weights: some hundred times that of the largest network tried.
constexpr uint32_t kMaxReplyBytes = 256u << 20;
constexpr std::chrono::milliseconds kLookAround{100};
constexpr std::chrono::seconds kBurial{5};

std::string Gib(int64_t bytes) {
  return absl::StrFormat("%.3g GiB", static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30));
}

// One import: the process, and what is made of its end.
class ModelImport {
 public:
  explicit ModelImport(const ImportRequest& request) : request_(request), limits_(request.limits) {
    if (limits_.memory_bytes <= 0) limits_.memory_bytes = HostMemoryBytes() / 2;
  }

  absl::StatusOr<ImportedModel> Run() {
    ASSIGN_OR_RETURN(const v1::ImportReply reply, Ask(Job()));
    return Read(reply);
  }

  absl::StatusOr<ModelDescription> Describe() {
    v1::ImportJob job = Job();
    job.set_describe(true);
    ASSIGN_OR_RETURN(const v1::ImportReply reply, Ask(job));
    return FromProto(reply.description());
  }

 private:
  // What the process replies, if it is no failure.
  absl::StatusOr<v1::ImportReply> Ask(const v1::ImportJob& job) {
    ASSIGN_OR_RETURN(scratch_, ScratchFolder::Create());
    ChildOptions options;
    options.program = limits_.program;
    options.args = {"diapason", "internal-importer", "--fd", absl::StrCat(kChildSocket)};
    options.scratch = scratch_->path();
    options.max_message_bytes = kMaxReplyBytes;
    killed_before_ = SystemOutOfMemoryKills();
    ASSIGN_OR_RETURN(child_, ChildProcess::Spawn(options));
    child_->Send(job);
    ASSIGN_OR_RETURN(const std::string answer, Answer());
    child_->Kill();  // it has nothing left to do
    v1::ImportReply reply;
    if (!reply.ParseFromString(answer)) return absl::DataLossError("the process that read the model answered nonsense");
    if (!reply.has_failure()) return reply;
    const int code = reply.failure().code();
    const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
    return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                        reply.failure().message());
  }

  v1::ImportJob Job() const {
    v1::ImportJob job;
    std::error_code ignored;
    job.set_model(request_.model);
    ToProto(request_.options, job);
    job.set_with_network(request_.with_network);
    job.set_prove_padding(request_.prove_padding);
    job.set_mask(request_.mask);
    job.set_whole_recurrence_bytes(request_.fusion.whole_recurrence_bytes);
    job.set_one_query_apart(request_.fusion.one_query_apart);
    job.set_find_factor_bounds(request_.fusion.find_factor_bounds);
    job.set_deferred_norm_rows(request_.fusion.deferred_norm_rows);
    job.mutable_least()->insert(request_.least.begin(), request_.least.end());
    job.set_memory_bytes(limits_.memory_bytes);
    job.set_stack_bytes(limits_.stack_bytes);
    // The deadline is ours; this is for a process that outlives us.
    job.set_cpu_seconds(static_cast<int64_t>(limits_.seconds) + 2);
    return job;
  }

  // The bytes of its reply.
  absl::StatusOr<std::string> Answer() {
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits_.seconds));
    while (true) {
      pollfd ready{child_->socket(), static_cast<short>(POLLIN | (child_->has_unsent() ? POLLOUT : 0)), 0};
      poll(&ready, 1, static_cast<int>(kLookAround.count()));
      child_->Flush();
      bool ended = false;
      absl::StatusOr<std::vector<std::string>> messages = child_->Receive(ended);
      if (!messages.ok()) return Refused(absl::StrCat("gave more than ", kMaxReplyBytes >> 20, " MiB of tasks"));
      if (!messages->empty()) return std::move(messages->front());
      if (ended) return Explain();
      if (request_.stop != nullptr && *request_.stop) return absl::CancelledError("stopped while the model was read");
      if (Clock::now() >= deadline) return TooLong();
    }
  }

  absl::Status Refused(const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("the model '", request_.model, "' cannot be used: reading it ", what));
  }
  absl::Status TooLong() const {
    return Refused(absl::StrFormat("took longer than %g s; allow more with --import-seconds", limits_.seconds));
  }
  absl::Status TooMuch() const {
    return Refused(
        absl::StrCat("took more than ", Gib(limits_.memory_bytes), " of memory; allow more with --import-memory"));
  }

  absl::Status Explain() {
    std::optional<int> status;
    for (const auto until = Clock::now() + kBurial; !(status = child_->Reap()).has_value() && Clock::now() < until;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!status.has_value()) return absl::UnavailableError("the process that reads models does not end");
    const int code = WIFEXITED(*status) ? WEXITSTATUS(*status) : 0,
              signal = WIFSIGNALED(*status) ? WTERMSIG(*status) : 0;
    if (code == kExitOutOfMemory) return TooMuch();
    if (code == kExitStackOverflow)
      return Refused(
          absl::StrCat("took more than ", limits_.stack_bytes >> 20, " MiB of stack: its graph is nested too deeply"));
    if (signal == SIGXCPU) return TooLong();
    if (signal == SIGKILL && SystemOutOfMemoryKills() > killed_before_) return TooMuch();
    if (signal == SIGKILL || signal == SIGTERM)
      return absl::UnavailableError(absl::StrCat("the process that read the model '", request_.model, "' was killed"));
    const std::string tail = child_->OutputTail(500);
    return Refused(absl::StrCat("ended its process, which ", DescribeWaitStatus(*status),
                                tail.empty() ? "" : absl::StrCat(" (", tail, ")"),
                                "; this is a fault of diapason's, please report it with the model"));
  }

  absl::StatusOr<ImportedModel> Read(const v1::ImportReply& reply) const {
    ImportedModel model;
    ASSIGN_OR_RETURN(model.fusion, FromProto(reply.fusion()));
    RETURN_IF_ERROR(TakeInputs(reply, model));
    model.warnings = {reply.warnings().begin(), reply.warnings().end()};
    if (!request_.with_network) return model;
    const std::string path = scratch_->path() + "/" + kConstantsFile;
    std::error_code error;
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
    std::ifstream constants(path, std::ios::binary);
    if (error || std::filesystem::is_symlink(path, error) || !constants)
      return absl::DataLossError(absl::StrCat("the weights of the model '", request_.model, "' are gone from ", path));
    ASSIGN_OR_RETURN(model.network, FromProto(reply.network(), constants, bytes));
    return model;
  }

  const ImportRequest& request_;
  ImportLimits limits_;
  int64_t killed_before_ = 0;
  std::unique_ptr<ScratchFolder> scratch_;
  std::unique_ptr<ChildProcess> child_;
};

}  // namespace

SymbolSizes ImportedModel::Sizes() const {
  SymbolSizes sizes;
  for (const ImportedInput& input : inputs)
    for (size_t d = 0; d < input.symbols.size(); ++d)
      if (!input.symbols[d].empty()) sizes[input.symbols[d]] = input.type.shape[d];
  return sizes;
}

absl::StatusOr<ImportedModel> ImportModel(const ImportRequest& request) { return ModelImport(request).Run(); }

absl::StatusOr<ModelDescription> DescribeModelFile(const ImportRequest& request) {
  return ModelImport(request).Describe();
}

}  // namespace diapason
