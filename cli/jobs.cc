// diapason submit and diapason jobs: tuning at a service.
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/launch_flags.h"
#include "cli/progress.h"
#include "cli/progress_snapshot.h"
#include "cli/service_flags.h"
#include "cli/table.h"
#include "cli/tune_flags.h"
#include "cli/waiting.h"
#include "diapason/service.h"

namespace diapason {
namespace {

// States of jobs.
constexpr char kQueued[] = "queued", kRunning[] = "running", kFailed[] = "failed", kCancelled[] = "cancelled";

struct JobFlags {
  std::string service;
  int64_t job = 0, trials = 0;
  std::vector<int64_t> jobs;  // of `jobs delete`
  double give_up = 0;         // 0: ServiceClientOptions'
  bool json = false;
  SecurityFlags security;
  LaunchFlags launch;  // of `submit` and `jobs watch`
};

struct SubmitFlags {
  TuneFlags tune;
  JobFlags job;
  bool wait = false;
};

absl::StatusOr<std::unique_ptr<api::Service>> Connect(const JobFlags& flags) {
  return api::Service::Connect(EndpointOf(flags.service, flags.security), flags.give_up);
}

std::string LocalTimeText(int64_t nanos) {
  if (nanos == 0) return "-";
  const std::time_t seconds = static_cast<std::time_t>(nanos / 1'000'000'000);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%F %T", &parts);
  return text;
}

std::string NetworkCheckText(const api::JobCheck& check) {
  if (!check.latency_us.has_value()) return check.text;
  return absl::StrCat(check.text, "\nmeasured latency ", Duration(*check.latency_us * 1e-6));
}

// The workers of --launch for a job, until this is gone; null without the flag. A command about the same job finds them
// again, on whatever host.
absl::StatusOr<std::unique_ptr<api::LaunchedWorkers>> WorkersFor(int64_t job, api::Service& client,
                                                                 const JobFlags& flags) {
  if (!flags.launch.given()) return nullptr;
  StartLog({});
  return client.Launch(job, LaunchRequestOf(flags.launch));
}

// How a job ended, as the exit of the command that followed it.
absl::Status EndOf(const api::Job& job) {
  if (job.state == kFailed) return absl::UnknownError(absl::StrCat("job ", job.id, " failed: ", job.text));
  if (job.state == kCancelled) {
    return absl::UnknownError(
        absl::StrCat("job ", job.id, " was cancelled; `diapason jobs resume ", job.id, "` resumes it"));
  }
  return absl::OkStatus();
}

// Tells once in a while why a job does not get on.
class WaitingTeller {
 public:
  WaitingTeller(api::Service& client, Session& session) : client_(client), session_(session) {}

  // After a while without a new measurement. A sentence is repeated only after another one.
  void Look(const api::Job& job) {
    const auto now = std::chrono::steady_clock::now();
    const int64_t measured = job.progress.has_value() ? job.progress->measured : 0;
    if (measured != measured_) {
      measured_ = measured;
      since_ = now;
      told_.clear();
    }
    if (now - since_ < kPatience || now - asked_ < kPatience) return;
    asked_ = now;
    const std::optional<std::string> why = Ask(job);
    if (why.has_value() && *why != told_) Warn(session_, *why);
    told_ = why.value_or("");
  }

 private:
  static constexpr std::chrono::seconds kPatience{3};

  // What cannot be asked (a token without that right, an old service) is not known.
  std::optional<std::string> Ask(const api::Job& job) {
    WaitingJob waiting{job.state == kQueued, 0, job.target, job.device, job.labels, client_.tracker()};
    if (waiting.queued) {
      if (const absl::StatusOr<std::vector<api::Job>> jobs = client_.Jobs(); jobs.ok())
        for (const api::Job& other : *jobs) waiting.running_jobs += other.state == kRunning ? 1 : 0;
    }
    std::optional<api::FleetStatus> fleet;
    if (absl::StatusOr<api::FleetStatus> status = client_.Fleet(1); status.ok()) fleet = *std::move(status);
    return WhyWaiting(waiting, fleet);
  }

  api::Service& client_;
  Session& session_;
  int64_t measured_ = -1;
  std::chrono::steady_clock::time_point since_, asked_;
  std::string told_;
};

// Follows a job to its end, or until Ctrl-C or the end of the command's own workers, which leave the job alone.
absl::Status Watch(api::Service& client, int64_t id, const JobFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::unique_ptr<api::LaunchedWorkers> workers, WorkersFor(id, client, flags));
  std::ostream& shown_on = flags.json ? session.err : session.out;
  const bool live = flags.json ? session.environment.err_is_terminal : session.environment.out_is_terminal;
  // The title says of what: that is known only when the job was asked for.
  ASSIGN_OR_RETURN(const api::Job asked, client.Get(id));
  ProgressView view(shown_on, {absl::StrCat(asked.model, " for ", asked.target, ", job ", id), live,
                               session.environment.colour, session.environment.terminal_size});
  std::atomic<bool> stop{false};
  InterruptGuard interrupt(&stop);
  api::Job job;
  std::string last_text;
  std::set<std::string> warned;
  WaitingTeller waiting(client, session);
  const auto unread = [&] { return !session.out && !flags.json; };  // nobody looks any more
  const auto left = [&] { return workers == nullptr ? absl::OkStatus() : workers->status(); };
  while (!stop && left().ok() && !unread()) {
    ASSIGN_OR_RETURN(job, client.Wait(id, job.version, 1));
    if (!job.text.empty() && job.text != last_text && !job.ended()) Warn(session, job.text);
    last_text = job.text;
    for (const std::string& warning : job.warnings)
      if (warned.insert(warning).second) Warn(session, warning);
    if (job.ended()) break;
    waiting.Look(job);
    if (job.progress.has_value()) view.Update(SnapshotOf(*job.progress));
  }
  if (job.progress.has_value()) view.Finish(SnapshotOf(*job.progress));
  if (flags.json) session.out << api::JobJson(job);
  if (!job.ended() && !stop) {
    return absl::UnavailableError(absl::StrCat(left().message(), ", job ", id,
                                               " keeps all trials and waits, `diapason jobs watch ", id,
                                               "` with the same flags brings workers again"));
  }
  if (!job.ended()) {
    return absl::CancelledError(
        absl::StrCat("no longer watched; job ", id, " continues, and `diapason jobs watch ", id, "` shows it again"));
  }
  if (!flags.json) {
    session.out << "job " << id << " is " << job.state << (job.stop_reason.empty() ? "" : ": ") << job.stop_reason
                << "\n";
    if (job.check.has_value()) session.out << NetworkCheckText(*job.check) << "\n";
  }
  if (job.check.has_value())
    for (const std::string& sentence : job.check->problems) Warn(session, sentence);
  return EndOf(job);
}

absl::Status RunSubmit(const SubmitFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::TuneOptions options, TuneOptionsOf(flags.tune));
  RETURN_IF_ERROR(api::CheckOptions(options));
  RETURN_IF_ERROR(api::CheckOptions(LaunchRequestOf(flags.job.launch)));
  if (flags.job.launch.given() && !flags.wait)
    return absl::InvalidArgumentError("--launch starts workers that end with this command; add --wait");
  ASSIGN_OR_RETURN(const std::unique_ptr<api::Service> client, Connect(flags.job));
  ASSIGN_OR_RETURN(const int64_t id, client->Submit(options));
  if (flags.wait) {
    if (!flags.job.json) session.out << "job " << id << "\n" << std::flush;
    return Watch(*client, id, flags.job, session);
  }
  if (flags.job.json) {
    WriteDocument(session.out, {"submitted", 1}, {{"job", id}});
  } else {
    session.out << "job " << id << "\n";
  }
  return absl::OkStatus();
}

absl::Status RunList(const JobFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::unique_ptr<api::Service> client, Connect(flags));
  ASSIGN_OR_RETURN(const std::vector<api::Job> jobs, client->Jobs());
  if (flags.json) {
    session.out << api::JobsJson(jobs);
    return absl::OkStatus();
  }
  TextTable table({{"job", true},
                   {"state"},
                   {"model"},
                   {"target"},
                   {"trials", true},
                   {"/s", true},
                   {"best", true},
                   {"submitted"},
                   {"owner"},
                   {"text"}});
  for (const api::Job& job : jobs) {
    const api::Progress p = job.progress.value_or(api::Progress());
    table.AddRow({absl::StrCat(job.id), job.state, job.model, job.target, absl::StrCat(p.trials),
                  Digits(p.trials_per_s), Duration(p.estimated_us.value_or(0) * 1e-6), LocalTimeText(job.submitted_at),
                  job.owner.empty() ? "-" : job.owner, job.text});
  }
  session.out << table.ToString() << Count(static_cast<int64_t>(jobs.size()), "job") << "\n";
  return absl::OkStatus();
}

void PrintProgress(std::ostream& out, const api::Job& job) {
  const api::Progress p = job.progress.value_or(api::Progress());
  out << "trials     " << p.trials;
  if (job.trials > 0) out << " of " << job.trials;
  out << ", " << p.failed << " failed, " << Digits(p.trials_per_s) << "/s";
  if (job.seconds > 0) out << ", for " << ClockText(p.elapsed_s) << " of " << ClockText(job.seconds);
  out << "\n";
  if (p.estimated_us.has_value()) {
    out << "latency    " << Duration(*p.estimated_us * 1e-6);
    if (p.estimated_fallback_us.has_value())
      out << ", with fallback schedules " << Duration(*p.estimated_fallback_us * 1e-6);
    out << "\n";
  }
  for (const auto& [kind, count] : p.errors) out << "errors     " << kind << " " << count << "\n";
}

void PrintJob(std::ostream& out, const api::Job& job) {
  out << "job " << job.id << " is " << job.state << (job.text.empty() ? "" : ": ") << job.text << "\n"
      << "model      " << job.model << " for " << job.target << "\n";
  if (!job.owner.empty()) out << "owner      " << job.owner << "\n";
  out << "submitted  " << LocalTimeText(job.submitted_at) << ", started " << LocalTimeText(job.started_at) << ", ended "
      << LocalTimeText(job.ended_at) << "\n";
  PrintProgress(out, job);
  for (const std::string& warning : job.warnings) out << "warning    " << warning << "\n";
  if (!job.stop_reason.empty()) out << "stopped    " << job.stop_reason << "\n";
  if (job.check.has_value()) out << NetworkCheckText(*job.check) << "\n";
}

void PrintJobTasks(std::ostream& out, const api::Job& job) {
  if (!job.progress.has_value() || job.progress->tasks.empty()) return;
  TextTable table({{"id", true},
                   {"task"},
                   {"weight", true},
                   {"trials", true},
                   {"default us", true},
                   {"best us", true},
                   {"sketch of the best"}});
  for (const api::TaskProgress& task : job.progress->tasks) {
    table.AddRow({absl::StrCat(task.id), task.name, absl::StrFormat("%g", task.count), absl::StrCat(task.trials),
                  Digits(task.fallback_us.value_or(0)), Digits(task.best_us.value_or(0)),
                  task.best_us.has_value() && !task.verified ? task.sketch + " (not verified)" : task.sketch});
  }
  out << "\n" << table.ToString();
}

absl::Status RunShow(const JobFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::unique_ptr<api::Service> client, Connect(flags));
  ASSIGN_OR_RETURN(const api::Job job, client->Get(flags.job));
  if (flags.json) {
    session.out << api::JobJson(job);
  } else {
    PrintJob(session.out, job);
    PrintJobTasks(session.out, job);
  }
  return absl::OkStatus();
}

absl::Status RunWatch(const JobFlags& flags, Session& session) {
  RETURN_IF_ERROR(api::CheckOptions(LaunchRequestOf(flags.launch)));
  ASSIGN_OR_RETURN(const std::unique_ptr<api::Service> client, Connect(flags));
  RETURN_IF_ERROR(client->Get(flags.job).status());  // before anything is started for it
  return Watch(*client, flags.job, flags, session);
}

absl::Status TellState(const api::Job& job, const JobFlags& flags, Session& session) {
  if (flags.json) {
    session.out << api::JobJson(job);
  } else {
    session.out << "job " << job.id << " is " << job.state << "\n";
  }
  return absl::OkStatus();
}

absl::Status RunCancel(const JobFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::unique_ptr<api::Service> client, Connect(flags));
  ASSIGN_OR_RETURN(api::Job job, client->Cancel(flags.job));
  while (!job.ended()) {  // what is measured ends first
    ASSIGN_OR_RETURN(job, client->Wait(flags.job, job.version, 1));
  }
  return TellState(job, flags, session);
}

absl::Status RunResume(const JobFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::unique_ptr<api::Service> client, Connect(flags));
  ASSIGN_OR_RETURN(const api::Job job, client->Resume(flags.job, flags.trials));
  return TellState(job, flags, session);
}

absl::Status RunDelete(const JobFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::unique_ptr<api::Service> client, Connect(flags));
  // Delete is OK for a job that is not there, so that it can be repeated: only this tells a mistyped number.
  for (const int64_t job : flags.jobs) RETURN_IF_ERROR(client->Get(job).status());
  for (const int64_t job : flags.jobs) {
    RETURN_IF_ERROR(client->Delete(job));
    if (!flags.json) session.out << "job " << job << " is deleted\n";
  }
  if (flags.json) WriteDocument(session.out, {"deleted_jobs", 1}, {{"deleted", flags.jobs}});
  return absl::OkStatus();
}

void AddJobFlags(CLI::App* command, JobFlags* flags) {
  command->add_option("--service", flags->service, "Address of the service; of several, the one that answers is used")
      ->required()
      ->type_name("HOST:PORT[,HOST:PORT]");
  AddNumber(command, "--timeout", &flags->give_up, 0,
            "Seconds to keep trying if the service does not answer (default 10; with several addresses 60, so that a "
            "standby can take over)");
  AddJsonFlagBesideProgress(command, &flags->json);
  AddSecurityFlags(command, &flags->security);
}

using JobBody = absl::Status (*)(const JobFlags&, Session&);

}  // namespace

void AddSubmit(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("submit", "Submit a network to a service for tuning");
  command->footer(
      "Prints the job's id. The options are those of `tune`. A model file is sent only if the service does not have "
      "it. Workers of --launch are for this job and stop when this command exits; `jobs watch` with the same flags "
      "finds them again.");
  auto flags = std::make_shared<SubmitFlags>();
  AddTuneFlags(command, &flags->tune);
  AddJobFlags(command, &flags->job);
  command->add_flag("--wait", flags->wait, "Follow the job to its end; Ctrl-C leaves it running");
  AddLaunchFlags(command, &flags->job.launch);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunSubmit(*flags, session); }; });
}

void AddJobs(CLI::App& app, CommandBody& chosen) {
  CLI::App* jobs = app.add_subcommand("jobs", "Show and manage the jobs of a service");
  jobs->require_subcommand(1);
  auto flags = std::make_shared<JobFlags>();
  const auto add = [&](const char* name, const char* help, JobBody body) {
    CLI::App* command = jobs->add_subcommand(name, help);
    AddJobFlags(command, flags.get());
    command->callback(
        [&chosen, flags, body] { chosen = [flags, body](Session& session) { return body(*flags, session); }; });
    return command;
  };
  const auto add_for_one = [&](const char* name, const char* help, JobBody body) {
    CLI::App* command = add(name, help, body);
    command->add_option("JOB", flags->job, "Id of the job, as `diapason jobs list` shows it")
        ->required()
        ->type_name("");
    return command;
  };
  add("list", "All jobs, newest first", &RunList);
  add_for_one("show", "Show a job: its state, tasks and warnings", &RunShow);
  AddLaunchFlags(add_for_one("watch", "Follow a job; Ctrl-C leaves it running", &RunWatch), &flags->launch);
  add_for_one("cancel", "Cancel a job; its measurements are kept", &RunCancel);
  add("delete", "Delete jobs that have ended; their measurements stay in the history", &RunDelete)
      ->add_option("JOBS", flags->jobs, "Ids of jobs that have ended, as `diapason jobs list` shows them")
      ->required()
      ->type_name("");
  CLI::App* resume = add_for_one("resume", "Resume a job that has ended", &RunResume);
  AddWhole(resume, "--trials", &flags->trials, {1, int64_t{1} << 50},
           "New limit on measurements, including those in the history (default: as before)");
}

}  // namespace diapason
