// Who reads a tensor, if it is one node.
#pragma once

#include <vector>

#include "compiler/graph/network.h"

namespace diapason {

// The node that alone reads a tensor; -1 if there are several or none, or the network gives the tensor out. `consumers`
// are those of Network::Consumers.
inline int OnlyReader(const Network& network, const std::vector<std::vector<int>>& consumers, int tensor) {
  return network.is_output(tensor) || consumers[tensor].size() != 1 ? -1 : consumers[tensor][0];
}

}  // namespace diapason
