/* Runs a package from C: all inputs are filled with the bytes of a file each, or with zeros, and the outputs are shown.
 *
 *   cc run_package.c $(pkg-config --cflags --libs diapason-runtime) -o run_package
 *   ./run_package PACKAGE [FILE...]        FILE: raw numbers in row-major order, by input
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "diapason/runtime.h"

static void check(diapason_status status) {
  if (status == DIAPASON_OK) return;
  fprintf(stderr, "run_package: %s\n", diapason_last_error());
  exit(1);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void show(const diapason_port* port, const diapason_tensor* tensor) {
  printf("output %s:", port->name);
  for (int32_t d = 0; d < tensor->rank; ++d) printf("%s%lld", d == 0 ? " " : "x", (long long)tensor->shape[d]);
  if (tensor->dtype == DIAPASON_FLOAT32) {
    const float* values = tensor->data;
    for (size_t i = 0; i < 4 && i < tensor->bytes / sizeof *values; ++i) printf(" %g", values[i]);
  }
  printf("\n");
}

/* The input's own memory is filled in place: no copy is made when the package runs. */
static void fill(const diapason_tensor* tensor, const char* path) {
  memset(tensor->data, 0, tensor->bytes);
  if (path == NULL) return;
  FILE* file = fopen(path, "rb");
  if (file == NULL || fread(tensor->data, 1, tensor->bytes, file) != tensor->bytes) {
    fprintf(stderr, "run_package: %s cannot be read, or has less than %zu bytes\n", path, tensor->bytes);
    exit(1);
  }
  fclose(file);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: run_package PACKAGE [FILE...]\n");
    return 2;
  }
  diapason_package* package = NULL;
  diapason_context* context = NULL;
  const double start = seconds();
  check(diapason_package_load(argv[1], NULL, &package));
  check(diapason_context_create(package, NULL, &context));
  printf("loaded %s for %s in %.1f ms\n", diapason_package_network(package), diapason_package_target(package),
         1e3 * (seconds() - start));
  if (diapason_package_device_type(package) != DIAPASON_CPU) {
    fprintf(stderr, "run_package: this example fills memory of the host; give a package for cpu\n");
    return 1;
  }

  diapason_port port = {.struct_size = sizeof port};
  diapason_tensor tensor = {.struct_size = sizeof tensor};
  for (int32_t i = 0; i < diapason_package_input_count(package); ++i) {
    check(diapason_context_input(context, i, &tensor));
    fill(&tensor, i + 2 < argc ? argv[i + 2] : NULL);
  }
  check(diapason_run(context, NULL, 0, NULL, 0));
  for (int32_t i = 0; i < diapason_package_output_count(package); ++i) {
    check(diapason_package_output(package, i, &port));
    check(diapason_context_output(context, i, &tensor));
    show(&port, &tensor);
  }
  diapason_context_free(context);
  diapason_package_free(package);
  return 0;
}
