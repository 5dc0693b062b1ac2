#include "scheduler/tuning/background.h"

#include <utility>

namespace diapason::tuning {

void SearchThread::Start(TaskState& task, int trials, std::shared_ptr<const Ranker> ranker,
                         std::vector<Suggestion> suggested) {
  Join();
  runs_ = true;
  TaskSearch* search = task.search().Begin();
  thread_ = std::thread([this, &task, trials, search, ranker = std::move(ranker), suggested = std::move(suggested)] {
    SearchDone done{task.id(), trials, 0, {}, 0, 0};
    const double start = MonotonicSeconds();
    const int64_t before = search->stats().evaluated;
    const std::vector<Candidate> candidates = search->NextRound(ranker.get(), trials, suggested);
    done.seconds = MonotonicSeconds() - start;
    done.evaluated = search->stats().evaluated - before;
    done.round = search->rounds();
    for (const Candidate& candidate : candidates) done.proposals.push_back(MakeProposal(task, candidate));
    events_.Push(std::move(done));
  });
}

void SearchThread::End(TaskState& task) {
  runs_ = false;
  task.search().End();
}

void SearchThread::Join() {
  if (thread_.joinable()) thread_.join();
}

void Collector::Start() {
  thread_ = std::thread([this] {
    while (!end_) {
      auto outcomes = measurer_.Next(kTickSeconds);
      if (!outcomes.ok()) {
        events_.Push(outcomes.status());
        return;
      }
      if (!outcomes->empty()) events_.Push(*std::move(outcomes));
    }
  });
}

void Collector::Stop() {
  end_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace diapason::tuning
