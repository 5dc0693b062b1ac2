// The lines in which the requests of each queue wait for a device, by class.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "worker/tracker/model.h"

namespace diapason::tracker {

using Queues = std::map<std::string, std::unique_ptr<Queue>>;  // by id

// Changes Queue::pending and Queue::pass.
class Lines {
 public:
  explicit Lines(const Queues& queues) : queues_(queues) {}

  // Into its line: the request is pending.
  void Put(const RequestPtr& request, bool in_front) const;
  // Out of its line, if it is in one.
  void Remove(const RequestPtr& request) const;
  bool Has(const std::string& device_class) const;
  size_t Count(const std::string& device_class) const;
  // The next one of this class for a worker with these labels: of the queue of the highest priority, among equals of
  // the one that had the least of its share. Those that it may not take are left out; null: there is none.
  RequestPtr Take(const std::string& device_class, const Labels& labels,
                  const std::function<bool(const Request& request)>& may_take) const;

 private:
  const Queues& queues_;
};

}  // namespace diapason::tracker
