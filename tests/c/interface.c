/* Uses every function of onepass/c.h from C99. tests/test_c.sh compiles it with -pedantic -Werror and runs it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onepass/c.h"

/* The struct of DLPack 1.0, as in its header. */
typedef struct DLManagedTensorVersioned {
  struct { uint32_t major, minor; } version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned*);
  uint64_t flags;
  struct {
    void* data;
    struct { int32_t type, id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
  } tensor;
} DLManagedTensorVersioned;

static int checks, released, asked;

static void check(int ok, const char* text, int line) {
  ++checks;
  if (ok) return;
  fprintf(stderr, "interface.c:%d: %s; the last error is: %s\n", line, text, onepass_last_error());
  exit(1);
}
#define CHECK(condition) check((condition) != 0, #condition, __LINE__)
#define FAILS(call, status, part) (CHECK((call) == (status)), CHECK(strstr(onepass_last_error(), part) != NULL))

static void on_release(void* context) { *(int*)context += 1; }
static int stop(void* context) { return ++*(int*)context > 0; }

static void arrays(void) {
  const int64_t shape[] = {2, 3}, transposed[] = {1, 2}, huge[] = {INT64_MAX, 3};
  float data[] = {0, 1, 2, 3, 4, 5}, out[6];
  onepass_array *a = NULL, *t = NULL, *same = NULL;
  struct DLManagedTensorVersioned* tensor = NULL;

  CHECK(onepass_array_wrap(data, ONEPASS_F32, 2, shape, NULL, 0, on_release, &released, &a) == ONEPASS_OK);
  CHECK(onepass_array_dtype(a) == ONEPASS_F32 && onepass_array_rank(a) == 2 && onepass_array_size(a) == 6);
  CHECK(onepass_array_shape(a)[1] == 3 && onepass_array_strides(a)[0] == 3);
  CHECK(onepass_array_data(a) == data && onepass_array_mutable_data(a) == data);
  CHECK(onepass_array_wrap(data, ONEPASS_F32, 2, shape, transposed, 1, NULL, NULL, &t) == ONEPASS_OK);
  CHECK(onepass_array_mutable_data(t) == NULL);
  CHECK(onepass_array_copy_to(t, out, sizeof out) == ONEPASS_OK && out[1] == 2 && out[3] == 1);
  FAILS(onepass_array_copy_to(t, out, 4), ONEPASS_VALUE_ERROR, "the buffer has 4 bytes");

  CHECK(onepass_array_to_dlpack(a, &tensor) == ONEPASS_OK && tensor->version.major == 1 && tensor->tensor.data == data);
  CHECK(onepass_array_from_dlpack(tensor, &same) == ONEPASS_OK && onepass_array_data(same) == data);
  onepass_array_retain(a);
  onepass_array_release(a);
  onepass_array_release(a);
  CHECK(released == 0); /* the other array shares the memory */
  onepass_array_release(same);
  CHECK(released == 1);
  onepass_array_release(t);
  onepass_array_release(NULL);

  FAILS(onepass_array_wrap(data, ONEPASS_F32, 2, huge, NULL, 0, on_release, &released, &a), ONEPASS_SHAPE_ERROR, "more");
  FAILS(onepass_array_wrap(data, (onepass_dtype)77, 2, shape, NULL, 0, on_release, &released, &a), ONEPASS_VALUE_ERROR, "77 is not a valid dtype");
  FAILS(onepass_array_wrap(data, ONEPASS_F32, 99, shape, NULL, 0, on_release, &released, &a), ONEPASS_SHAPE_ERROR, "rank 99");
  FAILS(onepass_array_empty(ONEPASS_F32, 2, NULL, &a), ONEPASS_VALUE_ERROR, "null");
  FAILS(onepass_array_empty(ONEPASS_F32, 0, NULL, NULL), ONEPASS_VALUE_ERROR, "out is null");
  CHECK(released == 1);
}

static void formulas(void) {
  const int64_t length[] = {4}, other[] = {5};
  const double s[] = {1, 2, 3, 4};
  onepass_formula* f = NULL;
  onepass_array *in = NULL, *results[2] = {NULL, NULL}, *target = NULL, *odd = NULL;
  onepass_value arguments[3];
  onepass_stats stats;
  char* text = NULL;
  int i;

  CHECK(onepass_formula_new("value = s*exp(-r*t); delta = grad(sum(s*s*t), [s])", NULL, &f) == ONEPASS_OK);
  CHECK(onepass_formula_inputs(f) == 3 && onepass_formula_outputs(f) == 2);
  CHECK(strcmp(onepass_formula_input(f, 1), "r") == 0 && strcmp(onepass_formula_output(f, 1), "delta") == 0);
  CHECK(onepass_formula_input(f, 3) == NULL && onepass_formula_output(f, 2) == NULL);
  CHECK(onepass_array_wrap((void*)(uintptr_t)s, ONEPASS_F64, 1, length, NULL, 1, NULL, NULL, &in) == ONEPASS_OK);
  arguments[0] = onepass_of_array(in);
  arguments[1] = onepass_of_float(0.5);
  arguments[2] = onepass_of_int(2);
  CHECK(onepass_formula_warm_up(f, "f64[4] 0.5 2") == ONEPASS_OK);
  CHECK(onepass_formula_call(f, arguments, 3, results, 2) == ONEPASS_OK);
  for (i = 0; i < 4; ++i) {
    CHECK(fabs(((const double*)onepass_array_data(results[0]))[i] - s[i] * exp(-1)) < 1e-12);
    CHECK(((const double*)onepass_array_data(results[1]))[i] == 4 * s[i]);
  }

  CHECK(onepass_array_empty(ONEPASS_F64, 1, length, &target) == ONEPASS_OK && onepass_array_empty(ONEPASS_F64, 1, other, &odd) == ONEPASS_OK);
  {
    onepass_array* const into[] = {target, results[1]};
    onepass_array* const wrong[] = {target, odd};
    arguments[2] = onepass_of_int(3);
    CHECK(onepass_formula_into(f, arguments, 3, into, 2) == ONEPASS_OK);
    CHECK(((const double*)onepass_array_data(results[1]))[1] == 12);
    FAILS(onepass_formula_into(f, arguments, 3, wrong, 2), ONEPASS_SHAPE_ERROR, "f64[4]");
    FAILS(onepass_formula_into(f, arguments, 3, into, 1), ONEPASS_VALUE_ERROR, "1");
  }

  stats.bytes = sizeof stats;
  CHECK(onepass_formula_stats(f, &stats) == ONEPASS_OK && stats.calls == 2 && stats.fallbacks == 0 && stats.bytes_written > 0);
  stats.bytes = offsetof(onepass_stats, recordings); /* struct of an older program */
  stats.recordings = -7;
  CHECK(onepass_formula_stats(f, &stats) == ONEPASS_OK && stats.calls == 2 && stats.recordings == -7);
  stats.bytes = 0;
  FAILS(onepass_formula_stats(f, &stats), ONEPASS_VALUE_ERROR, "sizeof(onepass_stats)");
  CHECK(onepass_formula_last_graph(f, &text) == ONEPASS_OK && strstr(text, "mul") != NULL);
  onepass_free_text(text);
  CHECK(onepass_formula_explain(f, &text) == ONEPASS_OK && text[0] != '\0');
  onepass_free_text(text);
  onepass_free_text(NULL);

  FAILS(onepass_formula_call(f, arguments, 2, results, 2), ONEPASS_VALUE_ERROR, "takes 3 arguments");
  FAILS(onepass_formula_call(f, arguments, 3, results, 1), ONEPASS_VALUE_ERROR, "space for 1 results");
  FAILS(onepass_formula_call(f, NULL, 3, results, 2), ONEPASS_VALUE_ERROR, "null");
  FAILS(onepass_formula_call(NULL, arguments, 3, results, 2), ONEPASS_VALUE_ERROR, "the formula is null");
  arguments[1].kind = 42;
  FAILS(onepass_formula_call(f, arguments, 3, results, 2), ONEPASS_VALUE_ERROR, "kind 42");
  onepass_array_release(results[0]);
  onepass_array_release(results[1]);
  onepass_array_release(target);
  onepass_array_release(odd);
  onepass_array_release(in);
  onepass_formula_release(f);
  onepass_formula_release(NULL);

  FAILS(onepass_formula_new("x +* 2", NULL, &f), ONEPASS_FORMULA_ERROR, "formula:1:");
  FAILS(onepass_formula_new(NULL, NULL, &f), ONEPASS_VALUE_ERROR, "the text is null");
}

static void options(void) {
  const int64_t length[] = {3};
  float data[] = {1, 2, 3};
  onepass_options* o = NULL;
  onepass_formula* f = NULL;
  onepass_array *in = NULL, *result = NULL;
  onepass_value argument;

  CHECK(onepass_options_new(&o) == ONEPASS_OK);
  CHECK(onepass_options_set(o, "mode", "reference") == ONEPASS_OK && onepass_options_set(o, "relax", "contract,approximate") == ONEPASS_OK);
  CHECK(onepass_options_set(o, "threads", "1") == ONEPASS_OK && onepass_options_set(o, "check_nan", "true") == ONEPASS_OK);
  FAILS(onepass_options_set(o, "mode", "fast"), ONEPASS_VALUE_ERROR, "not one of adaptive, generic");
  FAILS(onepass_options_set(o, "threads", "many"), ONEPASS_VALUE_ERROR, "not a number");
  FAILS(onepass_options_set(o, "speed", "1"), ONEPASS_NAME_ERROR, "no option `speed`");
  CHECK(onepass_formula_new("log(-x)", o, &f) == ONEPASS_OK);
  CHECK(onepass_array_wrap(data, ONEPASS_F32, 1, length, NULL, 0, NULL, NULL, &in) == ONEPASS_OK);
  argument = onepass_of_array(in);
  FAILS(onepass_formula_call(f, &argument, 1, &result, 1), ONEPASS_ERROR, "check_nan");
  CHECK(result == NULL);
  onepass_formula_release(f);

  CHECK(onepass_options_set_stop(o, stop, &asked) == ONEPASS_OK && onepass_formula_new("x + 1", o, &f) == ONEPASS_OK);
  FAILS(onepass_formula_call(f, &argument, 1, &result, 1), ONEPASS_CANCELLED_ERROR, "stop");
  CHECK(asked > 0 && result == NULL);
  onepass_formula_release(f);
  onepass_options_release(o);
  onepass_options_release(NULL);
  onepass_array_release(in);
}

int main(void) {
  CHECK(onepass_abi_version() == ONEPASS_ABI_VERSION);
  CHECK(strchr(onepass_version(), '.') != NULL);
  CHECK(strcmp(onepass_last_error(), "") == 0);
  arrays();
  formulas();
  options();
  FAILS(onepass_set_threads(-1), ONEPASS_VALUE_ERROR, "-1");
  CHECK(onepass_set_threads(0) == ONEPASS_OK);
  onepass_trim_memory(0);
  printf("%d checks\n", checks);
  return checks > 80 ? 0 : 1;
}
