#include "compiler/tensor/target.h"
