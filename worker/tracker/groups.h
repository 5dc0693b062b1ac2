// One measurement for several requests: which ask for the same, and which of them is being measured.
//
// Each request of a group stands in the line of its own queue, so that priorities, shares and labels mean what they
// always do. The first one that a worker takes is measured for all; the others are parked until its outcome is there.
// The state file knows nothing of groups: a tracker that resumes from it makes them anew.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "worker/tracker/journal.h"
#include "worker/tracker/lines.h"
#include "worker/tracker/model.h"

namespace diapason::tracker {

// Changes Request::share_key and Request::parked.
class Groups {
 public:
  Groups(const Lines& lines, Journal& journal) : lines_(lines), journal_(journal) {}

  // Makes the request one of its group; it is parked when that is being measured. One whose queue has another of the
  // group stays alone: a queue that asks for the same twice wants two measurements.
  void Join(const RequestPtr& request);
  // Out of its group.
  void Part(const RequestPtr& request);
  // The lease is for this one: the others of its group leave their lines.
  void Park(const RequestPtr& measuring);
  // The others wait in their lines again; false when there are none.
  bool Unpark(const RequestPtr& measured);
  // Those that wait for the outcome of this one.
  std::vector<RequestPtr> Parked(const RequestPtr& measuring) const;
  // The parked `heir` is the one that is measured from now on.
  void HandOver(const RequestPtr& measuring, const RequestPtr& heir);

 private:
  // Requests of different queues that ask for the same measurement.
  struct Group {
    std::vector<RequestPtr> members;
    RequestPtr measuring;  // the one with the lease; null: all wait in their lines
  };

  const Lines& lines_;
  Journal& journal_;
  std::unordered_map<std::string, Group> groups_;  // by share key; none is empty
};

}  // namespace diapason::tracker
