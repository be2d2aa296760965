// The code of routines, with the signature of a kernel, and its memory sizes. Only routine.cpp calls it.
#pragma once

#include <cstdint>

#include "onepass/dtype.h"

namespace onepass::runtime {

void run_sort(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);
void run_argsort(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);
constexpr std::int64_t kAssignedTogether = 64;  // most adjacent rows in a task of an assignment
void run_assign(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);
void run_search(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);

/// Returns the bytes moved for each element of a sort: a key, or a key and a position.
std::int64_t sort_element_bytes(DType type, bool places, std::int64_t length);
std::int64_t sort_scratch_bytes(DType type, bool places, std::int64_t length, std::int64_t rows);  // for one task
std::int64_t shared_sort_phases(DType type);
std::int64_t shared_sort_bytes(DType type, bool places, std::int64_t length, std::int64_t chunks);  // for one row
bool sorts_by_counts(DType type, std::int64_t length);  // bytes, in rows that are not very short
std::int64_t counts_bytes(std::int64_t tasks);
std::int64_t select_scratch_bytes(DType type, std::int64_t length, std::int64_t results, std::int64_t chunks);
std::int64_t select_shared_bytes(DType type, std::int64_t length, std::int64_t results);  // for one task

}  // namespace onepass::runtime
