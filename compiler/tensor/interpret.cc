#include "compiler/tensor/interpret.h"
