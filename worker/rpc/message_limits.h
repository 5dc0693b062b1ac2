// The limits of what peers send: one table for every field of the messages of proto/diapason/v1 that travel between
// hosts (worker/rpc/message_limits.cc). Trackers, workers, services and their clients check each message on arrival,
// before anything else is done with it; what a whole request may need to be built is limited apart
// (worker/process/limits.h).
//
// A field that is not in the table has the limit of its kind: texts and bytes kDefaultBytes, lists and maps
// kDefaultElements, floating-point numbers finite and from 0 to kDefaultNumber, integers from 0.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace google::protobuf {
class Message;
}

namespace diapason {

inline constexpr size_t kDefaultBytes = 256;
inline constexpr size_t kDefaultElements = 256;
inline constexpr double kDefaultNumber = 1e18;

// InvalidArgument naming the first field that is past its limit, and the limit: "RegisterRequest.name has 300 bytes,
// more than the limit of 256". `except`: name of a field of `message` itself that is not looked into, for what is
// checked piece by piece.
absl::Status CheckMessage(const google::protobuf::Message& message, const std::string& except = "");

// Names of the fields in the table, "OpenRequest.priority", for tests.
std::vector<std::string> LimitedFields();

}  // namespace diapason
