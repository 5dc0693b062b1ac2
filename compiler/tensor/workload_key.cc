#include "compiler/tensor/compute_dag.h"
