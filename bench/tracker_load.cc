// A tracker under the load of a large fleet: simulated workers with a connection each, and coordinators that submit at
// a steady rate whatever comes back. The tracker is a process of its own; what it takes is told apart from what the
// simulation takes.
//
//   tracker_load [WORKERS] [RATE] [SECONDS] [STATE]     default: 1000 5000 10, without a file of its state
//
// RATE: measurements per second, over four queues. Latency: from the call of Submit to the arrival of the lease at a
// worker. A worker holds up to four leases, "measures" each for 50 ms and reports what has ended at once, as a real one
// does (worker/agent/agent.cc), with its heartbeats.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "diapason/v1/measure.grpc.pb.h"
#include "diapason/v1/tracker.grpc.pb.h"
#include "worker/process/convert.h"
#include "worker/rpc/channel.h"
#include "worker/tracker/server.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kLeases = 4;
constexpr std::chrono::milliseconds kMeasuring{50};
constexpr int kQueues = 4;
constexpr size_t kScheduleBytes = 2048;  // a network's workloads and schedules have 1 to 6 KB

// Calls functions at their time, on one thread.
class Timers {
 public:
  Timers() : thread_([this] { Loop(); }) {}
  ~Timers() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void At(Clock::time_point when, std::function<void()> what) {
    {
      std::lock_guard lock(mutex_);
      queue_.emplace(when, std::move(what));
    }
    changed_.notify_all();
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (queue_.empty()) {
        changed_.wait(lock);
      } else if (queue_.begin()->first > Clock::now()) {
        changed_.wait_until(lock, queue_.begin()->first);
      } else {
        auto what = std::move(queue_.begin()->second);
        queue_.erase(queue_.begin());
        lock.unlock();
        what();
        lock.lock();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

// What both ends know of each request: when it was submitted.
class Latencies {
 public:
  void Submitted(uint64_t id) {
    std::lock_guard lock(mutex_);
    submitted_[id] = Clock::now();
  }
  void Leased(uint64_t id) {
    std::lock_guard lock(mutex_);
    const auto found = submitted_.find(id);
    if (found == submitted_.end()) return;
    seconds_.push_back(std::chrono::duration<double>(Clock::now() - found->second).count());
    submitted_.erase(found);
  }
  // Forgets what was measured while everything warmed up.
  void Begin() {
    std::lock_guard lock(mutex_);
    seconds_.clear();
  }
  std::vector<double> Sorted() {
    std::lock_guard lock(mutex_);
    std::sort(seconds_.begin(), seconds_.end());
    return seconds_;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, Clock::time_point> submitted_;
  std::vector<double> seconds_;
};

class SimulatedWorker {
 public:
  SimulatedWorker(const std::string& address, int number, Timers& timers, Latencies& latencies)
      : stub_(v1::Tracker::NewStub(MakeChannel(address))), timers_(timers), latencies_(latencies) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::RegisterRequest request;
    request.mutable_protocol()->set_low(1);
    request.mutable_protocol()->set_high(1);
    request.set_worker_id("w" + std::to_string(number));
    request.set_name(request.worker_id());
    v1::DeviceDescription& device = *request.add_devices();
    device.set_name("cuda:0");
    device.set_target("cuda -arch=sm_90");
    ToProto(DefaultFacts(Target::Parse("cuda -arch=sm_90").value()), *device.mutable_facts());
    device.mutable_facts()->set_model("H200");
    device.mutable_facts()->set_uuid("GPU-" + std::to_string(number));
    device.set_state(v1::DEVICE_STATE_READY);
    v1::RegisterResponse response;
    const grpc::Status status = stub_->Register(&context, request, &response);
    if (!status.ok()) {
      std::fprintf(stderr, "worker %d: %s\n", number, status.error_message().c_str());
      std::exit(1);
    }
    session_ = response.session();
  }
  void Begin() {
    Beat();
    Lease();
  }

 private:
  template <typename Request, typename Response>
  struct Call {
    grpc::ClientContext context;
    Request request;
    Response response;
  };

  void Lease() {
    auto call = std::make_shared<Call<v1::LeaseRequest, v1::LeaseResponse>>();
    {
      std::lock_guard lock(mutex_);
      if (leasing_ || held_ >= kLeases) return;
      leasing_ = true;
      call->request.set_session(session_);
      call->request.set_received(batch_);
      call->request.set_max_wait_ms(20000);
      v1::DeviceCapacity& capacity = *call->request.add_capacity();
      capacity.set_device("cuda:0");
      capacity.set_free(kLeases - held_);
    }
    stub_->async()->Lease(&call->context, &call->request, &call->response, [this, call](grpc::Status status) {
      if (!status.ok()) return;  // the end of the run
      {
        std::lock_guard lock(mutex_);
        batch_ = call->response.batch();
        leasing_ = false;
        held_ += static_cast<uint32_t>(call->response.grants_size());
      }
      for (const v1::LeaseGrant& grant : call->response.grants()) {
        latencies_.Leased(grant.request().id());
        timers_.At(Clock::now() + kMeasuring, [this, lease = grant.lease()] { Measured(lease); });
      }
      Lease();
    });
  }
  void Measured(uint64_t lease) {
    {
      std::lock_guard lock(mutex_);
      --held_;
      ended_.push_back(lease);
    }
    Report();
    Lease();
  }
  // One report at a time; what ends meanwhile goes with the next.
  void Report() {
    auto call = std::make_shared<Call<v1::ReportRequest, v1::ReportResponse>>();
    {
      std::lock_guard lock(mutex_);
      if (reporting_) return;
      reporting_ = true;
      call->request.set_session(session_);
      for (uint64_t lease : std::exchange(ended_, {})) {
        v1::LeaseOutcome& outcome = *call->request.add_outcomes();
        outcome.set_lease(lease);
        for (double sample : {1e-3, 1.1e-3, 1.2e-3}) outcome.mutable_result()->mutable_timing()->add_samples(sample);
        outcome.mutable_result()->mutable_timing()->set_number(1);
        outcome.mutable_result()->mutable_on()->set_model("H200");
      }
    }
    stub_->async()->Report(&call->context, &call->request, &call->response, [this, call](grpc::Status status) {
      bool more = false;
      {
        std::lock_guard lock(mutex_);
        reporting_ = false;
        more = status.ok() && !ended_.empty();
      }
      if (more) Report();
    });
  }
  void Beat() {
    Report();
    timers_.At(Clock::now() + std::chrono::seconds(1), [this] { Beat(); });
  }

  std::unique_ptr<v1::Tracker::Stub> stub_;
  Timers& timers_;
  Latencies& latencies_;
  std::string session_;
  std::mutex mutex_;  // guards all below
  uint64_t batch_ = 0;
  uint32_t held_ = 0;
  bool leasing_ = false, reporting_ = false;
  std::vector<uint64_t> ended_;
};

// What those that submit requests share.
struct Load {
  Latencies latencies;
  std::atomic<int64_t> done{0};
  std::atomic<bool> stop{false};
};

// Submits `rate` requests per second in steps of 10 ms and fetches the results.
void Coordinate(const std::string& address, int number, double rate, Load& load) {
  const std::unique_ptr<v1::Measure::Stub> stub = v1::Measure::NewStub(MakeChannel(address));
  v1::OpenRequest open;
  open.mutable_protocol()->set_low(1);
  open.mutable_protocol()->set_high(1);
  v1::OpenResponse queue;
  grpc::ClientContext opening;
  if (!stub->Open(&opening, open, &queue).ok()) std::exit(1);
  std::thread fetching([&] {
    v1::NextRequest next;
    next.set_queue(queue.queue());
    next.set_max_wait_ms(200);
    while (!load.stop) {
      grpc::ClientContext context;
      v1::NextResponse response;
      if (!stub->Next(&context, next, &response).ok()) break;
      for (const v1::MeasureResult& result : response.results()) {
        next.set_acknowledged(result.sequence());
        if (result.has_timing()) ++load.done;
      }
    }
  });
  const auto began = Clock::now();
  int64_t submitted = 0;
  const std::string workload(kScheduleBytes, 'w'), schedule(kScheduleBytes, 's');
  while (!load.stop) {
    const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    v1::SubmitRequest request;
    request.set_queue(queue.queue());
    for (; static_cast<double>(submitted) < rate * seconds && request.requests_size() < 1000; ++submitted) {
      v1::MeasureRequest& one = *request.add_requests();
      one.set_id(static_cast<uint64_t>(number) << 40 | static_cast<uint64_t>(submitted + 1));
      one.set_workload(workload);
      one.set_schedule(schedule + std::to_string(one.id()));  // equal ones of several queues are measured once
      one.set_target("cuda -arch=sm_90");
      one.set_device_model("H200");
      load.latencies.Submitted(one.id());
    }
    grpc::ClientContext context;
    v1::SubmitResponse response;
    const grpc::Status status =
        request.requests_size() == 0 ? grpc::Status::OK : stub->Submit(&context, request, &response);
    if (!status.ok()) std::fprintf(stderr, "submit: %s\n", status.error_message().c_str());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  fetching.join();
}

// The tracker as a process: writes its address to `out`, ends with SIGTERM.
[[noreturn]] void RunTracker(int out, const std::string& state) {
  auto server = TrackerServer::Start({"127.0.0.1:0", {}}, {}, state);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", std::string(server.status().message()).c_str());
    _exit(1);
  }
  const std::string address = (*server)->address() + "\n";
  if (write(out, address.data(), address.size()) < 0) _exit(1);
  pause();
  _exit(0);
}

double TrackerCpuSeconds(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  long user = 0, system = 0;
  std::sscanf(text.c_str() + text.rfind(')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user,
              &system);
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double TrackerPeakMb(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::atof(line.c_str() + 6) / 1024;
  return 0;
}

int Run(int workers, double rate, double seconds, const std::string& state) {
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const pid_t tracker = fork();  // before gRPC has threads
  if (tracker == 0) RunTracker(ends[1], state);
  char text[64] = {};
  if (read(ends[0], text, sizeof text - 1) <= 0) return 1;
  std::string address = text;
  address.pop_back();

  Load load;
  Latencies& latencies = load.latencies;
  std::atomic<int64_t>& done = load.done;
  auto* timers = new Timers;  // with the workers until the end of the process: calls of theirs are still waiting
  auto* simulated = new std::vector<std::unique_ptr<SimulatedWorker>>;
  for (int i = 0; i < workers; ++i)
    simulated->push_back(std::make_unique<SimulatedWorker>(address, i, *timers, latencies));
  for (auto& worker : *simulated) worker->Begin();
  std::vector<std::thread> coordinators;
  for (int i = 0; i < kQueues; ++i)
    coordinators.emplace_back([&, i] { Coordinate(address, i + 1, rate / kQueues, load); });
  std::this_thread::sleep_for(std::chrono::seconds(2));
  latencies.Begin();
  const int64_t done_before = done;
  const double cpu_before = TrackerCpuSeconds(tracker);
  const auto began = Clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double took = std::chrono::duration<double>(Clock::now() - began).count();
  const int64_t done_after = done;
  const double cpu = TrackerCpuSeconds(tracker) - cpu_before, peak = TrackerPeakMb(tracker);
  const std::vector<double> sorted = latencies.Sorted();
  load.stop = true;
  for (std::thread& thread : coordinators) thread.join();
  kill(tracker, SIGTERM);
  waitpid(tracker, nullptr, 0);
  auto at = [&](double share) {
    return sorted.empty() ? 0 : 1e3 * sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
  };
  std::printf(
      "{\"workers\": %d, \"offered_per_s\": %.0f, \"completed_per_s\": %.0f, \"lease_ms_p50\": %.2f, \"lease_ms_p99\": "
      "%.2f, \"lease_ms_max\": %.2f, \"tracker_cores\": %.2f, \"tracker_peak_mb\": %.0f}\n",
      workers, rate, static_cast<double>(done_after - done_before) / took, at(0.5), at(0.99), at(1), cpu / took, peak);
  std::fflush(stdout);
  _exit(0);
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  return diapason::Run(argc > 1 ? std::atoi(argv[1]) : 1000, argc > 2 ? std::atof(argv[2]) : 5000,
                       argc > 3 ? std::atof(argv[3]) : 10, argc > 4 ? argv[4] : "");
}
