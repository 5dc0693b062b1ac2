// Checks of networks, for the public headers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "diapason/compiler.h"
#include "service/measuring_judge.h"
#include "service/network_check.h"

namespace diapason::api {

NetworkCheck CheckOf(const NetworkCheckReport& report, const SymbolSizes& sizes);
std::vector<NetworkCheck> ChecksOf(const std::vector<PlanCheck>& checks);
std::map<std::string, Padding> PaddingOf(const std::map<std::string, SymbolPadding>& padding);

}  // namespace diapason::api
