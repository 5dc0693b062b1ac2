// What is to be built for requests, and what was: each program once.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/runtime/outcome.h"
#include "worker/pipeline/build_cache.h"
#include "worker/pipeline/job.h"
#include "worker/pipeline/jobs.h"

namespace diapason::pipeline {

class Builds {
 public:
  // Facts of a device, by its number.
  using Facts = std::function<const v1::DeviceFacts&(int device)>;
  // A program of the job is there: perhaps the last one, perhaps after its end.
  using OnBuilt = std::function<void(const JobPtr& job)>;

  // `counts`: where builds that failed are counted.
  Builds(const PipelineOptions& options, Jobs& jobs, v1::WorkerStatistics& counts, Facts facts, OnBuilt on_built)
      : options_(options), jobs_(jobs), counts_(counts), facts_(std::move(facts)), on_built_(std::move(on_built)) {}

  // Has all programs of a request built that are not known.
  void Add(const JobPtr& job);
  // The first request of a workload has the reference program built; later ones wait for it or find it.
  void WantReference(const JobPtr& job);

  size_t size() const { return queue_.size(); }
  // The next one to build; nothing when there is none.
  std::optional<BuildTask> Next();
  // All that what is built depends on.
  v1::BuildJob BuildJobOf(const BuildTask& task) const;
  void Built(const BuildTask& task, v1::BuildReply& reply);
  void Failed(const BuildTask& task, ErrorKind kind, MeasureStage stage, const std::string& text);
  // Nothing that waits is built.
  void GiveUp(const std::string& text);

 private:
  void AddNetwork(const JobPtr& job);
  std::string KeyOf(const BuildTask& task) const { return BuildJobOf(task).SerializeAsString(); }
  void Take(const BuildTask& task, const BuiltProgram& built);

  const PipelineOptions& options_;
  Jobs& jobs_;
  v1::WorkerStatistics& counts_;
  const Facts facts_;
  const OnBuilt on_built_;
  std::deque<BuildTask> queue_;
  std::vector<ReferencePtr> references_;  // being built
  BuildCache cache_{size_t{256} << 20};
};

}  // namespace diapason::pipeline
