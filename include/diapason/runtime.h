/* libdiapason_runtime: runs packages that `diapason build` made, without the tuner.
 *
 *   diapason_package* package = NULL;
 *   diapason_context* context = NULL;
 *   if (diapason_package_load("resnet-18.package", NULL, &package) != DIAPASON_OK ||
 *       diapason_context_create(package, NULL, &context) != DIAPASON_OK) {
 *     fprintf(stderr, "%s\n", diapason_last_error());
 *   }
 *   diapason_buffer input = {image, sizeof image}, output = {scores, sizeof scores};
 *   diapason_run(context, &input, 1, &output, 1);
 *
 * A package is loaded once and may be used by any number of threads. Each thread that runs it does so in a context of
 * its own: a context has memory for inputs, outputs and what lies between, and shares weights and kernels with the
 * others.
 *
 * Loading executes the native code of the package with the rights of the process: load only packages that you or people
 * whom you trust have built, from folders that others cannot write to.
 *
 * Functions that can fail return a status; diapason_last_error says in a sentence what is wrong and how to fix it. No
 * function throws or ends the process for what a caller or a package does wrong, save that kernels are native code.
 * Pointers that are given must be valid; a null pointer is an error where nothing else is said.
 *
 * The ABI is stable within one major version of the library (DIAPASON_RUNTIME_ABI, the SONAME's number): functions and
 * values are only added, and structures begin with their size, so that they can grow at the end. Set `struct_size` to
 * sizeof the structure.
 */
#ifndef DIAPASON_RUNTIME_H_
#define DIAPASON_RUNTIME_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DIAPASON_API __attribute__((visibility("default")))
#else
#define DIAPASON_API
#endif

#define DIAPASON_RUNTIME_ABI 1

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(modernize-use-using, readability-identifier-naming): C has no `using`, and names in the style of C */

/* ---- Status ---- */

typedef int32_t diapason_status;
enum {
  DIAPASON_OK = 0,
  DIAPASON_INVALID_ARGUMENT = 1, /* what was given does not fit the package, or is null */
  DIAPASON_NOT_FOUND = 2,        /* there is no such package or file */
  /* built for another device or by another version; a context used by two threads at once */
  DIAPASON_FAILED_PRECONDITION = 3,
  DIAPASON_UNAVAILABLE = 4, /* no GPU, no driver, no library that the package calls, or a file that cannot be read */
  DIAPASON_RESOURCE_EXHAUSTED = 5, /* memory is out, on the host or the GPU */
  DIAPASON_DATA_LOSS = 6,          /* the package is damaged */
  DIAPASON_ABORTED = 7,            /* a kernel failed on the GPU: what was loaded there is of no more use */
  DIAPASON_INTERNAL = 8            /* anything else; please report it */
};

/* What the last call of this thread that failed says of it; "" before there was one. Valid until the thread's next call
 * that fails. */
DIAPASON_API const char* diapason_last_error(void);

/* The version of the library: "0.1.0". */
DIAPASON_API const char* diapason_runtime_version(void);

/* ---- Packages ---- */

typedef struct diapason_package diapason_package;

typedef struct diapason_load_options {
  size_t struct_size;
  int32_t
      device; /* cuda: number of the GPU, or -1: the one that the package names, 0 unless it was built for another */
} diapason_load_options;

/* Loads the package in a folder, or in a .dpk file, for the device that it was built for, weights and kernels included.
 * `options` may be null. Sets *package, also where it fails: to null. A file is mapped into memory, and must not be
 * changed while the package is in use; it may be replaced or removed. */
DIAPASON_API diapason_status diapason_package_load(const char* path, const diapason_load_options* options,
                                                   diapason_package** package);
/* The same of the bytes of such a file. They are read also later, and must stay until the package, its contexts and
 * their DLPack tensors have been freed. Symbol version
 * DIAPASON_RUNTIME_1.1. */
DIAPASON_API diapason_status diapason_package_load_memory(const void* bytes, size_t size,
                                                          const diapason_load_options* options,
                                                          diapason_package** package);
/* Its contexts, and DLPack tensors that came out of them, keep what they need. Null is allowed. */
DIAPASON_API void diapason_package_free(diapason_package* package);

/* Values of `dtype`. */
enum {
  DIAPASON_FLOAT32 = 1,
  DIAPASON_FLOAT16 = 2,
  DIAPASON_FLOAT64 = 3,
  DIAPASON_INT32 = 4,
  DIAPASON_INT64 = 5,
  DIAPASON_BOOL = 6,
  DIAPASON_INT8 = 7,
  DIAPASON_UINT8 = 8,
  DIAPASON_BFLOAT16 = 9
};

/* Values of diapason_package_device_type. */
enum { DIAPASON_CPU = 1, DIAPASON_OPENCL = 2, DIAPASON_CUDA = 3 };

/* An input or output of a package. Its pointers are the package's. */
typedef struct diapason_port {
  size_t struct_size;
  const char* name;
  int32_t dtype;
  int32_t rank;
  const int64_t* shape; /* `rank` extents; -1 where it depends on the sizes of symbolic dimensions */
  const char* const*
      symbols; /* `rank` names: the symbolic dimension that an extent of -1 is proportional to; null for others */
} diapason_port;

/* All of these may be called from any thread. An index that is not between 0 and the count gives null, -1 or
 * DIAPASON_INVALID_ARGUMENT. */
DIAPASON_API const char* diapason_package_network(const diapason_package* package); /* "resnet-18" */
DIAPASON_API const char* diapason_package_target(const diapason_package* package);  /* "cpu -num-cores=2" */
DIAPASON_API int32_t diapason_package_device_type(const diapason_package* package);
DIAPASON_API int32_t diapason_package_input_count(const diapason_package* package);
DIAPASON_API int32_t diapason_package_output_count(const diapason_package* package);
DIAPASON_API diapason_status diapason_package_input(const diapason_package* package, int32_t index,
                                                    diapason_port* port);
DIAPASON_API diapason_status diapason_package_output(const diapason_package* package, int32_t index,
                                                     diapason_port* port);
/* The index of an input or output; -1 if there is none of that name. */
DIAPASON_API int32_t diapason_package_find_input(const diapason_package* package, const char* name);
DIAPASON_API int32_t diapason_package_find_output(const diapason_package* package, const char* name);
/* Symbolic dimensions ("batch", "seq"); none where all shapes are fixed. A package has one plan for each combination of
 * sizes that it was built for. */
DIAPASON_API int32_t diapason_package_symbol_count(const diapason_package* package);
DIAPASON_API const char* diapason_package_symbol(const diapason_package* package, int32_t symbol);
DIAPASON_API int32_t diapason_package_plan_count(const diapason_package* package);
DIAPASON_API int64_t diapason_package_plan_size(const diapason_package* package, int32_t plan, int32_t symbol);

/* ---- Contexts ---- */

typedef struct diapason_context diapason_context;

typedef struct diapason_context_options {
  size_t struct_size;
  int32_t threads; /* cpu: threads of a run, the calling one among them; 0: as many as the package was built for */
} diapason_context_options;

/* `options` may be null. Sets *context, also where it fails: to null. Contexts of one package run at the same time: on
 * cpu each with threads of its own (give each its share of the cores), on cuda each on a stream of its own. */
DIAPASON_API diapason_status diapason_context_create(diapason_package* package, const diapason_context_options* options,
                                                     diapason_context** context);
/* Null is allowed. REQUIRES: what it has put into streams has finished. */
DIAPASON_API void diapason_context_free(diapason_context* context);

/* A context may be used by one thread at a time, any. */

/* The size of a symbolic dimension for what follows; the sizes of the first plan until then. Sizes between those of the
 * plans are padded where the build could show that this changes no result (host memory only). They are checked by the
 * calls that use them. */
DIAPASON_API diapason_status diapason_context_set_size(diapason_context* context, const char* symbol, int64_t size);

/* A tensor of a context: dense, in row-major order. */
typedef struct diapason_tensor {
  size_t struct_size;
  void* data; /* the context's own memory for it, of the host (cpu) or the GPU (cuda); null where it has none that could
                 be used as it is: on opencl, and while sizes are padded */
  size_t bytes;
  int32_t dtype;
  int32_t rank;
  const int64_t* shape; /* with the sizes that are set; valid until they change */
} diapason_tensor;

/* What is written to an input's memory stays there for all runs; an output's memory holds its values after each. But of
 * a tensor for which diapason_run_on_stream or diapason_run_dlpack was given memory of the GPU, what the context's own
 * holds afterwards is undefined, until it is written again. Data of 0 bytes may be null. */
DIAPASON_API diapason_status diapason_context_input(diapason_context* context, int32_t index, diapason_tensor* tensor);
DIAPASON_API diapason_status diapason_context_output(diapason_context* context, int32_t index, diapason_tensor* tensor);

/* ---- Runs ---- */

/* Memory of the caller, or, where `data` is null, that of the context (diapason_context_input): nothing is copied then.
 * `bytes` is the tensor's size; of no meaning where `data` is null. */
typedef struct diapason_buffer {
  void* data;
  size_t bytes;
} diapason_buffer;

/* Runs the network and waits for it. All inputs and outputs in order, in memory of the host; or none of them (a count
 * of 0), when all of them are the context's own. DIAPASON_INVALID_ARGUMENT names an input with an index (of a token,
 * say) of which there is no element. In memory of the GPU nothing looks for those: they choose the first or last
 * element. */
DIAPASON_API diapason_status diapason_run(diapason_context* context, const diapason_buffer* inputs, size_t input_count,
                                          const diapason_buffer* outputs, size_t output_count);

/* Puts a run into a CUDA stream (a CUstream or cudaStream_t of the GPU's primary context, which is the one that the
 * CUDA runtime and PyTorch use; null is CUDA's default stream) and returns without waiting. Buffers are memory of the
 * GPU, and must stay until the run has finished. A run is one graph launch, whose kernels read inputs and write outputs
 * where they are. Results are as if inputs were copied before it and outputs behind it, and so it is done where kernels
 * cannot use a buffer: it does not start at a multiple of 64 bytes; an output overlaps another buffer; a buffer lies in
 * the context's own memory of another tensor; a library (cuBLAS, cuDNN) would use it; an output is an input, a constant
 * or another output as well; the driver is too old. Addresses that are those of the run before cost nothing; others
 * cost less than a microsecond of the host for each kernel that uses them. Runs of one context must be in one stream,
 * or wait for each other. The GPU's primary context is current in the calling thread afterwards. On a cpu package
 * `stream` must be null, buffers are memory of the host, and it is diapason_run. Not for opencl. */
DIAPASON_API diapason_status diapason_run_on_stream(diapason_context* context, void* stream,
                                                    const diapason_buffer* inputs, size_t input_count,
                                                    const diapason_buffer* outputs, size_t output_count);

/* The same with DLPack tensors (version 1.x; <dlpack/dlpack.h> declares them). Shapes of the inputs give the sizes of
 * symbolic dimensions, which stay set. Inputs are read, and stay the caller's. An output that is null on entry is made:
 * its deleter is to be called when it is no longer needed. One that is not null is written; it stays the caller's.
 * Nothing is made where the call fails. Tensors are dense, in row-major order, and all on the package's device; or all
 * on the host, when the call waits for the run as diapason_run does and `stream` must be null. */
struct DLManagedTensorVersioned;
DIAPASON_API diapason_status diapason_run_dlpack(diapason_context* context, void* stream,
                                                 struct DLManagedTensorVersioned* const* inputs, size_t input_count,
                                                 struct DLManagedTensorVersioned** outputs, size_t output_count);

/* NOLINTEND(modernize-use-using, readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* DIAPASON_RUNTIME_H_ */
