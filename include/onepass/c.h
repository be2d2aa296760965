/* onepass for C, and for every language that can call C: formulas, arrays, options. C99; docs/c.md is the guide.
 *
 * Every function that can fail returns a status: ONEPASS_OK or the kind of error. onepass_last_error() returns its text. No exception
 * leaves this interface. Objects are handles: the caller of a function that creates a handle must release it once. Releasing null does
 * nothing. Several threads may use an array handle or a formula at the same time.
 *
 * The interface only grows: compiled programs stay valid while onepass_abi_version() returns their ONEPASS_ABI_VERSION. */
#ifndef ONEPASS_C_H
#define ONEPASS_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ONEPASS_C_API
#define ONEPASS_C_API __attribute__((visibility("default")))
#endif

#define ONEPASS_ABI_VERSION 1
/** Returns the ONEPASS_ABI_VERSION of the loaded library. */
ONEPASS_C_API int onepass_abi_version(void);
/** Returns the library version, such as "0.1.0". */
ONEPASS_C_API const char* onepass_version(void);

/** Kinds of error. Values above ONEPASS_ERROR are its subkinds. ONEPASS_INTERNAL_ERROR is a defect of onepass: please report its text. */
typedef enum onepass_status {
  ONEPASS_OK = 0,
  ONEPASS_ERROR = 1,
  ONEPASS_SHAPE_ERROR = 2,        /**< invalid or mismatched shapes, axes or extents */
  ONEPASS_DTYPE_ERROR = 3,        /**< a type that the operator does not support */
  ONEPASS_VALUE_ERROR = 4,        /**< a number or option outside its range; a null pointer where null is not allowed */
  ONEPASS_NAME_ERROR = 5,         /**< an operator, input or output that does not exist */
  ONEPASS_INDEX_ERROR = 6,        /**< an index out of range */
  ONEPASS_FORMULA_ERROR = 7,      /**< a formula that cannot be parsed or recorded; the text has line, column and caret */
  ONEPASS_IO_ERROR = 8,           /**< a file that cannot be read or written */
  ONEPASS_MEMORY_ERROR = 9,       /**< memory that cannot be allocated, or exceeds a limit */
  ONEPASS_CANCELLED_ERROR = 10,   /**< the stop function returned nonzero; the contents of destinations are unspecified */
  ONEPASS_UNSUPPORTED_ERROR = 11, /**< a language feature that this version does not support */
  ONEPASS_INTERNAL_ERROR = 12
} onepass_status;

/** Returns the text of this thread's last error, valid until its next error; "" before the first. */
ONEPASS_C_API const char* onepass_last_error(void);

/* ---- arrays */

#ifdef __cplusplus
#define ONEPASS_C_INT : int32_t /* callers may pass any number; a number that is not a dtype is an error */
#else
#define ONEPASS_C_INT
#endif
typedef enum onepass_dtype ONEPASS_C_INT {
  ONEPASS_BOOL = 0,
  ONEPASS_I8 = 1,
  ONEPASS_I16 = 2,
  ONEPASS_I32 = 3,
  ONEPASS_I64 = 4,
  ONEPASS_U8 = 5,
  ONEPASS_U16 = 6,
  ONEPASS_U32 = 7,
  ONEPASS_U64 = 8,
  ONEPASS_F16 = 9,
  ONEPASS_BF16 = 10,
  ONEPASS_F32 = 11,
  ONEPASS_F64 = 12
} onepass_dtype;
#undef ONEPASS_C_INT

/** A tensor in memory. */
typedef struct onepass_array onepass_array;

/** Creates an array with memory owned by onepass; its elements are uninitialized. For rank 0, `shape` may be null. */
ONEPASS_C_API onepass_status onepass_array_empty(onepass_dtype dtype, int rank, const int64_t* shape, onepass_array** out);

/** Wraps memory that the caller owns as an array, without a copy.
 *
 * data      element (0, ..., 0)
 * strides   in elements, of either sign; null: row-major order
 * release   called with `context` after the last use of the memory, on any thread; null: the memory must outlive the array
 * If the function fails, it does not call `release`. */
ONEPASS_C_API onepass_status onepass_array_wrap(void* data, onepass_dtype dtype, int rank, const int64_t* shape, const int64_t* strides,
                                                int read_only, void (*release)(void* context), void* context, onepass_array** out);

struct DLManagedTensorVersioned; /* from dlpack.h, version 1.0 or later */
/** Takes over a DLPack tensor; calls its deleter after the last array of its memory is released. On an error, the caller keeps the
 * tensor. */
ONEPASS_C_API onepass_status onepass_array_from_dlpack(struct DLManagedTensorVersioned* tensor, onepass_array** out);
/** Exports the elements to another library, which calls the tensor's deleter when it is done. */
ONEPASS_C_API onepass_status onepass_array_to_dlpack(const onepass_array* array, struct DLManagedTensorVersioned** out);

/** Adds a reference: onepass_array_release must be called once more. */
ONEPASS_C_API void onepass_array_retain(onepass_array* array);
ONEPASS_C_API void onepass_array_release(onepass_array* array);

ONEPASS_C_API onepass_dtype onepass_array_dtype(const onepass_array* array);
ONEPASS_C_API int onepass_array_rank(const onepass_array* array);
/** Returns `rank` lengths, or as many strides in elements; valid while the array exists. */
ONEPASS_C_API const int64_t* onepass_array_shape(const onepass_array* array);
ONEPASS_C_API const int64_t* onepass_array_strides(const onepass_array* array);
/** Returns the number of elements. */
ONEPASS_C_API int64_t onepass_array_size(const onepass_array* array);
/** Returns the address of element (0, ..., 0). Results of calls are in row-major order. */
ONEPASS_C_API const void* onepass_array_data(const onepass_array* array);
/** Returns the same address for writing; null for a read-only array. */
ONEPASS_C_API void* onepass_array_mutable_data(const onepass_array* array);
/** Copies the elements in row-major order to `out`. `bytes` must be exactly their size. */
ONEPASS_C_API onepass_status onepass_array_copy_to(const onepass_array* array, void* out, size_t bytes);

/* ---- options */

typedef struct onepass_options onepass_options;
ONEPASS_C_API onepass_status onepass_options_new(onepass_options** out);
ONEPASS_C_API void onepass_options_release(onepass_options* options);
/** Sets one option by its name in docs/api.md: "mode" ("adaptive", "generic", "specialized", "unfused", "reference"), "relax" ("contract",
 * "reassociate", "approximate", "all", "none"; several with commas), "threads", "vector_bytes", "depth", "after_calls", "memory_budget",
 * "array_bytes", "work", "compile_ms" (numbers), "compile" ("allowed", "never"), "check_nan" ("true", "false"), "device" ("cpu",
 * "cuda:0"). */
ONEPASS_C_API onepass_status onepass_options_set(onepass_options* options, const char* name, const char* value);
/** Sets the stop function. A call runs `stop(context)` on the calling thread, before it begins and then about every 20 ms. If the result is
 * nonzero, the call ends with ONEPASS_CANCELLED_ERROR. */
ONEPASS_C_API onepass_status onepass_options_set_stop(onepass_options* options, int (*stop)(void* context), void* context);

/* ---- formulas */

/** A compiled formula in the language of docs/language.md. */
typedef struct onepass_formula onepass_formula;

/** Parses `text`. Compilation begins with the first call. `options` may be null. */
ONEPASS_C_API onepass_status onepass_formula_new(const char* text, const onepass_options* options, onepass_formula** out);
ONEPASS_C_API void onepass_formula_release(onepass_formula* formula);

ONEPASS_C_API size_t onepass_formula_inputs(const onepass_formula* formula);
ONEPASS_C_API size_t onepass_formula_outputs(const onepass_formula* formula);
/** Returns the name of the input or output at a position; null past the end. Valid while the formula exists. */
ONEPASS_C_API const char* onepass_formula_input(const onepass_formula* formula, size_t index);
ONEPASS_C_API const char* onepass_formula_output(const onepass_formula* formula, size_t index);

/** An argument: an array, or a weakly typed number. */
typedef struct onepass_value {
  int32_t kind; /**< an onepass_value_kind */
  int32_t reserved;
  union {
    const onepass_array* array;
    double real;
    int64_t integer;
    uint64_t natural;
  } of;
} onepass_value;
typedef enum onepass_value_kind {
  ONEPASS_VALUE_ARRAY = 1,
  ONEPASS_VALUE_FLOAT = 2,
  ONEPASS_VALUE_INT = 3,
  ONEPASS_VALUE_UINT = 4,
  ONEPASS_VALUE_BOOL = 5
} onepass_value_kind;

static inline onepass_value onepass_of_array(const onepass_array* array) {
  onepass_value v;
  v.kind = ONEPASS_VALUE_ARRAY;
  v.reserved = 0;
  v.of.array = array;
  return v;
}
static inline onepass_value onepass_of_float(double value) {
  onepass_value v;
  v.kind = ONEPASS_VALUE_FLOAT;
  v.reserved = 0;
  v.of.real = value;
  return v;
}
static inline onepass_value onepass_of_int(int64_t value) {
  onepass_value v;
  v.kind = ONEPASS_VALUE_INT;
  v.reserved = 0;
  v.of.integer = value;
  return v;
}

/** Calls the formula. `arguments` are all inputs in order; `results` has one entry for each output. The caller must release each result. On
 * an error no result is set. */
ONEPASS_C_API onepass_status onepass_formula_call(const onepass_formula* formula, const onepass_value* arguments, size_t argument_count,
                                                  onepass_array** results, size_t result_count);
/** Calls the formula with existing destinations, each of its result's exact shape and type. They may overlap arguments but not each
 * other. */
ONEPASS_C_API onepass_status onepass_formula_into(const onepass_formula* formula, const onepass_value* arguments, size_t argument_count,
                                                  onepass_array* const* targets, size_t target_count);

/** Compiles the kernels for calls of this signature, such as "f32[64,256] f32[256]", so that the first call does not compile. */
ONEPASS_C_API onepass_status onepass_formula_warm_up(const onepass_formula* formula, const char* signature);

/** Counters of a formula; docs/runtime.md explains the fields. Set `bytes` to sizeof(onepass_stats) before the call. */
typedef struct onepass_stats {
  size_t bytes;
  int64_t calls, recordings, kernels, launches, compiles, optimized, specialized, fallbacks;
  int64_t bytes_read, bytes_written, bytes_allocated;
} onepass_stats;
ONEPASS_C_API onepass_status onepass_formula_stats(const onepass_formula* formula, onepass_stats* out);

/** Returns the optimized graph of the last call, with the reason for each kernel boundary. Free the text with onepass_free_text. */
ONEPASS_C_API onepass_status onepass_formula_last_graph(const onepass_formula* formula, char** text);
ONEPASS_C_API onepass_status onepass_formula_explain(const onepass_formula* formula, char** text);
ONEPASS_C_API void onepass_free_text(char* text);

/* ---- the process */

/** Sets the maximum number of threads of a call; 0 means the number of cores available to the process. */
ONEPASS_C_API onepass_status onepass_set_threads(int threads);
/** Releases cached memory to the system until at most `keep` bytes are cached. */
ONEPASS_C_API void onepass_trim_memory(size_t keep);

#ifdef __cplusplus
}
#endif

#endif
