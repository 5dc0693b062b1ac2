// libdiapason as a shared library consists of the archive of this folder; this is the source that CMake asks for.
#include "diapason/model.h"
