#include "compiler/runtime/argument_table.h"

namespace diapason {

ArgumentTable::ArgumentTable(const std::vector<Launch>& launches) {
  for (size_t l = 0; l < launches.size(); ++l)
    for (size_t a = 0; a < launches[l].args.size(); ++a) places_[launches[l].args[a]].push_back({l, a});
  for (const Launch& launch : launches)
    if (launch.kernel.library != nullptr)
      for (const DeviceBuffer* arg : launch.args) places_.erase(arg);
}

void ArgumentTable::Add(const DeviceBuffer& buffer, const ArgumentPlace& place) {
  const auto found = places_.find(&buffer);
  if (found != places_.end()) found->second.push_back(place);
}

const std::vector<ArgumentPlace>& ArgumentTable::PlacesOf(const DeviceBuffer& buffer) const {
  static const std::vector<ArgumentPlace> none;
  const auto found = places_.find(&buffer);
  return found != places_.end() ? found->second : none;
}

}  // namespace diapason
