/* onepass for C, and for every language that can call C: formulas, arrays, options. C99; docs/c.md is the guide.
 *
 * Every function that can fail returns a status, ONEPASS_OK or the kind of error; onepass_last_error() is its text. No exception leaves this
 * interface. Objects are handles: whoever gets one from a function that makes it releases it once; null may be released. An array handle may be
 * used from several threads at once, as may a formula. The interface only grows: what a program was compiled against keeps its meaning as long as
 * onepass_abi_version() is ONEPASS_ABI_VERSION. */
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
/** ONEPASS_ABI_VERSION of the library that is loaded. */
ONEPASS_C_API int onepass_abi_version(void);
/** The library's version, "0.1.0". */
ONEPASS_C_API const char* onepass_version(void);

/** The kinds of error. Those above ONEPASS_ERROR are kinds of it; ONEPASS_INTERNAL_ERROR is a defect of onepass: please report its text. */
typedef enum onepass_status {
  ONEPASS_OK = 0,
  ONEPASS_ERROR = 1,
  ONEPASS_SHAPE_ERROR = 2,        /**< shapes, axes or extents that do not fit */
  ONEPASS_DTYPE_ERROR = 3,        /**< a type that the operator does not take */
  ONEPASS_VALUE_ERROR = 4,        /**< a number or option outside its range; a null pointer where none may be */
  ONEPASS_NAME_ERROR = 5,         /**< an operator, input or output that does not exist */
  ONEPASS_INDEX_ERROR = 6,        /**< an index out of range */
  ONEPASS_FORMULA_ERROR = 7,      /**< a formula that does not parse or record; the text has line, column and caret */
  ONEPASS_IO_ERROR = 8,           /**< a file that cannot be read or written */
  ONEPASS_MEMORY_ERROR = 9,       /**< memory that cannot be allocated, or above a limit */
  ONEPASS_CANCELLED_ERROR = 10,   /**< the stop function returned nonzero; the contents of destinations are unspecified */
  ONEPASS_UNSUPPORTED_ERROR = 11, /**< a part of the language that this version does not have */
  ONEPASS_INTERNAL_ERROR = 12
} onepass_status;

/** The text of this thread's last error, valid until its next one; "" before the first. */
ONEPASS_C_API const char* onepass_last_error(void);

/* ---- arrays */

#ifdef __cplusplus
#define ONEPASS_C_INT : int32_t /* any number may be passed: one that is no dtype is an error */
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

/** Makes an array with memory of onepass's own; its elements are not set. Rank 0 has a null shape. */
ONEPASS_C_API onepass_status onepass_array_empty(onepass_dtype dtype, int rank, const int64_t* shape, onepass_array** out);

/** Makes an array of memory that the caller has. Nothing is copied.
 *
 * data      element (0, ..., 0)
 * strides   in elements, of either sign; null: row-major order
 * release   called with `context` once nothing uses the memory any more, on any thread; null: the memory outlives the array
 * On an error `release` is not called. */
ONEPASS_C_API onepass_status onepass_array_wrap(void* data, onepass_dtype dtype, int rank, const int64_t* shape, const int64_t* strides,
                                                int read_only, void (*release)(void* context), void* context, onepass_array** out);

struct DLManagedTensorVersioned; /* of dlpack.h, version 1.0 or later */
/** Takes over a DLPack tensor; its deleter is called when the last array of its memory is released. On an error it stays the caller's. */
ONEPASS_C_API onepass_status onepass_array_from_dlpack(struct DLManagedTensorVersioned* tensor, onepass_array** out);
/** Gives the elements to another library, which calls the tensor's deleter when it is done. */
ONEPASS_C_API onepass_status onepass_array_to_dlpack(const onepass_array* array, struct DLManagedTensorVersioned** out);

/** Adds an owner: one more onepass_array_release is due. */
ONEPASS_C_API void onepass_array_retain(onepass_array* array);
ONEPASS_C_API void onepass_array_release(onepass_array* array);

ONEPASS_C_API onepass_dtype onepass_array_dtype(const onepass_array* array);
ONEPASS_C_API int onepass_array_rank(const onepass_array* array);
/** `rank` lengths, and as many strides in elements; valid as long as the array. */
ONEPASS_C_API const int64_t* onepass_array_shape(const onepass_array* array);
ONEPASS_C_API const int64_t* onepass_array_strides(const onepass_array* array);
/** The number of elements. */
ONEPASS_C_API int64_t onepass_array_size(const onepass_array* array);
/** Element (0, ..., 0). Results of calls are in row-major order. */
ONEPASS_C_API const void* onepass_array_data(const onepass_array* array);
/** The same, to be written; null for a read-only array. */
ONEPASS_C_API void* onepass_array_mutable_data(const onepass_array* array);
/** Copies the elements in row-major order to `out`, which has `bytes` bytes: exactly what they need. */
ONEPASS_C_API onepass_status onepass_array_copy_to(const onepass_array* array, void* out, size_t bytes);

/* ---- options */

typedef struct onepass_options onepass_options;
ONEPASS_C_API onepass_status onepass_options_new(onepass_options** out);
ONEPASS_C_API void onepass_options_release(onepass_options* options);
/** Sets one option by its name in docs/api.md: "mode" ("adaptive", "generic", "specialized", "unfused", "reference"), "relax" ("contract",
 * "reassociate", "approximate", "all", "none"; several with commas), "threads", "vector_bytes", "depth", "after_calls", "memory_budget",
 * "array_bytes", "work", "compile_ms" (numbers), "compile" ("allowed", "never"), "check_nan" ("true", "false"), "device" ("cpu", "cuda:0"). */
ONEPASS_C_API onepass_status onepass_options_set(onepass_options* options, const char* name, const char* value);
/** A call asks `stop(context)` before it begins and about every 20 ms, on the thread that called, and ends with ONEPASS_CANCELLED_ERROR where that is
 * not 0. */
ONEPASS_C_API onepass_status onepass_options_set_stop(onepass_options* options, int (*stop)(void* context), void* context);

/* ---- formulas */

/** A compiled formula of the language in docs/language.md. */
typedef struct onepass_formula onepass_formula;

/** Parses `text`. Nothing is compiled before the first call. `options` may be null. */
ONEPASS_C_API onepass_status onepass_formula_new(const char* text, const onepass_options* options, onepass_formula** out);
ONEPASS_C_API void onepass_formula_release(onepass_formula* formula);

ONEPASS_C_API size_t onepass_formula_inputs(const onepass_formula* formula);
ONEPASS_C_API size_t onepass_formula_outputs(const onepass_formula* formula);
/** Names, by position; null where there are fewer. Valid as long as the formula. */
ONEPASS_C_API const char* onepass_formula_input(const onepass_formula* formula, size_t index);
ONEPASS_C_API const char* onepass_formula_output(const onepass_formula* formula, size_t index);

/** An argument: an array, or a number without a strong type. */
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

/** Calls the formula. `arguments` are as many as inputs, in their order; `results` has room for as many as outputs, each of which the caller
 * releases. On an error no result is set. */
ONEPASS_C_API onepass_status onepass_formula_call(const onepass_formula* formula, const onepass_value* arguments, size_t argument_count,
                                                  onepass_array** results, size_t result_count);
/** Calls the formula into arrays that exist, each of its result's exact shape and type. They may overlap arguments, not each other. */
ONEPASS_C_API onepass_status onepass_formula_into(const onepass_formula* formula, const onepass_value* arguments, size_t argument_count,
                                                  onepass_array* const* targets, size_t target_count);

/** Compiles what calls of this signature need, "f32[64,256] f32[256]", so that the first one costs what every one costs. */
ONEPASS_C_API onepass_status onepass_formula_warm_up(const onepass_formula* formula, const char* signature);

/** What a formula did so far; docs/runtime.md explains the fields. Set `bytes` to sizeof(onepass_stats) before the call. */
typedef struct onepass_stats {
  size_t bytes;
  int64_t calls, recordings, kernels, launches, compiles, optimized, specialized, fallbacks;
  int64_t bytes_read, bytes_written, bytes_allocated;
} onepass_stats;
ONEPASS_C_API onepass_status onepass_formula_stats(const onepass_formula* formula, onepass_stats* out);

/** The optimized graph of the last call; each of its kernels with the reason why it ends there. The caller gives the text to onepass_free_text. */
ONEPASS_C_API onepass_status onepass_formula_last_graph(const onepass_formula* formula, char** text);
ONEPASS_C_API onepass_status onepass_formula_explain(const onepass_formula* formula, char** text);
ONEPASS_C_API void onepass_free_text(char* text);

/* ---- the process */

/** How many threads calls may use; 0: the cores that the process may use. */
ONEPASS_C_API onepass_status onepass_set_threads(int threads);
/** Gives cached memory back to the system until at most `keep` bytes are cached. */
ONEPASS_C_API void onepass_trim_memory(size_t keep);

#ifdef __cplusplus
}
#endif

#endif
