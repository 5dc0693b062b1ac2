#include "compiler/tensor/serialize.h"
