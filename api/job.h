// Jobs of a service, for the public headers.
#pragma once

#include "diapason/service.h"

namespace diapason {

namespace v1 {
class Job;
}

namespace api {

Job JobOf(const v1::Job& job);

}  // namespace api
}  // namespace diapason
