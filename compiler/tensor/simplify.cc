#include "compiler/tensor/simplify.h"
